"""Clients of several processes over which chaos comes: each asks any of them, and judges what it is answered and told."""

import itertools
import json
import time
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial

import attrs
import h11
import trio
from chaos_books import Books
from wire import call, initialize, message

CLEAR = ("whether it had an effect is not known", "shutting down", "has ended", "cannot be asked")
"""What an error says of a call that has no answer."""
ENDS = 30.0
"""Seconds within which each call has to end."""
_names = itertools.count(1)


@attrs.define
class Figures:
    """What came of it.

    Attributes:
        ends: How many calls there were, by how they ended.
        faults: What never may be.
        troubles: What was done to the processes, and how often.
        longest: The longest time, in seconds, that a client had no right answer.
        books: Those of all processes in sum.
    """

    ends: Counter[str] = attrs.field(factory=Counter)
    faults: list[str] = attrs.field(factory=list)
    troubles: Counter[str] = attrs.field(factory=Counter)
    longest: float = 0.0
    books: Books = attrs.field(factory=Books)

    def __str__(self):
        counted = [
            ", ".join(f"{count:,} {name}" for name, count in each.most_common()) or "nothing"
            for each in (self.troubles, self.ends)
        ]
        books = ", ".join(f"{count:,} {name}" for name, count in attrs.asdict(self.books).items())
        longest = f"longest time without a right answer: {self.longest:.1f} s"
        return "\n".join([*counted, f"messages: {books}", longest])


