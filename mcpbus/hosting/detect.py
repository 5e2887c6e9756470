"""What an object of another SDK is, and what of it is served.

This is the only place that reads private names of these SDKs. Each is named here once, and nothing is imported: the
file of the server has imported all that it needs.
"""

import inspect
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final

import attrs

_LOWLEVEL: Final[Mapping[str, str]] = {
    "mcp.server.mcpserver.server.MCPServer": "_lowlevel_server",
    "mcp.server.fastmcp.server.FastMCP": "_mcp_server",
    "fastmcp.server.server.FastMCP": "_mcp_server",
    "fastapi_mcp.server.FastApiMCP": "server",
    "mcp.server.lowlevel.server.Server": "",
}
"""The classes of other SDKs, and the attribute in which each has its low-level server; none where it is one itself."""

AUTHOR_CLASSES: Final = tuple(name for name, attribute in _LOWLEVEL.items() if attribute)
"""The classes that have a low-level server in them."""

_FAMILIES: Final[Mapping[str, str]] = {
    "mcp.server.mcpserver": "MCPServer of the official SDK",
    "mcp.server.fastmcp": "FastMCP of the official SDK",
    "mcp.server.lowlevel": "low-level Server of the official SDK",
    "fastmcp": "FastMCP",
    "fastapi_mcp": "fastapi_mcp",
}


_VERIFIERS: Final[Mapping[str, str]] = {
    "MCPServer of the official SDK": "_token_verifier",
    "FastMCP of the official SDK": "_token_verifier",
    "FastMCP": "auth",
}
"""The attribute in which a server has the object that verifies tokens."""

_SETTINGS: Final[Mapping[str, str]] = {
    "FastMCP of the official SDK": "settings",
    "FastMCP": "_deprecated_settings",  # of version 2: later ones take these as arguments of `run`
}
"""The attribute in which a server has the settings for its own transports, if it has any."""

_ADDRESS: Final = "127.0.0.1:8000"
_PATHS: Final = (("path", "streamable_http_path", "/mcp"), ("sse_path", "sse_path", "/sse"))
"""An option of `Server.run`, the setting for it, and the default of both."""


@attrs.frozen
class FoundServer:
    """A server of another SDK.

    Attributes:
        author: The object that its author made.
        family: What it is, for people.
        lowlevel: The low-level server in it, which all transports of its SDK serve.
        name: What clients call it.
        version: Its version.
        options: The initialization options with which its program runs it; None if it has none of its own.
    """

    author: Any
    family: str
    lowlevel: Any
    name: str
    version: str
    options: Any = None

    def initialization_options(self) -> Any:
        """Return what its SDK answers `initialize` with."""
        return self.lowlevel.create_initialization_options() if self.options is None else self.options

    def lifespan(self) -> AbstractAsyncContextManager[Any]:
        """Return the lifespan of the whole server. With version 1 of the SDK each connection enters one of its own."""
        if self.has_kernel:
            return self.lowlevel.lifespan(self.lowlevel)  # type: ignore[no-any-return]
        manager = getattr(self.author, "_lifespan_manager", None)  # of FastMCP 3, which its connections share
        return nullcontext() if manager is None else manager()

    @property
    def http_settings(self) -> dict[str, str]:
        """The options of `Server.run` that its author chose in its settings, other than the defaults."""
        settings: Any = getattr(self.author, _SETTINGS.get(self.family, ""), None)
        if settings is None:
            return {}
        chosen = {}
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        if (address := f"{host}:{settings.port}") != _ADDRESS:
            chosen["bind"] = address
        for option, setting, default in _PATHS:
            if (path := getattr(settings, setting).rstrip("/") or "/") != default:
                chosen[option] = path
        if settings.json_response:
            chosen["response"] = "json"
        if settings.stateless_http:
            chosen["sessions"] = "stateless"
        return chosen

    @property
    def checks_tokens(self) -> bool:
        """Whether it lets in only clients that bring a token."""
        attribute = _VERIFIERS.get(self.family)
        return attribute is not None and getattr(self.author, attribute, None) is not None

    def make_app(self, path: str) -> Any:
        """Return its Starlette application with the MCP endpoint at `path`; None if it has none by itself."""
        if self.is_fastmcp:
            known = inspect.signature(self.author.http_app).parameters
            unguarded = {"host_origin_protection": False} if "host_origin_protection" in known else {}
            return self.author.http_app(path=path, **unguarded)
        if self.family == "FastMCP of the official SDK":
            settings = self.author.settings
            own, settings.streamable_http_path = settings.streamable_http_path, path
            try:
                return self.author.streamable_http_app()
            finally:
                settings.streamable_http_path = own
        if self.family == "MCPServer of the official SDK":
            return self.author.streamable_http_app(streamable_http_path=path)
        return None

    @property
    def has_like_sessions(self) -> bool:
        """Whether each run of a server of version 1 begins with the same state: it has no lifespan and no tasks of its own for each."""
        lifespan = self.lowlevel.lifespan
        place = f"{getattr(lifespan, '__module__', '')}.{getattr(lifespan, '__name__', '')}"
        tasks = getattr(getattr(self.lowlevel, "_experimental_handlers", None), "task_support", None)
        return tasks is None and (self.is_fastmcp or place == "mcp.server.lowlevel.server.lifespan")

    @property
    def is_fastmcp(self) -> bool:
        """Whether it is a FastMCP of the package `fastmcp`."""
        return self.family == "FastMCP"

    @property
    def has_kernel(self) -> bool:
        """Whether its SDK serves single requests, as version 2 of the official one does."""
        return hasattr(self.lowlevel, "get_request_handler")


def class_of(candidate: object) -> str | None:
    """Return the class of another SDK that an object is an instance of; None if there is none."""
    for base in type(candidate).__mro__:
        name = f"{base.__module__}.{base.__qualname__}"
        if name in _LOWLEVEL:
            return name
    return None


def is_foreign(candidate: object) -> bool:
    """Return whether an object is a server of another SDK."""
    return class_of(candidate) is not None


def author_of(lowlevel: object) -> object:
    """Return the FastMCP that a low-level server belongs to; itself if it belongs to none, or does not say so."""
    author: object = getattr(lowlevel, "fastmcp", None)
    return lowlevel if author is None or not is_foreign(author) else author


def find(candidate: object, options: Any = None) -> FoundServer:
    """Find what of an object is served.

    Args:
        candidate: The object.
        options: The initialization options with which its program runs it; None if the SDK makes them.

    Raises:
        TypeError: It is no server of another SDK, or has no low-level server where this version of mcpbus looks for it.
    """
    name = class_of(candidate)
    if name is None:
        raise TypeError(
            "host() takes a server of another SDK: an MCPServer or a low-level Server of `mcp`, a FastMCP, or a FastApiMCP, "
            f"not {candidate!r}"
        )
    attribute = _LOWLEVEL[name]
    lowlevel: Any = getattr(candidate, attribute, None) if attribute else candidate
    if lowlevel is None:
        raise TypeError(
            f"{candidate!r} has no {attribute!r}, in which {name} has its low-level server: this version of it cannot be hosted"
        )
    family = next(text for module, text in _FAMILIES.items() if name.startswith(f"{module}."))
    called = getattr(options, "server_name", None) or lowlevel.name
    version = getattr(options, "server_version", None) or getattr(lowlevel, "version", None) or "0.0.0"
    return FoundServer(candidate, family, lowlevel, str(called), str(version), options)
