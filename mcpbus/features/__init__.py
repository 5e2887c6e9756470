"""What an author writes: tools, resources, prompts and completions, and what they return and raise."""

from mcpbus.features.catalogue import Capability, Features, Kind
from mcpbus.features.completion import Completer, Completion
from mcpbus.features.content import Audio, File, Image, PromptMessage, ToolResult
from mcpbus.features.errors import CallTimeoutError, RegistrationError, ResourceNotFoundError, ToolError
from mcpbus.features.prompt import Prompt, make_prompt
from mcpbus.features.resource import Resource, make_resource
from mcpbus.features.run import CallNext, Invocation, Middleware, Runner
from mcpbus.features.tool import Tool, Visible, tool

__all__ = [
    "Audio",
    "CallNext",
    "CallTimeoutError",
    "Capability",
    "Completer",
    "Completion",
    "Features",
    "File",
    "Image",
    "Invocation",
    "Kind",
    "Middleware",
    "Prompt",
    "PromptMessage",
    "RegistrationError",
    "Resource",
    "ResourceNotFoundError",
    "Runner",
    "Tool",
    "ToolError",
    "ToolResult",
    "Visible",
    "make_prompt",
    "make_resource",
    "tool",
]
