"""The resources and the prompts."""

from typing import Any

from mcpbus import File, Image, Server
from tests.conformance.content import PIXEL


async def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


async def static_binary() -> bytes:
    """An image that never changes."""
    return PIXEL


async def watched_resource() -> str:
    """A text to subscribe to."""
    return "Watched resource content."


async def template_data(id: str) -> dict[str, Any]:  # noqa: A002 - the suite's name for it
    """Data of one id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


# The argument's name is the protocol's spelling, which is also what the suite sends.
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:  # noqa: N803
    """A prompt that embeds a resource."""
    return [
        File("Embedded resource content for testing.", resourceUri, "text/plain"),
        "Please process the embedded resource above.",
    ]


async def test_prompt_with_image() -> list[Any]:
    """A prompt that shows an image."""
    return [Image(PIXEL), "Please analyze the image above."]


async def complete_arg1(value: str) -> list[str]:
    """Propose values for the first argument."""
    return [word for word in ("paris", "park", "party") if word.startswith(value)]


def add_readables(server: Server) -> None:
    """Register resources, a template, prompts and a completion."""
    server.add_resource("test://static-text", static_text)
    server.add_resource("test://static-binary", static_binary, mime_type="image/png")
    server.add_resource("test://watched-resource", watched_resource)
    server.add_resource("test://template/{id}/data", template_data, mime_type="application/json")
    for function in (
        test_simple_prompt,
        test_prompt_with_arguments,
        test_prompt_with_embedded_resource,
        test_prompt_with_image,
    ):
        server.add_prompt(function)
    server.completion("test_prompt_with_arguments", "arg1")(complete_arg1)
