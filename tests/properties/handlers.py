"""The server of a world, and its handlers: each plays the script of its call."""

import contextlib
from typing import Any

import trio
from notebook import CEILING, LIFETIME, PATIENCE, Asked, Call, Said

from mcpbus import Context, ProtocolError, Server
from mcpbus.asking import Elicit
from mcpbus.tasks import TaskSupport

FORM = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
BRIEF_SECONDS = 20
TOOLS = ("act", "again", "brief", "work", "late")


class OwnError(BaseException):
    """An exception that is not one of Exception's."""


FAILURES: dict[str, type[BaseException]] = {
    "error": ZeroDivisionError,
    "exit": SystemExit,
    "own": OwnError,
    "generator's": GeneratorExit,
}
"""What handlers raise; each ends its own call, and is logged."""


def make_server(world: Any) -> Server:
    async def authenticate(head: Any) -> Any:
        return head.headers.get(b"authorization")

    server = Server("world", authenticate=authenticate)

    async def act(number: int, ctx: Context) -> str:
        return await Player(world, world.calls[number], ctx).run()

    server.features.add_tool(act, name="act")
    server.features.add_tool(act, name="again", replay=True)
    server.features.add_tool(act, name="brief", timeout=BRIEF_SECONDS)
    server.features.add_tool(act, name="work", task="optional")
    server.features.add_tool(act, name="late", task=TaskSupport(deferred=True))

    @server.resource("res://a/b")
    async def resource() -> str:
        return "content"

    @server.prompt
    def prompt() -> str:
        return "say"

    return server


class Player:
    """One run of a handler."""

    def __init__(self, world: Any, call: Call, ctx: Context) -> None:
        self.world = world
        self.call = call
        self.ctx = ctx

    async def run(self) -> str:
        call = self.call
        call.outcome, call.began, call.context = "running", trio.current_time(), self.ctx
        call.runs += 1
        try:
            await self.play(call.script)
        except trio.Cancelled:
            call.outcome = "cancelled"
            raise
        except (*FAILURES.values(), ProtocolError):
            call.outcome = "returned"
            raise
        call.outcome = "returned"
        return f"done {call.number}"

    async def play(self, script: list[Any]) -> None:
        for verb, argument in script:
            await getattr(self, verb)(argument)

    # -- what a script is made of ----------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def fail(self, how: str) -> None:
        raise FAILURES[how]

    async def change(self, kind: str) -> None:
        self.world.change(kind)

    async def update(self, uri: str) -> None:
        self.world.bus.resource_updated(uri)

    async def log(self, level: str) -> None:
        said = self._say()
        said.receipt = await self.ctx.log(level, {"n": said.what})

    async def note(self, times: int) -> None:
        for _ in range(times):
            said = self._say()
            said.receipt = await self.ctx.notify("notifications/x", {"n": said.what, "pad": "x" * 300})

    async def progress(self, value: float) -> None:
        sent = self._carrier()
        said = self.world.say(("progress", sent, value), sent=sent)
        said.receipt = await self.ctx.progress(value)

    async def stubborn(self, seconds: float) -> None:
        """Mind no cancellation for a while, and speak after it."""
        self.call.shielded = True
        try:
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)
                await self.log("error")
                await self.progress(100 + seconds)
                await self.note(1)
        finally:
            self.call.shielded = False

    async def leak(self, seconds: float) -> None:
        """Leave something behind that goes on to speak when the handler has returned."""

        async def speak() -> None:
            for step in range(3):
                await trio.sleep(seconds)
                await self.log("error")
                await self.progress(200 + step)

        self.world.nursery.start_soon(speak)

    async def poll(self, retry: float) -> None:
        await self.ctx.close_stream(retry)

    async def begin(self, _: object) -> None:
        await self.ctx.begin_task()

    async def show(self, text: str) -> None:
        await self.ctx.set_task_message(text)

    async def elicit(self, seconds: float | None) -> None:
        asked = self._ask(seconds)
        schema: Any = FORM
        await self._answer(asked, self.ctx.elicit(f"ask {asked.number}", schema, timeout=seconds))

    async def sample(self, seconds: float | None) -> None:
        asked = self._ask(seconds)
        await self._answer(asked, self.ctx.sample(f"ask {asked.number}", timeout=seconds))

    async def both(self, seconds: float | None) -> None:
        one, other = self._ask(seconds), self._ask(seconds)
        questions = {f"q{a.number}": Elicit(f"ask {a.number}", FORM) for a in (one, other)}
        await self._answer(one, self.ctx.ask_all(questions, timeout=seconds), other)

    # -- the notebook ----------------------------------------------------------------------------

    def _carrier(self) -> Any:
        return self.call.carried_by(self.ctx.request_id)

    def _say(self) -> Said:
        # A handler that is cancelled in the very moment of saying it never sees the receipt.
        return self.world.say(next(self.world.numbers), sent=self._carrier())

    def _ask(self, timeout: float | None) -> Asked:
        world, now, sent = self.world, trio.current_time(), self._carrier()
        if sent.legacy:
            bound = CEILING if timeout is None else min(timeout, CEILING)
        else:
            bound = LIFETIME if self.call.tool in {"work", "late"} else PATIENCE
        asked = Asked(next(world.numbers), self.call, sent, now, now + bound)
        world.asked[asked.number] = asked
        return asked

    async def _answer(self, asked: Asked, asking: Any, *others: Asked) -> None:
        self.call.asking += 1
        try:
            with contextlib.suppress(ProtocolError):
                await note_outcome(asking, asked, *others)
        finally:
            self.call.asking -= 1


async def note_outcome(asking: Any, *together: Asked) -> None:
    """Wait for what was asked, and write down what came of it.

    Raises:
        ProtocolError: There is no answer.
    """
    outcome, values = "cancelled", {}
    try:
        answer = await asking
    except ProtocolError as error:
        outcome = type(error).__name__
        raise
    else:
        outcome, values = "answered", _values(together, answer)
    finally:
        for one in together:
            one.ended, one.outcome = trio.current_time(), outcome
            one.value = values.get(one.number)


def _values(together: tuple[Asked, ...], answer: Any) -> dict[int, str]:
    """What was answered to each question, by its number."""
    answers = answer.values() if isinstance(answer, dict) else [answer]
    texts = [a.text if hasattr(a, "text") else a.data["value"] for a in answers]
    return {asked.number: text for asked, text in zip(together, texts, strict=True)}
