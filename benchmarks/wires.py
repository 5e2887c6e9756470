"""The short call over whichever wire a server is spoken to over."""

from benchmarks.answers import check_echo, check_fixed
from benchmarks.dialect import Dialect
from benchmarks.load import Conversation, repeat
from benchmarks.load_http2 import repeat_http2
from benchmarks.load_http_sse import repeat_http_sse
from benchmarks.load_lines import repeat_lines
from benchmarks.load_websocket import repeat_websocket
from benchmarks.peers.peer import Wire
from benchmarks.process import Target

_REPEAT = {
    Wire.HTTP2: repeat_http2,
    Wire.WEBSOCKET: repeat_websocket,
    Wire.HTTP_SSE: repeat_http_sse,
    Wire.STDIO: repeat_lines,
}


def repeat_short_call(target: Target, at_once: int) -> list[Conversation]:
    """Return what repeats the short call, so many at once: on a connection each, and over stdio on the one that there is.

    Raises:
        WrongAnswer: There is no connection, or no session.
    """
    if target.wire in {Wire.HTTP1, Wire.TLS}:
        tls = "http/1.1" if target.wire is Wire.TLS else None
        return repeat(target, at_once, Dialect.echo, check_fixed if target.fixed else check_echo, tls=tls)
    return _REPEAT[target.wire](target, at_once)
