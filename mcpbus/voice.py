"""What a request says while it runs: which of it its client wants, and what that looks like on the wire."""

from mcpbus.emission import Emission, Progress
from mcpbus.outbox import Outgoing
from mcpbus.protocol.jsonrpc import RequestId, encode_id
from mcpbus.protocol.levels import LogLevel
from mcpbus.protocol.revisions import Revision
from mcpbus.protocol.routes import Reason, Setting, route

_PROGRESS_OPENING = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%b,'


class LogThreshold:
    """From which level a client wants log lines: None for none at all."""

    __slots__ = ("level",)

    def __init__(self, level: LogLevel | None) -> None:
        self.level = level


class Voice:
    """Makes messages for the stream of one request out of what its handler says.

    Args:
        request_id: The request.
        revision: The revision that it is served under.
        setting: How its client is connected.
        progress_token: The client's token, or None if it wants no progress.
        log_level: From which level it wants log lines. Asked at each line, since a legacy client may change it meanwhile.
    """

    __slots__ = (
        "_log_level",
        "_progress",
        "_progress_opening",
        "_progress_token",
        "_request_id",
        "_revision",
        "_setting",
    )

    def __init__(
        self,
        request_id: RequestId,
        revision: Revision,
        setting: Setting,
        progress_token: RequestId | None,
        log_level: LogThreshold,
    ) -> None:
        self._request_id = request_id
        self._revision = revision
        self._setting = setting
        self._progress_token = progress_token
        self._log_level = log_level
        self._progress = float("-inf")
        self._progress_opening: bytes | None = None

    def word(self, said: Emission | Progress) -> Outgoing | None:
        """Return the message for what was said; None if it was discarded, since it has no way, or its client does not want it."""
        kind, era = said.kind, self._revision.era
        way = route(kind, era, self._setting)
        if isinstance(said, Emission):
            data, least = said.data, self._log_level.level
            if said.level is not None and (least is None or said.level < least):
                way = Reason.FILTERED
        elif self._progress_token is None:
            data, way = b"", Reason.NO_TOKEN
        elif said.progress <= self._progress:
            data, way = b"", Reason.NOT_INCREASING
        else:
            data = self._word_progress(said, self._progress_token)
        if isinstance(way, Reason):
            said.receipt.discard(way)
            return None
        return Outgoing(kind, era, data, said.receipt, said.key, self._request_id)

    def _word_progress(self, said: Progress, token: RequestId) -> bytes:
        self._progress = said.progress
        if self._progress_opening is None:
            self._progress_opening = _PROGRESS_OPENING % encode_id(token)
        text = said.message if self._revision.progress_message else b""
        return b"%b%b%b}}" % (self._progress_opening, said.numbers, text)
