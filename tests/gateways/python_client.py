"""The official Python client as an observer: it runs a plan against a server, and notes what it sees as JSON."""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

LEGACY, MODERN = "legacy", "modern"
NEWEST = "2026-07-28"
SECONDS = 200
"""For any one step."""
ONCE = "Roots updated"
"""The begin of a log line that server-everything sends at a time of its own: it is noted apart."""


class Observer:
    """A connected client, and what it was sent outside of results."""

    def __init__(self, root: str) -> None:
        self.client: Client
        self._root = root
        self._asked: list[Any] = []
        self._logs: list[Any] = []
        self._line: Any = None
        self._said: list[types.ServerNotification] = []
        self._more = trio.Event()

    @property
    def modern(self) -> bool:
        return self.client.protocol_version == NEWEST

    async def observe(self, step: dict[str, Any]) -> Any:
        """Run a step, and return what was seen: its outcome, log lines since the step before, and what was asked."""
        seen: dict[str, Any] = {"late": f"no end after {SECONDS} s"}
        with trio.move_on_after(SECONDS):
            try:
                seen = await getattr(self, f"_{step['do']}")(step)
            except MCPError as fault:
                seen = {"error": _plain(fault.error)}
        with trio.move_on_after(SECONDS):
            await self._until(lambda: len(self._logs) >= step.get("logs", 0))
        seen |= {"logs": self._logs, "asked": self._asked}
        self._logs, self._asked, self._said = [], [], []
        return {name: value for name, value in seen.items() if value not in ([], None)}

    async def _about(self, _step: Any) -> dict[str, Any]:
        client = self.client
        return {
            "revision": client.protocol_version,
            "server": _plain(client.server_info),
            "capabilities": _plain(client.server_capabilities),
            "instructions": client.instructions,
        }

    async def _list(self, step: dict[str, Any]) -> dict[str, Any]:
        """List until all is there that has to be: a server may add tools once it knows the client, and announces that."""
        async with AsyncExitStack() as stack:
            changes = None
            if step["has"] and self.modern:
                changes = await stack.enter_async_context(self.client.listen(tools_list_changed=True))
            while True:
                self._said = []
                seen = await self._items(step["list"])
                if seen["items"].keys() >= set(step["has"]):
                    return seen
                await (self._heard(types.ToolListChangedNotification) if changes is None else anext(changes))

    async def _items(self, name: str) -> dict[str, Any]:
        listing, kind, key = {
            "tools": (self.client.list_tools, "tools", "name"),
            "prompts": (self.client.list_prompts, "prompts", "name"),
            "resources": (self.client.list_resources, "resources", "uri"),
            "templates": (self.client.list_resource_templates, "resource_templates", "uri_template"),
        }[name]
        items, cursor = [], None
        while True:
            page = await listing(cursor=cursor)
            items += getattr(page, kind)
            if (cursor := page.next_cursor) is None:
                return {"items": {str(getattr(item, key)): _plain(item) for item in items}}

    async def _once(self, _step: Any) -> dict[str, Any]:
        await self._until(lambda: self._line is not None)
        return {"line": self._line}

    async def _call(self, step: dict[str, Any]) -> dict[str, Any]:
        progress: list[Any] = []
        whole = trio.Event()

        async def report(value: float, total: float | None, message: str | None) -> None:
            progress.append([value, total, message])
            whole.set()
            await trio.lowlevel.checkpoint()

        if step.get("cancel"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._start, step, report)
                await whole.wait()
                nursery.cancel_scope.cancel()
            return {"progress": progress}
        result = await self._start(step, report if step.get("progress") else None)
        return {"result": _plain(result), "progress": progress}

    def _start(self, step: dict[str, Any], report: Any) -> Any:
        return self.client.call_tool(step["tool"], step["arguments"], progress_callback=report)

    async def _read(self, step: dict[str, Any]) -> dict[str, Any]:
        return {"result": _plain(await self.client.read_resource(step["uri"]))}

    async def _prompt(self, step: dict[str, Any]) -> dict[str, Any]:
        return {"result": _plain(await self.client.get_prompt(step["prompt"], step["arguments"]))}

    async def _complete(self, step: dict[str, Any]) -> dict[str, Any]:
        ref = step["ref"]
        kind = types.PromptReference if "name" in ref else types.ResourceTemplateReference
        argument = {"name": step["argument"], "value": step["value"]}
        return {"result": _plain(await self.client.complete(kind(**ref), argument))}

    async def _level(self, step: dict[str, Any]) -> dict[str, Any]:
        if not self.modern:
            await self.client.set_logging_level(step["level"])
        return {}

    async def _updates(self, step: dict[str, Any]) -> dict[str, Any]:
        """Have a tool change a resource, and wait for the update."""
        uri, call = step["uri"], step["call"]
        if self.modern:
            async with self.client.listen(resource_subscriptions=[uri]) as listen:
                await self._start(call, None)
                return {"update": str((await anext(listen)).uri)}
        await self.client.subscribe_resource(uri)
        await self._start(call, None)
        update = await self._heard(types.ResourceUpdatedNotification)
        await self.client.unsubscribe_resource(uri)
        return {"update": str(update.params.uri)}

    async def _changes(self, step: dict[str, Any]) -> dict[str, Any]:
        """Have a tool change the list of tools, and list them at each notification until the change is there."""
        async with AsyncExitStack() as stack:
            changes = None
            if self.modern:
                changes = await stack.enter_async_context(self.client.listen(tools_list_changed=True))
            await self._start(step["call"], None)
            while True:
                await (self._heard(types.ToolListChangedNotification) if changes is None else anext(changes))
                self._said = []
                names = (await self._items("tools"))["items"]
                if grown := [name for name in names if name.endswith(step["grown"])]:
                    return {"grown": grown}

    async def _heard(self, kind: type) -> Any:
        await self._until(lambda: any(isinstance(said, kind) for said in self._said))
        return next(said for said in self._said if isinstance(said, kind))

    async def _until(self, true: Any) -> None:
        while not true():
            await self._more.wait()

    async def hear(self, message: Any) -> None:
        self._said.append(message)
        self._wake()
        await trio.lowlevel.checkpoint()

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        line = _plain(params)
        if str(params.data).startswith(ONCE):
            self._line = line
        else:
            self._logs.append(line)
        self._wake()
        await trio.lowlevel.checkpoint()

    async def elicit(self, _context: Any, params: Any) -> types.ElicitResult:
        await self._note("elicitation/create", params)
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        content = {"city": "oslo", "days": 3} if "city" in params.requested_schema["properties"] else ADA
        return types.ElicitResult(action="accept", content=content)

    async def sample(self, _context: Any, params: Any) -> types.CreateMessageResult:
        await self._note("sampling/createMessage", params)
        content = types.TextContent(type="text", text="Roses are red.")
        return types.CreateMessageResult(
            role="assistant", model="m-1", stop_reason="endTurn", content=content
        )

    async def list_roots(self, _context: Any) -> types.ListRootsResult:
        await trio.lowlevel.checkpoint()
        return types.ListRootsResult(roots=[types.Root(uri=self._root, name="Root")])

    async def _note(self, method: str, params: Any) -> None:
        self._asked.append({"method": method, "params": _plain(params)})
        await trio.lowlevel.checkpoint()

    def _wake(self) -> None:
        self._more.set()
        self._more = trio.Event()


