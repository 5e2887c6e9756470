"""Extensions of the protocol: how they are named, which methods are left to them, and what a client declared of one.

Source: SEP-2133; rule B-6.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_IDENTIFIER: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_OF_THE_PROTOCOL: Final = frozenset(
    {
        "completion",
        "elicitation",
        "initialize",
        "logging",
        "notifications",
        "ping",
        "prompts",
        "resources",
        "roots",
        "sampling",
        "server",
        "subscriptions",
        "tasks",
        "tools",
    }
)
"""What its own methods begin with, in whatever revision, up to a slash."""
_SHARED: Final = _OF_THE_PROTOCOL - {"notifications"}
_PARTS: Final = frozenset({"templates"})
"""Parts of a family that have methods of the protocol: ``resources/templates/list``. Extensions have others."""


def is_identifier(text: object) -> bool:
    """Tell whether this may name an extension: a prefix, which is a domain turned round, a slash, and a name."""
    return isinstance(text, str) and _IDENTIFIER.fullmatch(text) is not None


def is_left_to_extensions(method: str) -> bool:
    """Return whether a method may be an extension's: neither one of the protocol, nor what one of those would look like.

    A standard extension may have a part of its own in a family of the protocol, such as ``resources/directory/read`` (SEP-2640, skills).
    What begins with ``rpc.`` is JSON-RPC's own (section 4.3). Over HTTP each is said in a header besides, which has visible ASCII only.
    """
    return (
        bool(method)
        and not method.startswith("rpc.")
        and _is_outside(method)
        and method.isascii()
        and method.isprintable()
        and " " not in method
    )


def _is_outside(method: str) -> bool:
    """Return whether a method is outside of what the protocol may ever define."""
    family, _, rest = method.partition("/")
    part, slash, name = rest.partition("/")
    own_part = family in _SHARED and bool(part and slash and name) and part not in _PARTS
    return own_part or family not in _OF_THE_PROTOCOL


def declared_settings(capabilities: Mapping[str, Any], identifier: str) -> Mapping[str, Any] | None:
    """Return what capabilities say of an extension; None if they do not declare it."""
    extensions = capabilities.get("extensions")
    settings = extensions.get(identifier) if isinstance(extensions, Mapping) else None
    return settings if isinstance(settings, Mapping) else None
