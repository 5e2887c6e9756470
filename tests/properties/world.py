"""A bus at work under random clients of both eras and all transports, in virtual time, and the notebook of it.

A program is a list of steps: clients connect, call, answer, cancel, stall, go away and come back; the server speaks
and changes its lists. Whatever the server says carries a number of its own, so that each message can be found again
on whichever streams it appeared. What is written down comes from outside the bus, and is compared with its books.
"""

import itertools
import logging
import random
import re
import traceback
from typing import Any
from unittest import mock

import trio
import trio.testing
from ears import Ear, HttpEar, Overheard
from event_store_double import WitnessStore
from handlers import FAILURES, make_server
from happenings import Program
from invariants import judge, validate_now
from notebook import CEILING, LIFETIME, PATIENCE, Asked, Call, Heard, Listen, Round, Said, Sent, TaskNote
from request_steps import RequestSteps
from server_steps import ServerSteps
from stream_steps import StreamSteps

from mcpbus import Limits
from mcpbus.core.receipt import Fate, Ledger, Receipt
from mcpbus.protocol.errors import ProtocolError
from mcpbus.testing import open_bus, open_probe, wait_until_idle
from mcpbus.transports import in_process

LIMITS = Limits(
    outbox_items=4,
    outbox_bytes=2_000,
    held_items=3,
    held_timeout=50,
    max_sessions=12,
    input_timeout=CEILING,
    max_suspended_calls=2,
    suspended_timeout=PATIENCE,
    max_running_tasks=4,
    max_tasks=6,
    task_ttl=LIFETIME,
    keep_alive=45,
)
_EPOCH = 1_800_000_000.0
_SCRIPTS_SECONDS = 2000
_LONG = 100_000.0
_MODES = {
    "auto": {},
    "sse": {"response": "sse"},
    "json": {"response": "json"},
    "stateless": {"sessions": "stateless"},
    "stateless json": {"sessions": "stateless", "response": "json"},
}


