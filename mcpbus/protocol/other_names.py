"""Names that FastMCP, the official SDK and Starlette have for things: for each one the way to write it here.

Someone who comes from there writes such a name first. Without a hint Python answers with the bare name.
"""

from collections.abc import Mapping
from typing import Final

_SERVE_ASYNCIO: Final = "mcpbus.asyncio.asgi(server), or server.asgi() on trio"
_IN_TESTS: Final = "async with mcpbus.testing.open_client(server) as client"
_LISTS: Final = f"{_IN_TESTS}: client.list_tools() and the like"
_ROUTES: Final = (
    f"a route of the application in which you mount {_SERVE_ASYNCIO}; /health and /healthz are there"
)
_MIDDLEWARE: Final = "mcpbus.Server(..., middleware=[...]), one function for all kinds of calls"
_PROXY: Final = "mcpbus.Proxy(target), for a URL or a program"
_TRIO: Final = "await server.serve(), or server.run() outside of an event loop"
_STDIO: Final = 'server.run("stdio")'
_CLIENT: Final = (
    f"{_IN_TESTS}; over HTTP async with mcpbus.client.connect_http(url), and with a program async with "
    "mcpbus.client.connect_process(command)"
)
_SESSION_STATE: Final = (
    "ctx.session.state, a dict, for clients with a session; ctx.state for all, from the lifespan"
)
_HEADERS: Final = "ctx.headers, and ctx.principal for who asks"
_CHANGES: Final = "server.tools_changed(), server.prompts_changed() or server.resources_changed()"

