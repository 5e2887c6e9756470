"""Every method in both eras with parameters that are wrong somewhere, over HTTP and over one channel for everything.

No request is answered 500, none twice, none never; the server has nothing to log that is its own fault, and its books balance.
"""

import json
from collections import Counter
from typing import Any

import attrs
import trio
from hypothesis import strategies as st

from mcpbus import Bus
from mcpbus.stores import MemoryEventStore
from mcpbus.testing import AsgiProbe, Recording, open_bus, open_probe, wait_until_idle
from mcpbus.transports.lines import run_channel
from tests.fuzz.fuzz_messages import (
    CAPABILITIES,
    CLAIM,
    HELLO,
    IDS,
    MODERN,
    NOTIFICATIONS,
    REQUESTS,
    changed,
    changes,
    encoded,
)
from tests.fuzz.fuzz_server import LIMITS, LONG, make_server
from tests.fuzz.fuzz_target import Drawn
from tests.fuzz.fuzz_virtual import assert_balanced, assert_empty, play

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
CLIENTS = (*LEGACY, "modern", "modern", "line", "line modern", "batch")
STATUSES = {200, 202, 204, 400, 403, 404, 405, 406, 409, 413, 415, 429, 503}


@attrs.frozen
class Case:
    """What happens.

    Attributes:
        stored: Whether legacy clients can come back to streams.
        shell: Which shell HTTP goes through.
        steps: What clients do, one after the other: a verb and its arguments.
    """

    stored: bool
    shell: Any
    steps: list[tuple[Any, ...]]


_wrong = st.lists(changes, max_size=3)
_clients = st.sampled_from(CLIENTS)
_steps = st.one_of(
    st.tuples(
        st.just("request"),
        _clients,
        st.integers(0, len(REQUESTS) - 1),
        st.sampled_from([1, 2, 3, *IDS]),
        _wrong,
    ),
    st.tuples(
        st.just("request"), _clients, st.integers(0, len(REQUESTS) - 1), st.integers(4, 1000), st.just([])
    ),
    st.tuples(st.just("notify"), _clients, st.integers(0, len(NOTIFICATIONS) - 1), _wrong),
    st.tuples(st.just("answer"), _clients, _wrong),
    st.tuples(st.just("retry"), st.integers(4, 1000), _wrong),
    st.tuples(st.just("drop"), st.integers(0, 20)),
    st.tuples(st.just("get"), st.sampled_from(LEGACY)),
    st.tuples(st.just("wait"), st.sampled_from([0, 0.5, 3, 20, 70])),
    st.tuples(st.just("change")),
)
_cases = st.builds(
    Case, st.booleans(), st.sampled_from(["http1", "asgi"]), st.lists(_steps, min_size=1, max_size=25)
)


def check(case: Case) -> None:
    play(Conversation(case).main)