ADA = {"name": "Ada", "check": True, "email": "ada@example.org", "integer": 36, "number": 1.5}


def _plain(value: Any) -> Any:
    return None if value is None else value.model_dump(mode="json", by_alias=True, exclude_unset=True)


@asynccontextmanager
async def _transport(target: dict[str, Any], address: str) -> AsyncIterator[Any]:
    if "url" in target:
        async with (
            create_mcp_http_client(headers={"x-forwarded-for": address}) as http,
            streamable_http_client(target["url"], http_client=http) as streams,
        ):
            yield streams
        return
    parameters = StdioServerParameters(command=target["command"], args=target["args"])
    async with (
        await trio.open_file(os.devnull, "w") as nowhere,
        stdio_client(parameters, nowhere.wrapped) as streams,
    ):
        yield streams


async def observe(
    target: dict[str, Any], plan: Iterable[dict[str, Any]], era: str, address: str, root: str
) -> dict[str, Any]:
    """Connect, run a plan, and return what each step saw by the step's key.

    Args:
        target: A ``url``, or a ``command`` with its ``args``.
        plan: The steps.
        era: `LEGACY`, or `MODERN` for a client that falls back to the handshake where the server knows no other.
        address: Where a proxy in front of the server would have it come from.
        root: The URI of the client's root.
    """
    observer = Observer(root)
    async with Client(
        _transport(target, address),
        mode="legacy" if era == LEGACY else "auto",
        log_level="debug",
        cache=None,
        logging_callback=observer.log,
        message_handler=observer.hear,
        elicitation_callback=observer.elicit,
        sampling_callback=observer.sample,
        list_roots_callback=observer.list_roots,
    ) as client:
        observer.client = client
        return {step["key"]: await observer.observe(step) for step in plan}
