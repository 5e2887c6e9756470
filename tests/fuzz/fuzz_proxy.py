"""A proxy between clients and a server that does whatever it likes: calls end, nothing of one client's comes to another, nothing is left."""

from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import attrs
import trio
from hypothesis import strategies as st

from mcpbus import Bus, ProtocolError
from mcpbus.client.errors import ClientError
from tests.fuzz.fuzz_target import Drawn
from tests.fuzz.fuzz_virtual import assert_balanced, assert_empty, play

from scripted import CAPABILITIES, Scripted, Wire  # isort: skip - `fuzz_target` knows where it is

OLD, NEW = "2025-11-25", "2026-07-28"
LONG: Final = 100_000
"""Seconds after which all is over."""
ACTS: Final = ("progress", "log", "custom", "ask", "wait", "wait", "wait", "change", "update", "odd", "lose")
"""What the other server does in a call, one after the other, before its end."""
ENDS: Final = ("reply", "reply", "reply twice", "refuse", "be no result", "say nothing")
EVENTS: Final = ("cancel", "leave", "lose", "go down", "come up", "change era", "change", "listen", "wait")
ODD: Final[list[tuple[str, dict[str, Any]]]] = [
    ("notifications/cancelled", {"requestId": 7}),
    ("notifications/resources/updated", {"uri": None}),
    ("notifications/message", {"level": "loud"}),
    ("notifications/tasks", {}),
    ("acme", {}),
]


@attrs.frozen
class Who:
    """A client: its revision, whether it has a name, can be asked, and wants log lines."""

    revision: str
    named: bool
    askable: bool
    level: str | None


@attrs.frozen
class Case:
    """How things are, and what happens second by second: a call of a client's, or an event that concerns that client.

    After so many seconds all is cancelled. A call has what the other server does in it, how it ends, and how many seconds the client waits for that.
    """

    there: str
    scoped: bool
    program: bool
    negotiates: bool
    connections: int
    seconds: float
    clients: list[Who]
    steps: list[tuple[int, tuple[list[str], str, float] | str]]


