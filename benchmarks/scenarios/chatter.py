"""Calls that say something before they answer."""

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from benchmarks.answers import Answer, WrongAnswer
from benchmarks.dialect import Dialect
from benchmarks.load import Conversation, load, repeat
from benchmarks.peers.peer import Ability, Setting
from benchmarks.process import Target
from benchmarks.scenarios.scenario import CPU, LOADER, P50, P99, Figures, Metric, Served

CONNECTIONS = 32


class Chatter(Served):
    """Each call is answered on a stream that has notifications before the reply."""

    name = "chatter"
    title = "Calls with notifications"
    what = f"`tools/call` on {CONNECTIONS} connections; each call sends so many notifications, one after the other, before its reply."
    size_title = "notifications"
    sizes = {1: 1, 10: 5, 100: 1}
    others = {1: 1, 10: 5, 100: 1}
    quick_sizes = (10,)
    metrics = (Metric("rate", "calls/s", more_is_better=True), P50, P99, CPU, LOADER)
    needs = Ability.CHATTER
    environment = {Setting.STREAMS: "1"}
    grows = "cpu_us"

    def turn(self, target: Target, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Call for a while."""
        for count in sizes:
            conversations = repeat_chatter(target, CONNECTIONS, count)
            load(target, conversations, seconds / 10, least=1)
            yield count, load(target, conversations, seconds).figures()
            for conversation in conversations:
                conversation.close()


def repeat_chatter(target: Target, connections: int, count: int) -> list[Conversation]:
    """Return connections that each repeat a call which sends notifications."""
    call = partial(Dialect.call, tool="chatter", count=count)
    return repeat(target, connections, call, partial(check_chatter, count))


def check_chatter(count: int, answer: Answer, number: int) -> None:
    """Judge an answer to the call with a number: every notification is there, and then the reply.

    Raises:
        WrongAnswer: Something is not.
    """
    body = bytes(answer.body)
    if answer.status != 200 or not answer.is_stream:
        raise WrongAnswer(f"no stream of events: status {answer.status}, {body[:200]!r}")
    if (said := body.count(b"clock=")) != count:
        raise WrongAnswer(f"{said} of {count} notifications arrived")
    try:
        reply = msgspec.json.decode(body.rpartition(b"data:")[2].strip())
    except msgspec.DecodeError as error:
        raise WrongAnswer(f"the last event is no reply: {body[-200:]!r}") from error
    if reply.get("id") != number or "result" not in reply or reply["result"].get("isError"):
        raise WrongAnswer(f"the call failed: {body[-200:]!r}")
