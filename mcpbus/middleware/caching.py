"""Results of tools that only read, kept for a while."""

from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Any

import trio

from mcpbus.dispatch.runner import CallNext, Invocation
from mcpbus.features.content import ToolResult
from mcpbus.features.input_requests.input_required import InputRequired
from mcpbus.features.schemas import python_types
from mcpbus.features.tool import Tool
from mcpbus.middleware.base import PerRun
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.principals import content_digest, digest_of
from mcpbus.protocol.validators import check_positive


@explained
class ResponseCachingMiddleware:
    """Answers calls of tools that only read with what they returned before, for the same arguments and the same principal.

    Results are kept as they were returned: a tool must not change afterwards what it has returned.

    Args:
        ttl: For how many seconds.
        tools: The names of the tools. If left out, those whose annotations say that they only read
            (``ToolAnnotations(read_only_hint=True)``), unless they take the context: what they return may depend on it.
        max_items: How many results are kept; beyond it those are forgotten that nobody asked for for longest.
        max_item_size: How many bytes of JSON a result may have that is kept, and its arguments.
    """

    def __init__(
        self,
        ttl: float = 60.0,
        *,
        tools: Collection[str] | None = None,
        max_items: int = 1_000,
        max_item_size: int = 100_000,
    ) -> None:
        check_positive(type(self).__name__, ttl=ttl, max_items=max_items, max_item_size=max_item_size)
        if isinstance(tools, str):  # whose letters would be the names
            raise TypeError(f"tools is a list of names: write tools=[{tools!r}]")
        self._ttl = ttl
        self._tools = tools
        self._max_items = max_items
        self._max_item_size = max_item_size
        self._kept: PerRun[OrderedDict[Hashable, tuple[float, Any]]] = PerRun(OrderedDict)

    def clear(self) -> None:
        """Forget all results, such as when what the tools read has changed."""
        self._kept.get().clear()

    async def __call__(self, invocation: Invocation, call_next: CallNext) -> Any:
        """Answer from what is kept, or call; see `mcpbus.Middleware`."""
        tool = invocation.tool
        if tool is None or not self._covers(tool):
            return await call_next(invocation)
        kept, given = self._kept.get(), dict(invocation.arguments)
        arguments = python_types.encode(given)
        # The encoded arguments leave out secrets, so their content counts too. The tool itself counts and not its name, which a
        # session's own tool may have too. The principal counts and not the owner, whose quota several may share.
        content = content_digest(given)
        if content is None:  # no later call could be known to have the same arguments
            return await call_next(invocation)
        key = (tool, arguments, content, digest_of(invocation.context.principal))
        until, result = kept.get(key, (float("-inf"), None))
        if trio.current_time() < until:
            kept.move_to_end(key)
            return result
        result = await call_next(invocation)
        if _is_final(result) and len(arguments) + len(python_types.encode(result)) <= self._max_item_size:
            kept[key] = (trio.current_time() + self._ttl, result)
            kept.move_to_end(key)
            if len(kept) > self._max_items:
                kept.popitem(last=False)
        return result

    def _covers(self, tool: Tool) -> bool:
        if self._tools is not None:
            return tool.name in self._tools
        signature = tool.function.signature
        plan = signature.dependencies
        takes_context = signature.context is not None or (
            plan is not None and any(step.context is not None for step in plan.steps)
        )
        return tool.annotations is not None and bool(tool.annotations.read_only_hint) and not takes_context


def _is_final(result: Any) -> bool:
    return not isinstance(result, InputRequired) and not (isinstance(result, ToolResult) and result.is_error)
