"""JSON-RPC errors: the codes, the exception that carries one, and a constructor for each.

A message says what is wrong, where, and what would be right. What a client wrote is quoted in it only shortened:
an answer must not grow with the request that it refuses.

What went wrong, where nurseries have put it into groups.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mcpbus.protocol.keywords import explained

# JSON-RPC 2.0, section 5.1 (rule J-12).
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

# Defined by 2026-07-28 (rules J-17, J-18).
HEADER_MISMATCH = -32020
MISSING_REQUIRED_CLIENT_CAPABILITY = -32021
UNSUPPORTED_PROTOCOL_VERSION = -32022

# Legacy only; neither may leave on a 2026-07-28 request (rules J-13, J-14, J-19).
RESOURCE_NOT_FOUND = -32002
URL_ELICITATION_REQUIRED = -32042

# What the official SDKs put in the body of a legacy HTTP refusal (requirements, section 23).
SERVER_ERROR = -32000

_QUOTED_CHARACTERS = 80
_DETAIL_CHARACTERS = 1_200
"""Of what a decoder says, which may name a whole value; more than what any argument of a tool is refused with."""


@explained
class ProtocolError(Exception):
    """An error that the peer is told as it is: its code, message and data become the JSON-RPC error object.

    Args:
        code: an integer. Codes of your own lie outside -32768 to -32000 (rule J-20).
        message: one sentence for the person who debugs. Lone surrogates, as in undecodable file names, become `?`.
        data: anything that JSON can hold; None leaves the member out.

    Raises:
        TypeError: if `code` is no integer, `message` no text, or `data` cannot be written as JSON; here and not later, so that its author
            sees it.
        ValueError: likewise, for text in `data` that is not Unicode.
    """

    def __init__(self, code: int, message: str, data: object = None) -> None:
        if not isinstance(code, int):
            raise TypeError(f"an error code is an integer, got {code!r}")
        if not isinstance(message, str):
            raise TypeError(f"the message of an error is a text, got {message!r}")
        self.code = code
        self.message: str = message.encode(errors="replace").decode()
        self.data = data
        self.encoded_data: msgspec.Raw | None = (
            None if data is None else msgspec.Raw(msgspec.json.encode(data))
        )
        super().__init__(code, self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


def quoted(text: str) -> str:
    """Quote what the peer wrote, shortened to 80 characters and without control characters, for use in a message."""
    if len(text) > _QUOTED_CHARACTERS:
        text = text[: _QUOTED_CHARACTERS - 1] + "…"
    return repr(text)


def _shortened(detail: str) -> str:
    """The detail without its middle, if it is long: it ends with the place of the fault, or with what would be right."""
    half = _DETAIL_CHARACTERS // 2
    return detail if len(detail) <= _DETAIL_CHARACTERS else f"{detail[:half]}…{detail[-half:]}"


def insufficient_scope(scopes: Sequence[str]) -> ProtocolError:
    """-32600: the token of whoever asks has to allow all of this, where that cannot be said in HTTP."""
    return ProtocolError(
        INVALID_REQUEST,
        f"Invalid request: the token does not allow this; it needs {' '.join(scopes)}",
        {"requiredScopes": list(scopes)},
    )


def parse_error(detail: str) -> ProtocolError:
    """-32700: what arrived is not JSON."""
    return ProtocolError(PARSE_ERROR, f"Parse error: {_shortened(detail)}")


def invalid_request(detail: str) -> ProtocolError:
    """-32600: JSON, but not a message that may be sent here and now."""
    return ProtocolError(INVALID_REQUEST, f"Invalid request: {_shortened(detail)}")


def method_not_found(method: str) -> ProtocolError:
    """-32601: an unknown method, or one whose capability the server does not offer (rule M-13)."""
    return ProtocolError(METHOD_NOT_FOUND, f"Method not found: {quoted(method)}")


def invalid_params(detail: str) -> ProtocolError:
    """-32602: the method exists, its parameters are not right."""
    return ProtocolError(INVALID_PARAMS, f"Invalid params: {_shortened(detail)}")


def internal_error() -> ProtocolError:
    """-32603: the server failed; why is in its own log, never on the wire."""
    return ProtocolError(INTERNAL_ERROR, "Internal error")


def process_lost() -> ProtocolError:
    """-32603: what would have answered has ended, or cannot be reached."""
    why = "The process that served this has ended, or cannot be reached any more; whether it had an effect is not known"
    return ProtocolError(INTERNAL_ERROR, why)


def header_mismatch(detail: str) -> ProtocolError:
    """-32020: a mirrored HTTP header is missing, repeated, malformed, or differs from the body (rule X-20)."""
    return ProtocolError(HEADER_MISMATCH, f"Header mismatch: {detail}")


def missing_client_capability(required: Mapping[str, Any]) -> ProtocolError:
    """-32021: the request needs what its client did not declare (rule M-12).

    Args:
        required: a client-capabilities object; each value is an object, such as `{"elicitation": {"url": {}}}`.
    """
    # An object within says what is missing of a capability that was declared, perhaps: to name this alone would mislead.
    names = ", ".join(
        sorted(
            name for key, parts in required.items() for name in ([f"{key}.{part}" for part in parts] or [key])
        )
    )
    return ProtocolError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"Missing required client capability: declare {names}",
        {"requiredCapabilities": dict(required)},
    )


def missing_extension(identifier: str) -> ProtocolError:
    """-32021: the request needs an extension that its client did not declare (rules B-6 and TX-10)."""
    return missing_client_capability({"extensions": {identifier: {}}})


def unsupported_protocol_version(requested: str, supported: Iterable[str]) -> ProtocolError:
    """-32022: `supported` lists what server/discover lists, `requested` is echoed (rule M-4)."""
    return ProtocolError(
        UNSUPPORTED_PROTOCOL_VERSION,
        f"Unsupported protocol version {quoted(requested)}",
        {"supported": list(supported), "requested": requested},
    )


def resource_not_found(uri: str, code: int, why: str = "") -> ProtocolError:
    """No such resource (rule R-3).

    Args:
        uri: as the client asked for it; it becomes `data.uri`.
        code: `Revision.resource_not_found` of the request's revision.
        why: what the author of the resource says about it.
    """
    said = f"Resource not found: {quoted(uri)}"
    return ProtocolError(code, f"{said}: {why}" if why else said, {"uri": uri})


def sole_cause(error: BaseException) -> BaseException:
    """The one exception inside nested groups of one, which nurseries make of what is raised within; else `error`."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
