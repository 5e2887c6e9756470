"""What a handler or a program says to a client, before its stream is chosen.

Making a notification encodes it, in the caller's own stack: a value that is not JSON raises there, where it can
be mended, and never inside an actor. What is made is a draft; who sends it enters it in the books.
"""

from collections.abc import Hashable, Mapping
from math import isfinite
from typing import Any, ClassVar, TypeAlias

import msgspec

from mcpbus.core.receipt import Ledger, Receipt
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.json_faults import with_place
from mcpbus.protocol.jsonrpc import encode_notification, encode_value, single_line
from mcpbus.protocol.messages import ListName
from mcpbus.protocol.routes import MessageKind
from mcpbus.protocol.validators import check_text

MESSAGE = "notifications/message"
PROGRESS = "notifications/progress"
RESOURCE_UPDATED = "notifications/resources/updated"
TASK_STATUS = "notifications/tasks"
ELICITATION_COMPLETE = "notifications/elicitation/complete"
LIST_CHANGED = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}


Params: TypeAlias = dict[str, Any] | msgspec.Raw | None
"""Of a notification: a JSON object, or the text of one, which is sent as it is."""

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])  # it looks at the members, and makes nothing of them


class ChangeEvent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What has changed, for whoever wants to hear of it.

    Attributes:
        list: Which list; None if it is a resource.
        uri: Which resource; empty if it is a list.
    """

    list: ListName | None
    uri: str = ""


class OutboundNotification(msgspec.Struct, frozen=True, gc=False):
    """A notification on its way to the actor that owns its scope.

    Attributes:
        kind: What it is.
        receipt: Its place in the books.
        data: The encoded JSON-RPC notification; for a change, without the stamp of a subscription.
        key: What it collapses with, or None.
        level: The level of a log line.
        uri: The resource that was updated.
    """

    kind: MessageKind
    receipt: Receipt
    data: bytes
    key: Hashable = None
    level: LogLevel | None = None
    uri: str | None = None


class Progress(msgspec.Struct, frozen=True, gc=False):
    """Progress of a request, in parts: its request knows the token, and whether the revision has the text.

    Attributes:
        kind: What it is.
        receipt: Its place in the books.
        key: What it collapses with.
        progress: How far it is.
        total: How far it goes, if that is known.
        data: Both, and what is being done, as the members of a JSON object and its closing brace.
    """

    kind: ClassVar[MessageKind] = MessageKind.PROGRESS
    key: ClassVar[str] = PROGRESS

    receipt: Receipt
    progress: float
    total: float | None
    data: bytes

    @property
    def mute_data(self) -> bytes:
        """The same without what is being done."""
        return encode_value(_Report(self.progress, self.total))[1:]


class UnencodableNotification(msgspec.Struct, frozen=True):
    """What was said, and of which no message could be made: that is a defect of the bus.

    Attributes:
        said: What was said.
        error: What was raised.
    """

    said: OutboundNotification | Progress
    error: BaseException


class _Report(msgspec.Struct, gc=False, omit_defaults=True):
    progress: float
    total: float | None = None
    message: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


def log(  # noqa: PLR0917 - the protocol's own fields are many
    ledger: Ledger,
    kind: MessageKind,
    level: str,
    data: Any,
    logger: str | None,
    meta: Mapping[str, Any] | None = None,
) -> OutboundNotification:
    """Make a log line.

    Raises:
        ValueError: `level` is not one of the eight syslog levels.
        TypeError: `data` is not JSON.
    """
    severity, opening = _LINES.get(level) or _LINES[LogLevel(level).value]
    try:
        encoded = opening + single_line(encode_value(data))
    except TypeError as error:
        raise with_place(error, data, encode_value, "data") from None
    if logger is not None:
        encoded += b',"logger":' + encode_value(logger)
    if meta is not None:
        encoded += b',"_meta":' + single_line(encode_value(meta))
    return OutboundNotification(kind, ledger.receipt(MESSAGE, ledger), encoded + b"}}", None, severity)


def custom(ledger: Ledger, kind: MessageKind, method: str, params: Params) -> OutboundNotification:
    """Make a notification that the protocol's core does not define.

    Raises:
        ValueError: The core defines `method`, and it has rules of its own.
        TypeError: `method` is no text; `params` is not JSON, or raw and not the JSON text of an object.
    """
    check_text("a notification", method=method)
    rest = method.removeprefix("notifications/")
    if rest == method or not rest:
        raise ValueError(f"{method!r} is not a notification: its name must begin with 'notifications/'")
    if method in _CORE:
        raise ValueError(f"{method!r} is the protocol's own; {_CORE[method]}")
    if isinstance(params, msgspec.Raw):
        _check_object(params)
    elif params is not None and not isinstance(params, dict):
        raise TypeError(f"params is a dict, or the text of a JSON object as msgspec.Raw, not {params!r}")
    encoded = encode_notification(method, params)
    return OutboundNotification(kind, ledger.receipt(method, ledger), encoded)


def resource_updated(ledger: Ledger, uri: str) -> OutboundNotification:
    """Make the news, for one session, that the contents of a resource have changed."""
    check_text("session.resource_updated()", uri=uri)
    data, key = encode_notification(RESOURCE_UPDATED, {"uri": uri}), (RESOURCE_UPDATED, uri)
    return OutboundNotification(
        MessageKind.RESOURCE_UPDATED, ledger.receipt(RESOURCE_UPDATED, ledger), data, key, None, uri
    )


def relayed(
    ledger: Ledger, method: str, params: Mapping[str, Any], *, in_request: bool = True
) -> OutboundNotification | Progress:
    """Make a notification of another server again, with the ``_meta`` that it has.

    Args:
        ledger: The ledger of the bus.
        method: The method.
        params: The parameters.
        in_request: Whether it belongs to a request, or to a session outside of any.

    Raises:
        KeyError: A parameter is missing that the method needs.
        ValueError: A parameter cannot be right, or the core of the protocol has rules of its own for `method`.
        TypeError: `params` is not JSON, or `method` is no text.
    """
    meta = params.get("_meta")
    if method == PROGRESS:
        return progress(ledger, params["progress"], params.get("total"), params.get("message"), meta)
    if method == MESSAGE:
        kind = MessageKind.LOG if in_request else MessageKind.SESSION_LOG
        return log(ledger, kind, params["level"], params.get("data"), params.get("logger"), meta)
    kind = MessageKind.CUSTOM if in_request else MessageKind.SESSION_CUSTOM
    return custom(ledger, kind, method, dict(params) or None)


def _check_object(raw: msgspec.Raw) -> None:
    try:
        str(memoryview(raw), "utf-8")
        _OBJECT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise TypeError(f"params is not the JSON text of an object: {fault}") from None


def elicitation_complete(ledger: Ledger, elicitation_id: str) -> OutboundNotification:
    """Make the news that what an elicitation by URL was for has been done."""
    encoded = encode_notification(ELICITATION_COMPLETE, {"elicitationId": elicitation_id})
    return OutboundNotification(
        MessageKind.SESSION_CUSTOM, ledger.receipt(ELICITATION_COMPLETE, ledger), encoded
    )


def progress(
    ledger: Ledger,
    value: float,
    total: float | None,
    message: str | None,
    meta: Mapping[str, Any] | None = None,
) -> Progress:
    """Make a report of progress.

    Raises:
        ValueError: `value` or `total` is not finite, which JSON cannot say.
        TypeError: One of them is no number, or `message` no text.
    """
    try:
        if not isfinite(value):
            raise _not_finite("progress", value)
        if total is not None and not isfinite(total):
            raise _not_finite("total", total)
    except TypeError:
        raise TypeError(f"progress and total are numbers, not {value!r} and {total!r}") from None
    except OverflowError:
        raise ValueError("progress and total are numbers of at most 308 digits") from None
    if message is not None and not isinstance(message, str):
        raise TypeError(f"message is no text: {message!r}")
    members = encode_value(_Report(value, total, message, None if meta is None else dict(meta)))[1:]
    return Progress(ledger.receipt(PROGRESS, ledger), value, total, members)


def _not_finite(name: str, number: float) -> ValueError:
    return ValueError(f"{name} is {number}: it must be a finite number")


_LINES = {
    level.value: (
        level,
        b'{"jsonrpc":"2.0","method":"%b","params":{"level":"%b","data":'
        % (MESSAGE.encode(), level.value.encode()),
    )
    for level in LogLevel
}

_CORE = {
    MESSAGE: "use log()",
    PROGRESS: "use progress()",
    RESOURCE_UPDATED: "use bus.resource_updated()",
    **{method: f"use bus.{kind}_changed()" for kind, method in LIST_CHANGED.items()},
    ELICITATION_COMPLETE: "use session.elicitation_complete()",
    TASK_STATUS: "the bus sends it",
    "notifications/cancelled": "a server may not cancel its client's requests",
    "notifications/initialized": "only clients send it",
    "notifications/roots/list_changed": "only clients send it",
    "notifications/subscriptions/acknowledged": "the bus sends it",
}