class Channel:
    """A channel of lines, such as stdio.

    Attributes:
        heard: The messages that came over it.
        named: How often each id was in a message.
        due: How often in a request with which nothing is wrong, and which ends.
    """

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.named: Counter[str] = Counter()
        self.due: Counter[str] = Counter()
        self.cancels = False
        self._into, self._lines = trio.open_memory_channel[bytes](1000)
        self.over = False

    async def run(self, bus: Bus) -> None:
        await run_channel(bus, self._lines, self._hear, "line")
        self.over = True

    async def _hear(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.heard += [json.loads(line) for line in data.splitlines()]

    def say(self, message: dict[str, Any], *, right: bool = True) -> None:
        self._into.send_nowait(encoded(message) + b"\n")
        request_id = message.get("id")
        self.named[_name(request_id)] += 1
        self.cancels = self.cancels or message.get("method") == "notifications/cancelled"
        if right and "method" in message and type(request_id) in {int, str} and not _listens(message):
            self.due[_name(request_id)] += 1

    def leave(self) -> None:
        self._into.close()

    def judge(self) -> None:
        """No request has two answers, and each that is due and was not cancelled has one."""
        answers = Counter(_name(m["id"]) for m in self.heard if "method" not in m and m.get("id") is not None)
        for name, times in answers.items():
            assert times <= self.named[name], f"{name} was answered {times} times: {self.heard}"
        for name, times in self.due.items():
            assert self.cancels or answers[name] >= times, f"{name} was not answered: {self.heard}"


class Conversation:
    """What the clients of one server say to it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.posted: list[tuple[dict[str, Any], Recording]] = []
        self.channel = Channel()

    async def main(self) -> None:
        store = MemoryEventStore() if self.case.stored else None
        async with (
            open_bus(make_server(), limits=LIMITS, event_store=store) as self.bus,
            open_probe(self.bus.asgi(), shell=self.case.shell) as self.probe,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self.channel.run, self.bus)
            await self._open()
            for verb, *arguments in self.case.steps:
                await getattr(self, verb)(*arguments)
                await wait_until_idle(self.bus)
                assert_balanced(self.bus)
            await trio.sleep(200)  # all that a request waits for has come by then, or never will
            self.judge()
            self.probe.disconnect()
            self.channel.leave()
            await trio.sleep(LONG)
            assert self.channel.over
            assert_balanced(self.bus)
            assert_empty(self.bus)

    async def _open(self) -> None:
        self.sessions = {
            name: await self.probe.initialize(name, capabilities=CAPABILITIES) for name in LEGACY
        }
        self.channel.say({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": HELLO})
        await wait_until_idle(self.bus)
        self.channel.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    # -- steps -----------------------------------------------------------------------------------

    async def request(self, client: str, index: int, request_id: Any, wrong: list[Any]) -> None:
        method, params = REQUESTS[index]
        meta = dict(CLAIM) if "modern" in client else {}
        params = {**params, "_meta": {**meta, "progressToken": f"p{request_id}"}}
        await self._say(client, _message(method, params, request_id), wrong)

    async def notify(self, client: str, index: int, wrong: list[Any]) -> None:
        method, params = NOTIFICATIONS[index]
        await self._say(client, {"jsonrpc": "2.0", "method": method, "params": params}, wrong)

    async def answer(self, client: str, wrong: list[Any]) -> None:
        """Answer the last question that anybody was asked."""
        heard = [m for _, recording in self.posted for m in recording.messages] + self.channel.heard
        asked = [m for m in heard if "method" in m and "id" in m]
        result = {"action": "accept", "content": {"value": "x"}}
        message = {"jsonrpc": "2.0", "id": asked[-1]["id"] if asked else 1, "result": result}
        await self._say(client, message, wrong)

    async def retry(self, request_id: int, wrong: list[Any]) -> None:
        """Come back with an answer to the last request that needed one."""
        for sent, recording in reversed(self.posted):
            for reply in recording.messages:
                result = reply.get("result")
                if isinstance(result, dict) and result.get("resultType") == "input_required":
                    answers = {key: {"action": "cancel"} for key in result.get("inputRequests", {})}
                    more = {"requestState": result.get("requestState"), "inputResponses": answers}
                    await self._say(
                        "modern", _message(sent["method"], {**sent["params"], **more}, request_id), wrong
                    )
                    return

    async def drop(self, index: int) -> None:
        if self.posted:
            self.posted[index % len(self.posted)][1].disconnect()

    async def get(self, client: str) -> None:
        self.sessions[client].get()

    async def wait(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def change(self) -> None:
        self.bus.tools_changed()
        self.bus.resource_updated("res://a")

    async def _say(self, client: str, right: dict[str, Any], wrong: list[Any]) -> None:
        message = changed(right, wrong)
        if client.startswith("line"):
            self.channel.say(message, right=not wrong)
            return
        fields = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if client == "modern":
            fields |= {"mcp-protocol-version": MODERN, "mcp-method": right.get("method", "x")}
            name = right.get("params", {}).get("name", right.get("params", {}).get("uri"))
            fields |= {} if name is None else {"mcp-name": name}
        else:
            session = self.sessions["2025-03-26" if client == "batch" else client]
            fields |= session._headers
        body = [message, right] if client == "batch" else message
        self.posted.append((message, _post(self.probe, encoded(body), fields)))

    # -- what must hold --------------------------------------------------------------------------

    def judge(self) -> None:
        for message, recording in self.posted:
            if recording.disconnected or (not recording.over and _listens(message)):
                continue
            assert recording.complete, f"{message} was not answered: {recording!r}"
            assert recording.status in STATUSES, (
                f"{message} was answered {recording.status}: {recording.body!r}"
            )
            answers = Counter(_name(m.get("id")) for m in recording.messages if "method" not in m)
            asked = Counter({_name(message.get("id")): 2, _name(None): 2})
            assert all(times <= asked[name] or times == 1 for name, times in answers.items()), recording.body
        self.channel.judge()


def _message(method: str, params: dict[str, Any], request_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def _post(probe: AsgiProbe, body: bytes, fields: dict[str, str]) -> Recording:
    return probe.send("POST", body, fields)


def _listens(message: dict[str, Any]) -> bool:
    return message.get("method") == "subscriptions/listen"


def _name(request_id: Any) -> str:
    """What an id is counted by: 1 and "1" are different ones."""
    return json.dumps(request_id)


JSONRPC = Drawn("jsonrpc", _cases, check, 150)
