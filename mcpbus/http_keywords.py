"""The `HttpOptions` of keywords, with a sentence for those that belong somewhere else or have another name here."""

from collections.abc import Mapping
from functools import partial

import attrs

from mcpbus.core.limits import Limits
from mcpbus.features.keywords import check_keywords
from mcpbus.protocol.http.origin import HttpOptions
from mcpbus.serving.options import ServeOptions

# What the official SDK and FastMCP call it.
_OTHER_NAMES: Mapping[str, str] = {
    "stateless": 'sessions="stateless"',
    "stateless_http": 'sessions="stateless"',
    "json_response": 'response="json"',
    "streamable_http_path": 'path="/mcp"',
    "mount_path": 'path="/mcp"',
}


def read_http_options(owner: str, given: Mapping[str, object]) -> HttpOptions:
    """Make the `HttpOptions` of keywords.

    Args:
        owner: What was called, such as ``server.run()``.
        given: The keywords that are not its own.

    Raises:
        TypeError: One is not known; the message says what to write.
        ValueError: One cannot be right.
    """
    check_keywords(owner, given, attrs.fields_dict(HttpOptions), partial(_remedy, owner, given))
    try:
        return HttpOptions(**given)  # type: ignore[arg-type]  # attrs looks at each of them
    except ValueError as error:
        raise ValueError(error.args[0]) from None  # attrs puts its own objects behind the sentence


def _remedy(owner: str, given: Mapping[str, object], name: str) -> str | None:
    listens = not owner.endswith("asgi()")
    if name in {"host", "port", "bind"}:
        address = given.get("bind", f"{given.get('host', '127.0.0.1')}:{given.get('port', 8000)}")
        if listens:
            return f'write bind="{address}"'
        return f"give it to what serves the application: hypercorn -k trio --bind {address} module:app"
    if name in attrs.fields_dict(ServeOptions) and listens:
        return f"write options=ServeOptions({name}={given[name]!r})"
    if name in attrs.fields_dict(Limits):
        return f"write limits=Limits({name}={given[name]!r})"
    return f"write {_OTHER_NAMES[name]}" if name in _OTHER_NAMES else None