class World(RequestSteps, StreamSteps, ServerSteps):
    """One bus, its clients, and what was written down of them.

    Attributes:
        limits: What clients may use; narrow, so that bounds are reached.
        faults: What was found to be wrong, each with the invariant that it breaks.
        steps: How many steps were taken.
    """

    limits = LIMITS

    def __init__(self, program: Program) -> None:
        self.program = program
        self.faults: list[str] = []
        self.steps = 0
        self.callers: list[Any] = []
        self.ears: list[Any] = []
        self.sents: list[Sent] = []
        self.calls: list[Call] = []
        self.said: dict[Any, Said] = {}
        self.asked: dict[int, Asked] = {}
        self.heard: list[Heard] = []
        self.rounds: list[Round] = []
        self.tasks: dict[str, TaskNote] = {}
        self.listens: list[Listen] = []
        self.receipts: list[Any] = []
        self.streams: list[Any] = []
        self.numbers = itertools.count(1)
        self.ticks = 0
        self.extra = False
        self.drained = False
        self.store = None if program.store == "none" else WitnessStore(program.store)
        self._by_recording: dict[int, Any] = {}

    @property
    def clean(self) -> bool:
        return not self.faults

    def fault(self, invariant: str, text: str) -> None:
        self.faults.append(f"invariant {invariant}: {text}")

    def run(self) -> "World":
        """Run the program; the same one runs the same each time."""
        random.seed(self.program.seed)
        trio._core._run._r.seed(self.program.seed)
        watch = _Watch(self)
        logger = logging.getLogger("mcpbus")
        logger.addHandler(watch)
        logger.propagate = False
        try:
            with (
                mock.patch.object(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
                mock.patch.object(in_process, "Client", Overheard),
                mock.patch.object(Ledger, "emit", self._noting(Ledger.emit)),
                mock.patch.object(Ledger, "receipt", staticmethod(self._noting(Receipt))),
                mock.patch.object(Ledger, "draft_reply", self._noting(Ledger.draft_reply)),
                mock.patch.object(Ledger, "emit_settled", _record),
            ):
                trio.run(self._main, clock=trio.testing.MockClock(autojump_threshold=0))
        except Exception as error:  # noqa: BLE001 - a crash and a standstill are faults like others
            self.fault("0", "".join(traceback.format_exception(error))[-1500:])
        finally:
            logger.removeHandler(watch)
            logger.propagate = True
        return self

    async def _main(self) -> None:
        begun = trio.current_time()

        def clock() -> float:
            return _EPOCH + trio.current_time() - begun

        with mock.patch("time.time", clock):
            self.server = make_server(self)
            self.server.sealer.now = clock
            async with open_bus(self.server, limits=self.limits, event_store=self.store) as bus:
                self.bus = bus
                self._watch_streams()
                with trio.fail_after(_LONG):
                    await self._attach()
            self.check()
        judge(self)

    async def _attach(self) -> None:
        """Attach all transports, and let the program happen."""
        self.apps = {
            mode: self.bus.asgi(sse_path="/sse", **options)  # type: ignore[arg-type]
            for mode, options in _MODES.items()
        }
        self.probes: dict[str, Any] = {}
        async with (
            trio.open_nursery() as nursery,
            open_probe(self.apps["auto"]) as self.probes["auto"],
            open_probe(self.apps["sse"]) as self.probes["sse"],
            open_probe(self.apps["json"]) as self.probes["json"],
            open_probe(self.apps["stateless"]) as self.probes["stateless"],
            open_probe(self.apps["stateless json"]) as self.probes["stateless json"],
        ):
            self.nursery = nursery
            self._note_exchanges()
            await self.happen()
            await self._end()
            nursery.cancel_scope.cancel()

    async def happen(self) -> None:
        """Take the steps of the program."""
        for verb, arguments in self.program.steps:
            await getattr(self, verb + "_")(*arguments)
            self.look_on()

    def look_on(self) -> None:
        """Write down and judge what a step has brought."""
        self.steps += 1
        self.listen_in()
        self.check()

    async def _end(self) -> None:
        """The server goes, or everybody leaves; time passes; nothing may be left."""
        for ear in self.ears:
            ear.resume()
        if self.program.drains:
            self.drained = True
            await self.bus.drain(5)
        else:
            await trio.sleep(_SCRIPTS_SECONDS)
            await self.come_back_everywhere()
        await self.settle()
        self.listen_in()
        self.check()
        validate_now(self)
        for caller in self.callers:
            caller.gone = True
            if caller.ear is not None and not caller.ear.over:
                caller.ear.leave()
        for probe in self.probes.values():
            probe.disconnect()
        await trio.sleep(4000)
        await self.settle()
        now = self.bus.statistics()
        left = (now.sessions, now.requests, now.actors, now.pending, len(self.bus.topics))
        if left != (0, 0, 0, {}, 0) or len(self.bus.tasks) or len(self.bus.parked_calls):
            self.fault("0", f"something is left: {now}, {len(self.bus.topics)} topics")

    # -- looking on ------------------------------------------------------------------------------

    def _noting(self, make: Any) -> Any:
        """Keep each receipt that the bus makes."""

        def noting(*what: Any) -> Any:
            self.receipts.append(make(*what))
            return self.receipts[-1]

        return noting

    def _watch_streams(self) -> None:
        """Keep each stream that the bus opens."""
        opened = self.bus.open_stream

        def open_stream(*arguments: Any, **named: Any) -> Any:
            self.streams.append(opened(*arguments, **named))
            return self.streams[-1]

        self.bus.open_stream = open_stream

    def _note_exchanges(self) -> None:
        for probe in self.probes.values():
            send = probe.send

            def noting(*arguments: Any, send: Any = send, **named: Any) -> Any:
                recording = send(*arguments, **named)
                self.adopt(HttpEar(recording))
                return recording

            probe.send = noting

    def adopt(self, ear: Any) -> None:
        """Have an ear for an exchange, in the place of the one that it had."""
        former = self._by_recording.get(id(ear.recording))
        if former is not None:
            self.ears.remove(former)
        self._by_recording[id(ear.recording)] = ear
        self.ears.append(ear)

    def ear_of(self, recording: Any) -> HttpEar:
        return self._by_recording[id(recording)]

    async def settle(self) -> None:
        await wait_until_idle(self.bus)

    def pick(self, things: Any, index: int) -> Any:
        things = list(things)
        return things[index % len(things)] if things else None

    def present(self, index: int, *kinds: str) -> Any:
        return self.pick([c for c in self.callers if not c.gone and (not kinds or c.kind in kinds)], index)

    def family(self, ear: Ear) -> list[Any]:
        """All ears of one stream."""
        return [other for other in self.ears if other.root is ear.root]

    # -- the notebook ----------------------------------------------------------------------------

    def tick(self) -> int:
        self.ticks += 1
        return self.ticks

    def say(self, what: Any, *, sent: Sent | None = None, client: Any = None) -> Said:
        """Note that something is said; the first time, if it is said again."""
        said = Said(what, self.tick(), sent, client)
        self.said.setdefault(what, said)
        return said

    def carried(self, sent: Sent) -> None:
        """Note that a request carries a call from now on."""
        call = sent.call
        assert call is not None
        call.sents.append(sent)
        for asked in self.asked.values():
            if asked.call is call and asked.ended is None:
                asked.bound = trio.current_time() + PATIENCE

    @staticmethod
    def number_in(params: dict[str, Any]) -> int:
        """The number of the question that these are the parameters of."""
        text = params["message"] if "message" in params else params["messages"][0]["content"]["text"]
        return int(re.fullmatch(r"ask (\d+)", text)[1])  # type: ignore[index]

    def listen_in(self) -> None:
        """Look what clients heard since the last time."""
        for ear in self.ears:
            messages = ear.messages
            for index in range(ear.scanned, len(messages)):
                self._hear(ear, index, messages[index])
            ear.scanned = len(messages)

    def _hear(self, ear: Any, index: int, message: dict[str, Any]) -> None:
        if "method" not in message:
            sent = ear.root.sents.get((type(message.get("id")), message.get("id")))
            if sent is not None and sent.reply is None:
                sent.reply = message
                self._take_result(sent, message.get("result", {}))
        elif "id" in message and ear.client.kind != "memory":
            self.heard.append(
                Heard(ear, message["id"], self.number_in(message["params"]), message["params"], index)
            )
        elif message["method"] == "notifications/tasks" and message["params"]["taskId"] in self.tasks:
            self.tasks[message["params"]["taskId"]].requests = message["params"].get("inputRequests", {})

    def _take_result(self, sent: Sent, result: dict[str, Any]) -> None:
        kind, call = result.get("resultType"), sent.call
        if kind == "task" and call is not None:
            call.task = self.tasks[result["taskId"]] = TaskNote(result["taskId"], call, sent.client)
        elif kind == "input_required" and call is not None and sent.client.kind != "memory":
            self.rounds.append(Round(sent, result["requestState"], result.get("inputRequests", {})))
        elif "taskId" in result and result["taskId"] in self.tasks:
            self.tasks[result["taskId"]].requests = result.get("inputRequests", {})

    def check(self) -> None:
        for caller in self.callers:
            caller.look()
        validate_now(self, brief=True)


def _record(ledger: Ledger, fate: Fate, _context: object = None) -> None:
    """Enter a message that needs no receipt with one, which is kept like the others."""
    ledger.emit("at once").settle(fate)


class _Watch(logging.Handler):
    """Takes what is logged as an error for a fault, unless a handler or the event store raised it on purpose."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, (*FAILURES.values(), OSError, ProtocolError)):
            self._world.fault("0", f"{record.name}: {record.getMessage()}: {error!r}")