class Client:
    """Goes on in one session after the other, or in none.

    Args:
        served: What reaches the processes; those that serve, at any time.
        chance: Tells what it does.
        figures: Where it is written down.
    """

    def __init__(self, served, chance, figures):
        self.served, self.chance, self.figures = served, chance, figures
        self.name = f"client {next(_names)}"
        self.session = None
        self.heard = Counter()
        self.texts = itertools.count(1)
        self.right_at = time.monotonic()

    @asynccontextmanager
    async def peer(self):
        """A connection to any process, which is closed at the end; what ends it is no fault."""
        peer = await self.connect()
        try:
            yield peer
        except Exception as error:
            if not _is_reset(error):
                raise
            self.figures.ends["reset"] += 1
        finally:
            peer.stream.socket.close()

    async def connect(self):
        while True:
            try:
                return await self.chance.choice(self.served()).peer()
            except OSError:
                self.figures.ends["refused"] += 1
                await trio.sleep(0.05)

    def fault(self, what):
        self.figures.faults.append(f"{self.name}: {what}")

    async def run(self, over):
        """Ask, in a session, until it is over."""
        while not over():
            await self.begin()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.listen)
                for _ in range(self.chance.randrange(20, 200)):
                    if not over():
                        await self.do()
                        await trio.sleep(0.02)
                nursery.cancel_scope.cancel()
            await self.delete()

    async def run_without(self, over):
        """Ask, in no session, until it is over."""
        while not over():
            text = f"{self.name} {next(self.texts)}"
            async with self.peer() as peer:
                with trio.fail_after(ENDS):
                    self.judge(await peer.modern(call("echo", {"text": text}, id=1)), text)
            await trio.sleep(0.02)

    async def begin(self):
        """Open a session, sooner or later."""
        self.session = None
        while self.session is None:
            body = initialize()
            body["params"]["capabilities"] = {"elicitation": {}}
            async with self.peer() as peer:
                with trio.fail_after(ENDS):
                    opened = await peer.exchange(body)
                    if opened.status == 200:
                        self.session = {"mcp-session-id": opened.headers["mcp-session-id"]}
                        await peer.exchange(message("notifications/initialized"), self.session)
            if self.session is None:
                await trio.sleep(0.1)

    async def do(self):
        tool = self.chance.choices(["echo", "say", "ask", "reach"], [6, 2, 2, 2])[0]
        text = f"{self.name} {next(self.texts)}"
        do = {"ask": self.ask, "reach": self.reach}.get(tool, partial(self.call, tool))
        try:
            async with self.peer() as peer:
                with trio.fail_after(ENDS):
                    self.judge(await do(peer, text), text)
        except trio.TooSlowError:
            self.fault(f"{tool} {text!r} has not ended")

    async def call(self, tool, peer, text):
        return await peer.exchange(call(tool, {"text": text}, id=text), self.session)

    async def reach(self, peer, text):
        """Have it said on the GET stream by any process, which has it told to the one with the session."""
        arguments = {"session": self.session["mcp-session-id"], "text": text}
        return await peer.modern(call("reach", arguments, id=text))

    async def ask(self, peer, text):
        """Call what asks a question, and answer that at any process until the call has ended; returns its answer."""
        await peer.send(call("ask", {"text": text}, id=text), self.session)
        status, headers = await peer.head()
        if not headers["content-type"].startswith("text/event-stream"):
            event = await peer.next()
            return _Answer(status, _decoded(bytes(getattr(event, "data", b""))))
        said = await peer.said()
        async with trio.open_nursery() as nursery:
            if said is not None and "method" in said:
                nursery.start_soon(self.answer, said["id"])
                while said is not None and "method" in said:  # that it is not waited for any more
                    said = await peer.said()
            nursery.cancel_scope.cancel()
        return _Answer(status, said)

    async def answer(self, question):
        """Answer again and again: who takes it may not know yet that it has lost the session."""
        body = {"jsonrpc": "2.0", "id": question, "result": {"action": "accept", "content": {"name": "Ada"}}}
        while True:
            async with self.peer() as peer:
                answered = await peer.exchange(body, self.session)
                if answered.status not in {202, 503}:
                    self.fault(f"an answer was answered {answered.status}")
            await trio.sleep(1)

    def judge(self, answer, text):
        if answer.status == 503:
            self.figures.ends["503"] += 1
        elif answer.status != 200:
            self.fault(f"{text!r} was answered {answer.status}")
        elif answer.json is None:
            self.figures.ends["stream ended"] += 1
        elif "error" in answer.json:
            self.figures.ends["error"] += 1
            if not any(words in answer.json["error"]["message"] for words in CLEAR):
                self.fault(f"{text!r} was answered {answer.json}")
        elif answer.json.get("result", {}).get("content", [{}])[0].get("text") != text:
            self.fault(f"{text!r} was answered {answer.json}")
        else:
            self.figures.ends["right"] += 1
            now = time.monotonic()
            self.figures.longest = max(self.figures.longest, now - self.right_at)
            self.right_at = now

    async def listen(self):
        """Hear what is said to the session, over any process; go away now and then, and come back."""
        while True:
            with trio.move_on_after(self.chance.uniform(0.2, 3)):
                await self.listen_once()
            await trio.sleep(self.chance.uniform(0, 2))

    async def listen_once(self):
        while True:
            async with self.peer() as peer:
                await peer.send(None, self.session, "GET")
                status, _ = await peer.head()
                if status not in {200, 503}:
                    self.fault(f"a GET was answered {status}")
                while status == 200 and (said := await peer.said()) is not None:
                    self.hear(said)
            await trio.sleep(0.05)

    def hear(self, said):
        if said["method"] != "notifications/said":
            return
        text = said["params"]["text"]
        self.heard[text] += 1
        self.figures.ends["heard"] += 1
        if self.heard[text] > 1:
            self.fault(f"{text!r} was heard twice")
        if not text.startswith(f"{self.name} "):
            self.fault(f"{text!r} was heard")

    async def delete(self):
        """End the session, sooner or later."""
        ended, session, self.session = False, self.session, None
        while not ended:
            async with self.peer() as peer:
                with trio.fail_after(ENDS):
                    answered = await peer.exchange(None, session, "DELETE")
                    ended = answered.status in {204, 404}  # it may have been done, and not answered
                    if answered.status not in {204, 404, 503}:
                        self.fault(f"DELETE was answered {answered.status}")
            if not ended:
                await trio.sleep(0.1)


@attrs.frozen
class _Answer:
    status: int
    json: object


def _is_reset(error):
    """Whether what failed was a connection that has ended."""
    if isinstance(error, ExceptionGroup):
        return all(_is_reset(each) for each in error.exceptions)
    lost = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError)
    return isinstance(error, lost) or "ConnectionClosed" in str(error)


def _decoded(data):
    return json.loads(data) if data else None