_who = st.builds(
    Who, st.sampled_from([OLD, NEW]), st.booleans(), st.booleans(), st.sampled_from([None, "debug"])
)
_call = st.tuples(
    st.lists(st.sampled_from(ACTS), min_size=1, max_size=5), st.sampled_from(ENDS), st.sampled_from([0.5, 90])
)
CASES = st.builds(
    Case,
    st.sampled_from([OLD, NEW]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from([LONG, LONG, LONG, 2.5, 7]),
    st.lists(_who, min_size=3, max_size=3) | _who.map(lambda who: [who] * 3),
    st.lists(st.tuples(st.integers(0, 2), _call | _call | st.sampled_from(EVENTS)), min_size=5, max_size=30),
)


class Play:
    """One case as it is played. All that is said, asked, answered and returned has the name of the client whose call it is of."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.scripted = Scripted(
            case.there, scoped=case.scoped, capabilities=CAPABILITIES, tools_call=self.answer
        )
        self.calls: dict[int, list[trio.CancelScope]] = {n: [] for n in range(len(case.clients))}

    # -- the other server ------------------------------------------------------------------------

    def answer(self, wire: Wire, request: int, params: dict[str, Any]) -> None:
        """Do what the arguments say, in a task of its own: it goes on where the call was cancelled."""
        wire.soon(self.act, wire, request, params)

    async def act(self, wire: Wire, request: int, params: dict[str, Any]) -> None:
        given, token = params["arguments"], params["_meta"]["progressToken"]
        who = given["who"]
        for number, act in enumerate(given["acts"]):
            if act == "wait":
                await trio.sleep(2)
            elif act == "lose":
                wire.client.disconnected("it was cut")
            elif act == "ask" and wire.client.revision.name == OLD:
                with trio.move_on_after(20):
                    check_answer(who, await wire.ask(f"{request} {number}", within=request, message=who))
            elif act == "ask" and "inputResponses" not in params:
                question = {"method": "elicitation/create", "params": {"message": who}}
                asked = {
                    "resultType": "input_required",
                    "inputRequests": {"q": question},
                    "requestState": who,
                }
                wire.reply(request, asked)
                return
            for method, said in saying(act, who, {"progressToken": token, "progress": number + 1}):
                wire.say(method, said, within=request)
        if "inputResponses" in params:
            check_answer(who, {"result": params["inputResponses"]["q"]})
            assert params["requestState"] == who
        self.end(wire, request, given["end"], who)

    def end(self, wire: Wire, request: int, end: str, who: str) -> None:
        if end == "refuse":
            wire.refuse(request, -32000, who)
        elif end == "be no result":
            wire.reply(request, {"content": who})
        elif end != "say nothing":
            for _ in end.split():
                wire.reply(request, {"content": [{"type": "text", "text": who}]})

    # -- the clients -----------------------------------------------------------------------------

    async def main(self) -> None:
        """Play it."""
        case = self.case
        proxy = self.scripted.proxy(
            program=case.program, negotiates=case.negotiates, connections=case.connections, optional=True
        )
        with trio.move_on_after(case.seconds):
            async with proxy.open(drain_timeout=1) as bus:
                async with trio.open_nursery() as nursery:
                    for number in range(len(case.clients)):
                        nursery.start_soon(self.be_client, bus, number)
                await trio.sleep(3_600)
                assert_balanced(bus)
                assert_empty(bus)
        assert trio.current_time() < LONG, "something did not come to its end"
        assert self.scripted.connected == 0, "a connection is left"
        assert self.scripted.unread == [], "what it said was not understood"

    async def be_client(self, bus: Bus[Any], number: int) -> None:
        """Do, in order, what concerns one client, and leave: each has a second for a step, so that all do theirs in turn."""
        steps = [(at, step) for at, (who, step) in enumerate(self.case.steps) if who == number]
        await trio.sleep(number / 100)
        at = 0
        while steps:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(self.connect(bus, number))
                nursery = await stack.enter_async_context(trio.open_nursery())
                left = False
                while steps and not left:
                    then, step = steps.pop(0)
                    await trio.sleep(then - at)
                    at = then
                    assert_balanced(bus)
                    if isinstance(step, tuple):
                        nursery.start_soon(self.call, client, number, *step)
                    elif step == "leave":
                        left = True
                    else:
                        await self.happen(client, nursery, number, step)
                await trio.sleep(0 if left else 100)
                nursery.cancel_scope.cancel()

    def connect(self, bus: Bus[Any], number: int) -> Any:
        who, name = self.case.clients[number], str(number)

        async def answer(_method: str, params: dict[str, Any]) -> dict[str, Any]:
            assert params["message"] == name, f"{name} is asked {params}"
            return {"action": "accept", "by": name}

        given = {"capabilities": {"elicitation": {}}, "on_input_request": answer} if who.askable else {}
        return bus.connect(revision=who.revision, principal=name if who.named else None, **given)

    async def call(self, client: Any, number: int, acts: list[str], end: str, patience: float) -> None:
        """Call, and see that whatever comes is one's own."""
        name = str(number)

        def hear(method: str, params: dict[str, Any]) -> None:
            said = params.get("data", params.get("message", name))
            assert said == name, f"{name} hears {method} {params}"

        with trio.move_on_after(patience) as scope:
            self.calls[number].append(scope)
            with suppress(ProtocolError, ClientError):
                result = await client.call_tool(
                    "t",
                    {"who": name, "acts": acts, "end": end},
                    on_notification=hear,
                    log_level=self.case.clients[number].level,
                )
                assert result["content"] == [{"type": "text", "text": name}], f"{name} gets {result}"
            for method, params in client.notifications:
                hear(method, params)

    async def happen(self, client: Any, nursery: trio.Nursery, number: int, event: str) -> None:
        scripted = self.scripted
        match event:
            case "cancel" if self.calls[number]:
                self.calls[number].pop(0).cancel()
            case "lose" if scripted.wires:
                scripted.wires[-1].client.disconnected("it was cut")
            case "go down":
                scripted.down = "it is being mended"
            case "come up":
                scripted.down = None
            case "change era":
                scripted.revision = NEW if scripted.revision == OLD else OLD
            case "change" if scripted.wires:
                scripted.wires[-1].say("notifications/tools/list_changed")
            case "listen":
                nursery.start_soon(self.listen, client)

    async def listen(self, client: Any) -> None:
        with suppress(ProtocolError, ClientError), trio.move_on_after(10):
            async with client.listen(tools=True, uris=["d://a"]):
                await trio.sleep_forever()


def saying(act: str, who: str, progress: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The notifications that an act is, if it is one."""
    return {
        "progress": [("notifications/progress", {**progress, "message": who})],
        "log": [("notifications/message", {"level": "info", "data": who})],
        "custom": [("notifications/acme", {"data": who})],
        "change": [("notifications/tools/list_changed", {})],
        "update": [("notifications/resources/updated", {"uri": "d://a"})],
        "odd": ODD,
    }.get(act, [])


def check_answer(who: str, answer: dict[str, Any]) -> None:
    """An answer is that of the client that is asked; it may have refused, or be gone."""
    assert answer.get("result", {"by": who})["by"] == who, f"{answer} of {who}"


def check(case: Case) -> None:
    """Play a case."""
    play(Play(case).main)


PROXY = Drawn("proxy", CASES, check, 100)
