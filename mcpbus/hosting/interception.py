"""The moment in which a program would serve its MCP server: the run functions and the stdio streams of its SDK, replaced while it starts.

A program that makes its server within a function has no object to import. All its ways to serve lead through a few functions of its
SDK, which get the server here.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from importlib import import_module
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeAlias

import anyio

from mcpbus.hosting.detect import AUTHOR_CLASSES, author_of

Suspend: TypeAlias = Callable[[object, object], Awaitable[None]]
"""Takes a server and its initialization options, None where the SDK makes them, and returns when the program may end."""

_RUN_FUNCTIONS: Final = (
    "run_async",
    "run_stdio_async",
    "run_http_async",
    "run_streamable_http_async",
    "run_sse_async",
)
_STDIO: Final = "stdio_server"


class Interception:
    """Replaces the functions by which a program serves, while the block lasts.

    Import the program within the block, then call `intercept_authors`, then run the program.

    Args:
        suspend: Is awaited in place of serving.
        refuse: Is called where the program starts a web server of its own; raises.
    """

    def __init__(self, suspend: Suspend, refuse: Callable[[], NoReturn]) -> None:
        self._suspend = suspend
        self._refuse = refuse
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        try:
            # Programs import the function by its name, so it is replaced before they do.
            stdio = import_module("mcp.server.stdio")
            lowlevel = import_module("mcp.server.lowlevel.server")
        except ImportError:  # the program uses no SDK that is known
            return self
        own = getattr(stdio, _STDIO)
        for module in [*sys.modules.values()]:
            if getattr(module, "__dict__", {}).get(_STDIO) is own:
                self._replace(module, _STDIO, _silent_stdio)
        self._replace(lowlevel.Server, "run", self._run_lowlevel())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def intercept_authors(self) -> None:
        """Replace the run functions of the servers that the program has imported."""
        for name in AUTHOR_CLASSES:
            module, _, kind = name.rpartition(".")
            owner = getattr(sys.modules.get(module), kind, None)
            for function in _RUN_FUNCTIONS:
                if hasattr(owner, function):
                    self._replace(owner, function, self._run_author())
        uvicorn = getattr(sys.modules.get("uvicorn.server"), "Server", None)
        if uvicorn is not None:
            self._replace(uvicorn, "serve", self._serve_web())

    def _replace(self, owner: Any, name: str, value: object) -> None:
        own = vars(owner).get(name)
        setattr(owner, name, value)
        if own is None:
            self._undo.callback(delattr, owner, name)
        else:
            self._undo.callback(setattr, owner, name, own)

    def _run_author(self) -> Callable[..., Awaitable[None]]:
        suspend = self._suspend

        async def run(server: object, *_: object, **__: object) -> None:
            await suspend(server, None)

        return run

    def _run_lowlevel(self) -> Callable[..., Awaitable[None]]:
        suspend = self._suspend

        async def run(server: object, *given: object, **named: object) -> None:
            options = named.get("initialization_options", given[2] if len(given) > 2 else None)
            await suspend(author_of(server), options)

        return run

    def _serve_web(self) -> Callable[..., Awaitable[None]]:
        refuse = self._refuse

        async def serve(_server: object, *_: object, **__: object) -> None:
            refuse()

        return serve


@asynccontextmanager
async def _silent_stdio(*_: object, **__: object) -> AsyncIterator[tuple[object, object]]:
    """Yield two streams in place of standard input and output: one that never has a message, and one that drops them."""
    send, receive = anyio.create_memory_object_stream[Any](1)
    async with send, receive:
        yield receive, send
