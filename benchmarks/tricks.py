"""The speed tricks: second, faster ways for things, each of which can be taken out.

`python -m benchmarks ablation` measures the gain of each one, and `pytest --without=NAME` runs tests without it. A trick changes no outcome.
A trick that gains less than a tenth of the mixture or of its own call is to be deleted.
"""

from collections.abc import Callable
from typing import Any, Final

import attrs
import trio
from mcpbus_actors import EagerTask, LazyActor, Leader

from mcpbus.core.from_thread import FromThread
from mcpbus.core.writer import Writer
from mcpbus.dispatch.backend import FeaturesBackend
from mcpbus.protocol.recurring_cache import RecurringCache
from mcpbus.serving import reactor
from mcpbus.serving.http1 import head_cache
from mcpbus.serving.http1.head_cache import HeadTemplates
from mcpbus.serving.http1.parser import Http1Parser
from mcpbus.serving.http2 import head_cache as http2_heads
from mcpbus.serving.reactor import Reactor
from mcpbus.transports.request_handler import _Answering


@attrs.frozen
class Trick:
    """One trick.

    Attributes:
        name: The word after `--without=`.
        what: What the trick does, in a line of the report.
        take_out: Replaces it by the plain way, for the whole process.
        call: The part of `benchmarks.scenarios.parts` that gains most; empty for the uniform call.
        kept: Whether it stays whatever it gains, because other code rests on it.
    """

    name: str
    what: str
    take_out: Callable[[], None]
    call: str = ""
    kept: bool = False


def _take_out_dormancy() -> None:
    def tell(actor: Any, message: object) -> None:
        return actor.address.tell(message)

    _replace(LazyActor, "tell", tell)
    _replace(LazyActor, "take", lambda *_: False)


def _take_out_eagerness() -> None:
    start = EagerTask.start

    async def later(coroutine: Any) -> Any:
        try:
            await trio.lowlevel.checkpoint()
        except BaseException:
            coroutine.close()
            raise
        return await coroutine

    def start_later(eager: Any) -> bool:
        eager.coroutine = later(eager.coroutine)
        return start(eager)

    _replace(EagerTask, "start", start_later)
    _replace(FeaturesBackend, "may_wait", lambda *_: True)


def _take_out_leadership() -> None:
    async def take_once(leader: Any) -> None:
        if not await leader._wait():
            return
        with trio.CancelScope() as scope:
            eager = leader._take(scope)
            leader._nursery.start_soon(take_once, leader)
            if eager is not None:
                await eager.finish()

    _replace(Leader, "_lead", take_once)


def _take_out_posting() -> None:
    def wait(there: Any, function: Callable[[], object]) -> None:
        there.run(function)

    _replace(FromThread, "post", wait)


def _take_out_bursts() -> None:
    _replace(_Answering, "collects_notifications", property(lambda _: False))


def _take_out_waiting() -> None:
    _replace(_Answering, "wait", lambda *_: False)


def _take_out_heads() -> None:
    _replace(RecurringCache, "keep", lambda *_: None)
    _replace(head_cache.Http1HeadCache, "_read_like_others", lambda *_: None)
    _replace(http2_heads.Http2HeadCache, "_read_like_others", lambda *_: None)
    _replace(http2_heads, "_LONGEST_BLOCK", -1)


def _take_out_templates() -> None:
    _replace(HeadTemplates, "cut", lambda *_: None)
    _replace(HeadTemplates, "learn", lambda *_: None)


def _take_out_whole() -> None:
    _replace(Http1Parser, "take_whole", lambda *_: None)


def _take_out_gathering() -> None:
    def write_soon(reactor: Any, writer: object) -> None:
        reactor._writers.append(writer)
        reactor._write()

    _replace(Reactor, "write_soon", write_soon)


def _take_out_direct() -> None:
    _replace(Writer, "direct", property(lambda _: None, lambda *_: None))


def _take_out_epoll() -> None:
    _replace(reactor, "AVAILABLE", False)


def _replace(owner: Any, name: str, value: object) -> None:
    """Replace an attribute for good: the process has no use for the trick any more."""
    getattr(owner, name)  # a trick that has gone, or has another name, is not taken out silently
    setattr(owner, name, value)


TRICKS: Final = {
    trick.name: trick
    for trick in (
        Trick(
            "dormancy", "actors that exist only once they are told something", _take_out_dormancy, kept=True
        ),
        Trick(
            "eagerness",
            "first steps of handlers without a turn of the scheduler",
            _take_out_eagerness,
            kept=True,
        ),
        Trick(
            "leadership", "one task that takes turns until a handler waits", _take_out_leadership, kept=True
        ),
        Trick(
            "posting",
            "threads that do not wait until a notification has arrived",
            _take_out_posting,
            "notifications-from-thread",
        ),
        Trick(
            "bursts",
            "notifications before the first await in one write with the response",
            _take_out_bursts,
            "notifications",
            kept=True,
        ),
        Trick(
            "waiting",
            "handlers that wait without a stream until they emit something",
            _take_out_waiting,
            "await",
        ),
        Trick(
            "heads",
            "heads of requests that are read once and remembered",
            _take_out_heads,
            "proxy-headers",
            kept=True,
        ),
        Trick(
            "templates",
            "regular expressions that cut heads of known fields",
            _take_out_templates,
            "proxy-headers",
        ),
        Trick("whole", "requests that come in one segment, read without a buffer", _take_out_whole),
        Trick("gathering", "responses of several turns in one go at the end of them", _take_out_gathering),
        Trick(
            "direct",
            "notifications of a quiet stream written in the stack of the handler",
            _take_out_direct,
            "notifications-1ms-apart",
        ),
        Trick("epoll", "one wait for all connections, and not a task for each", _take_out_epoll),
    )
}
"""All tricks, by name."""