OTHER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "Server": {
        **dict.fromkeys(("http_app", "streamable_http_app", "sse_app", "asgi_app", "app"), _SERVE_ASYNCIO),
        **dict.fromkeys(
            ("custom_route", "add_route", "add_api_route", "route", "get", "post", "routes"), _ROUTES
        ),
        **dict.fromkeys(("add_middleware", "middleware"), _MIDDLEWARE),
        "from_fastapi": "mcpbus.Server.from_asgi(app)",
        **dict.fromkeys(("as_proxy", "create_proxy", "from_client"), _PROXY),
        **dict.fromkeys(("run_async", "run_http_async", "run_streamable_http_async", "run_sse_async"), _TRIO),
        "run_stdio_async": _STDIO,
        **dict.fromkeys(
            ("import_server", "add_provider", "include_router"), "server.mount(other, prefix=...)"
        ),
        **dict.fromkeys(
            (
                *("list_tools", "get_tools", "get_tool", "call_tool", "list_resources", "get_resources"),
                *("read_resource", "get_resource", "list_resource_templates", "get_resource_templates"),
                *("list_prompts", "get_prompts", "get_prompt"),
            ),
            _LISTS,
        ),
        **dict.fromkeys(
            ("add_template", "add_resource_template", "resource_template"), '@server.resource("a://{b}")'
        ),
        "add_resource_fn": "server.add_resource(uri, function)",
        **dict.fromkeys(
            ("add_tool_transformation", "add_transform"), "server.add_tool(mcpbus.tool(function, name=...))"
        ),
        **dict.fromkeys(
            ("get_context", "request_context"), "a parameter of type mcpbus.Context in the handler"
        ),
        **dict.fromkeys(
            ("session_manager", "settings", "state"),
            "server.run(...) with the options, and server.bus once it is open",
        ),
        **dict.fromkeys(("on_event", "add_event_handler"), "mcpbus.Server(..., lifespan=...)"),
        "create_initialization_options": _STDIO,
        **dict.fromkeys(
            ("set_logging_level", "subscribe_resource", "unsubscribe_resource"),
            "nothing: the server does that itself",
        ),
        **dict.fromkeys(("notify_tool_list_changed", "send_tool_list_changed"), "server.tools_changed()"),
        **dict.fromkeys(("notify_resource_updated", "send_resource_updated"), "server.resource_updated(uri)"),
    },
    "Context": {
        **dict.fromkeys(
            ("report_progress", "send_progress", "send_progress_notification"), "ctx.progress(1, 2)"
        ),
        **dict.fromkeys(("set_state", "get_state", "delete_state"), _SESSION_STATE),
        "lifespan_context": "ctx.state, from the lifespan",
        **dict.fromkeys(
            ("get_http_request", "get_http_headers", "request", "access_token", "get_access_token", "auth"),
            _HEADERS,
        ),
        **dict.fromkeys(("fastmcp", "mcp_server", "server", "app"), "the server's own name, or ctx.bus"),
        "session_id": "ctx.session.id; ctx.session is None for clients without a session",
        "client_id": "ctx.principal, and ctx.client for its name",
        "client_info": "ctx.client.info",
        "client_params": "ctx.client",
        "transport": "ctx.session.transport, or ctx.revision",
        "warn": "ctx.warning(text)",
        **dict.fromkeys(
            ("send_log_message", "set_level"),
            "ctx.log(level, data); the client sets the level, ctx.log_level",
        ),
        **dict.fromkeys(("send_notification", "send"), "ctx.notify(method, params)"),
        **dict.fromkeys(
            ("notify_resource_updated", "send_resource_updated"), "ctx.bus.resource_updated(uri)"
        ),
        **dict.fromkeys(("send_tool_list_changed", "notify_tools_changed"), "ctx.bus.tools_changed()"),
        **dict.fromkeys(
            ("send_resource_list_changed", "notify_resources_changed"), "ctx.bus.resources_changed()"
        ),
        **dict.fromkeys(("send_prompt_list_changed", "notify_prompts_changed"), "ctx.bus.prompts_changed()"),
        **dict.fromkeys(("enable_components", "reset_visibility"), "ctx.session.enable(tags={...})"),
        "disable_components": "ctx.session.disable(tags={...})",
        **dict.fromkeys(
            ("read_resource", "list_resources", "list_prompts", "get_prompt", "call_tool", "list_tools"),
            "the function itself: a handler calls it as any other",
        ),
        **dict.fromkeys(("create_message", "sampling"), "ctx.sample(...)"),
        "close_sse_stream": "ctx.close_stream()",
    },
    "Session": {
        **dict.fromkeys(
            ("send_progress_notification", "report_progress"), "ctx.progress(1, 2), which belongs to the call"
        ),
        "send_log_message": "ctx.session.log(level, data)",
        "create_message": "ctx.session.sample(...)",
        "send_resource_updated": "ctx.session.resource_updated(uri)",
        **dict.fromkeys(
            ("send_tool_list_changed", "send_resource_list_changed", "send_prompt_list_changed"), _CHANGES
        ),
        **dict.fromkeys(
            ("client_params", "check_client_capability"),
            "ctx.session.client_capabilities and ctx.session.client_info",
        ),
        **dict.fromkeys(("get", "set", "get_state", "set_state"), "ctx.session.state, a dict"),
        "send_notification": "ctx.session.notify(method, params)",
        "session_id": "ctx.session.id",
    },
    "mcpbus": {
        **dict.fromkeys(("FastMCP", "MCPServer", "McpServer", "MCP"), 'mcpbus.Server("weather")'),
        **dict.fromkeys(
            ("ClientSession", "connect", "connect_http", "stdio_client", "streamablehttp_client"), _CLIENT
        ),
        "connect_process": _CLIENT,
        **dict.fromkeys(
            ("Message", "UserMessage", "AssistantMessage"), 'mcpbus.PromptMessage("user", "Hello")'
        ),
        "CurrentContext": "a parameter of type mcpbus.Context",
        "Starlette": _SERVE_ASYNCIO,
        "ResourceServer": "mcpbus.auth.ResourceServer(url, verifier)",
        **dict.fromkeys(("get_access_token", "get_http_headers", "get_http_request"), _HEADERS),
        "get_context": "a parameter of type mcpbus.Context in the handler",
        "open_client": _IN_TESTS,
        "types": "mcpbus.TextContent, mcpbus.ToolAnnotations and the like",
        "MemoryEventStore": "mcpbus.stores.MemoryEventStore()",
        "InMemoryEventStore": "mcpbus.stores.MemoryEventStore()",
        "McpError": "mcpbus.ProtocolError(code, message)",
        "MCPError": "mcpbus.ProtocolError(code, message)",
    },
}
"""The hint for each name of each owner: the way to write it here."""

CLIENT_IS_CONNECTED: Final = (
    f"Client is what a connection gives you, and you do not make one: write {_CLIENT}"
)


def missing(owner: str, name: str, target: object) -> AttributeError:
    """Return the error for an attribute that is not there, with the name for it here if another library has it.

    Args:
        owner: A key of `OTHER_NAMES`.
        name: The attribute.
        target: The object, so that Python can propose near names.
    """
    return AttributeError(
        _sentence(f"{type(target).__name__} has no attribute {name!r}", owner, name), name=name, obj=target
    )


def missing_in_module(module: str, name: str) -> ImportError | AttributeError:
    """Return the error for a name that a module does not have: an ImportError if another library has it, with the name for it here.

    The text of an AttributeError would be lost: ``from mcpbus import ...`` writes its own.
    """
    text = _sentence(f"module {module!r} has no attribute {name!r}", module, name)
    return ImportError(text, name=module) if name in OTHER_NAMES.get(module, ()) else AttributeError(text)


def _sentence(fault: str, owner: str, name: str) -> str:
    hint = OTHER_NAMES.get(owner, {}).get(name)
    return f"{fault}; write {hint}" if hint else fault
