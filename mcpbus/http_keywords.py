"""The `HttpOptions` of keywords, with a sentence for those that belong somewhere else or have another name here."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import attrs

from mcpbus.core.limits import AS_LIMITS, Limits
from mcpbus.protocol.http.options import HttpOptions
from mcpbus.protocol.keywords import Elsewhere, check_keywords
from mcpbus.serving.options import ServeOptions

# What the official SDK and FastMCP call it.
_OTHER_NAMES: Mapping[str, str] = {
    "stateless": 'sessions="stateless"',
    "stateless_http": 'sessions="stateless"',
    "json_response": 'response="json"',
    "streamable_http_path": 'path="/mcp"',
    "mount_path": 'path="/mcp"',
}


def _write(written: str, _value: object) -> str:
    return f"write {written}"


def _write_value(written: str, name: str, value: object) -> str:
    return f"write server.run({written.format(f'{name}={value!r}')}), or give it to whatever else serves"


SERVING: Final[Elsewhere] = {
    **{name: partial(_write_value, "{}", name) for name in attrs.fields_dict(HttpOptions)},
    **{
        name: partial(_write_value, "options=ServeOptions({})", name)
        for name in attrs.fields_dict(ServeOptions)
    },
    **{name: partial(_write_value, "limits=Limits({})", name) for name in attrs.fields_dict(Limits)},
    **{
        name: partial(_write, f"server.run({written or f'{name}=...'}), or give it to whatever else serves")
        for name, written in {
            "host": 'bind="127.0.0.1:8000"',
            "port": 'bind="127.0.0.1:8000"',
            "stateless": 'sessions="stateless"',
            "stateless_http": 'sessions="stateless"',
            "json_response": 'response="json"',
            "streamable_http_path": 'path="/mcp"',
            "metrics": 'metrics="127.0.0.1:9464"',
            "inspect": 'inspect="127.0.0.1:9474"',
            "audit": 'audit="audit.jsonl"',
            "telemetry": "telemetry=True",
            **dict.fromkeys(
                ("bind", "limits", "event_store", "task_store", "cluster", "watch", "response", "options")
            ),
            **dict.fromkeys(("drain_timeout", "workers")),
        }.items()
    },
}
"""Options of other libraries in this place, and of serving: here they are for whatever serves the server."""


def read_http_options(owner: str, given: Mapping[str, object], *called: Callable[..., Any]) -> HttpOptions:
    """Make the `HttpOptions` of keywords.

    Args:
        owner: What was called, such as ``server.run()``.
        given: The keywords that are not its own.
        *called: What takes those that are.

    Raises:
        TypeError: One is not known; the message says what to write.
        ValueError: One cannot be right.
    """
    own = [parameter for each in called for parameter in inspect.signature(each).parameters.values()]
    known = [each.name for each in own if each.kind is each.KEYWORD_ONLY]
    check_keywords(owner, given, [*known, *attrs.fields_dict(HttpOptions)], _elsewhere(owner, given))
    try:
        return HttpOptions(**given)  # type: ignore[arg-type]  # attrs looks at each of them
    except ValueError as error:
        raise ValueError(error.args[0]) from None  # attrs puts its own objects behind the sentence


def _elsewhere(owner: str, given: Mapping[str, object]) -> Elsewhere:
    listens = not owner.endswith("asgi()")

    def bind(name: str, value: object) -> str:
        at = {"host": "127.0.0.1", "port": 8000, **given, name: value}
        address = at.get("bind", f"{at['host']}:{at['port']}")
        if listens:
            return f'write bind="{address}"'
        return f"give it to what serves the application: hypercorn -k trio --bind {address} module:app"

    def option(of: str, name: str, value: object) -> str:
        return f"write {of.format(f'{name}={value!r}')}"

    serving = attrs.fields_dict(ServeOptions) if listens else ()
    beside = "a route beside the application, with what mcpbus.metrics.exposition returns"
    return {
        **{name: partial(_write, written) for name, written in _OTHER_NAMES.items()},
        **AS_LIMITS,
        **{name: partial(option, "options=ServeOptions({})", name) for name in serving},
        **{name: partial(bind, name) for name in ("host", "port", "bind")},
        **({} if listens else {"metrics": partial(_write, beside)}),
    }
