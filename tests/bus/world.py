"""Random clients of both eras on one bus, and a notebook of what each was sent.

A program is a list of steps: clients connect, call, cancel, stall, go away and come back; the server speaks and
changes its lists. Whatever the server says carries a number of its own, so that each message can be found again on
whichever streams it appeared. What is written down here comes from outside the bus, and is compared with its books.
"""

import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio
import trio.testing
from hypothesis import strategies as st
from staging import CLAIM, HELLO, Stage, Wire

from mcpbus import Context, Limits, Server
from mcpbus.fate import DELIVERED, Fate, Place, Reason
from mcpbus.protocol.levels import LogLevel
from mcpbus.testing import Recording, open_bus, open_probe, settle
from mcpbus.transport.channel import run_channel

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
URIS = ["res://a", "res://a/b", "res://c"]
LEVELS = [None, "debug", "warning"]
LIMITS = Limits(outbox_items=4, outbox_bytes=2_000, held_items=3, held_timeout=50, max_sessions=6)
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LISTS = ("tools", "prompts", "resources")


_PICK = st.integers(0, 30)
_ACTIONS: dict[str, st.SearchStrategy[Any]] = {
    "log": st.sampled_from(["debug", "info", "error"]),
    "progress": st.integers(0, 9),
    "note": st.just(0),
    "change": st.sampled_from(LISTS),
    "sleep": st.sampled_from([0, 1, 40, 400]),
    "burst": st.integers(1, 8),
    "raise": st.just(0),
}
_SAYING = ["log", "note", "progress"] * 3 + ["burst", "burst", "change", "sleep", "sleep", "sleep", "raise"]
SCRIPTS = st.lists(
    st.sampled_from(_SAYING).flatmap(lambda verb: st.tuples(st.just(verb), _ACTIONS[verb])), max_size=8
)
_FILTERS = st.sets(st.sampled_from([*LISTS, *URIS]), min_size=1)

# What may happen: how often, out of all, and with what.
_STEPS: dict[str, tuple[int, tuple[st.SearchStrategy[Any], ...]]] = {
    "call": (12, (_PICK, SCRIPTS, st.booleans(), st.sampled_from(LEVELS))),
    "cancel": (3, (_PICK,)),
    "drop": (3, (_PICK,)),
    "stall": (4, (_PICK,)),
    "resume": (4, (_PICK,)),
    "change": (4, (st.sampled_from(LISTS),)),
    "update": (3, (st.sampled_from(URIS),)),
    "tool": (1, (st.just(0),)),
    "sleep": (5, (st.sampled_from([0, 0, 0.5, 1, 16, 31, 310]),)),
    "open": (2, (st.sampled_from(LEGACY), st.booleans())),
    "wire": (2, (st.sampled_from([*LEGACY, None, None]),)),
    "get": (5, (_PICK,)),
    "subscribe": (3, (_PICK, st.sampled_from(URIS))),
    "unsubscribe": (1, (_PICK, st.sampled_from(URIS))),
    "say": (4, (_PICK, st.sampled_from(["log", "note"]))),
    "trespass": (1, (_PICK,)),
    "listen": (3, (_PICK, _FILTERS)),
    "delete": (1, (_PICK,)),
    "close": (1, (_PICK,)),
    "leave": (1, (_PICK,)),
}
_VERBS = [verb for verb, (weight, _) in _STEPS.items() for _ in range(weight)]


def steps() -> st.SearchStrategy[tuple[Any, ...]]:
    """One thing that happens."""
    return st.sampled_from(_VERBS).flatmap(lambda verb: st.tuples(st.just(verb), *_STEPS[verb][1]))


@attrs.define(eq=False)
class Client:
    """Who calls: a session over HTTP, modern HTTP, or a shared channel."""

    kind: str
    revision: str | None
    session: Any = None
    wire: Wire | None = None
    inside: Any = None
    leave: Callable[[], Awaitable[None]] | None = None
    gone: bool = False
    """Its session was ended, or it left: its calls may be cancelled."""

    @property
    def legacy(self) -> bool:
        return self.revision is not None


@attrs.define(eq=False)
class Call:
    """One tools/call."""

    number: int
    client: Client
    id: Any
    script: list[Any]
    token: str | None
    level: str | None
    post: Recording | None = None
    outcome: str = "waiting"
    cancelled: bool = False
    dropped_at: float | None = None
    last: int | None = None
    """How many messages its channel had when nothing more of this call might follow."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.client.wire.got if self.post is None else self.post.messages


@attrs.define(eq=False)
class Listen:
    """One subscriptions/listen."""

    client: Client
    id: Any
    wanted: set[str]
    post: Recording | None = None
    cancelled: bool = False
    last: int | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.client.wire.got if self.post is None else self.post.messages


class World:
    """A bus at work, and the notebook."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.clients: list[Client] = []
        self.calls: list[Call] = []
        self.listens: list[Listen] = []
        self.gets: list[tuple[Client, Recording]] = []
        self.said: dict[int, tuple[Any, Any]] = {}
        self.progress: dict[tuple[str, float], Any] = {}
        self.changes: list[Any] = []
        self.streams: list[Any] = []
        self.numbers = itertools.count(1)
        self.steps = 0
        self.extra = False
        self.server = self._server()

    def _server(self) -> Server:
        async def authenticate(head):
            return head.headers.get(b"authorization")

        server = Server("world", authenticate=authenticate)
        Stage.furnish(server)

        @server.tool
        async def act(number: int, ctx: Context) -> str:
            call = self.calls[number]
            call.outcome = "running"
            try:
                await self.play(call, ctx)
            except trio.Cancelled:
                call.outcome = "cancelled"
                raise
            except ZeroDivisionError:
                call.outcome = "returned"
                raise
            call.outcome = "returned"
            return "done"

        return server

    async def play(self, call: Call, ctx: Context) -> None:
        for verb, argument in call.script:
            if verb == "sleep":
                await trio.sleep(argument)
            elif verb == "raise":
                raise ZeroDivisionError
            elif verb == "progress":
                receipt = await ctx.progress(argument)
                if receipt.fate is None or receipt.fate == DELIVERED:
                    self.progress[call.token, argument] = receipt
            elif verb == "change":
                self.change(argument)
            else:
                for _ in range(argument if verb == "burst" else 1):
                    number = next(self.numbers)
                    # A handler that is cancelled in the very moment of saying it never sees the receipt.
                    self.said[number] = (None, call)
                    if verb == "note":
                        receipt = await ctx.notify("notifications/x", {"n": number, "pad": "x" * 300})
                    else:
                        receipt = await ctx.log("error" if verb == "burst" else argument, {"n": number})
                    self.said[number] = (receipt, call)

    def change(self, kind: str) -> None:
        self.changes += getattr(self.bus, f"{kind}_changed")()

    # -- the run ---------------------------------------------------------------------------------

    def run(self, program: list[tuple[Any, ...]]) -> "World":
        trio.run(self.main, program, clock=trio.testing.MockClock(autojump_threshold=0))
        return self

    async def main(self, program: list[tuple[Any, ...]]) -> None:
        async with (
            open_bus(self.server, limits=LIMITS) as bus,
            open_probe(bus.asgi()) as probe,
            trio.open_nursery() as nursery,
        ):
            self.bus, self.probe, self.nursery = bus, probe, nursery
            self._note_streams()
            await self._populate()
            for verb, *arguments in program:
                await getattr(self, verb + "_")(*arguments)
                self.steps += 1
                self.check()
            await self.end()
        self.check()
        if bus.ledger.pending and sum(bus.ledger.pending.values()):
            self.faults.append("invariant 15: the closed bus keeps messages")

    async def _populate(self) -> None:
        """Begin with clients of each kind; modern ones over HTTP have no connection that could end."""
        self.clients.append(Client("modern", None))
        for revision in (LEGACY[0], LEGACY[-1]):
            await self.open_(revision, initialized=True)
        for wire in (LEGACY[1], None):
            await self.wire_(wire)

    def _note_streams(self) -> None:
        opened = self.bus.open_stream

        def note(*arguments: Any, **named: Any) -> Any:
            self.streams.append(opened(*arguments, **named))
            return self.streams[-1]

        self.bus.open_stream = note

    async def end(self) -> None:
        """Everybody leaves; time passes; nothing may be left."""
        self.judge_replies()
        for client in self.clients:
            client.gone = True
            if client.leave is not None:
                client.wire.resume()
                await client.leave()
        self.probe.disconnect()
        await settle(self.bus)
        self.check()
        await trio.sleep(310)
        await settle(self.bus)
        now = self.bus.statistics()
        if now.requests:
            self.faults.append(f"invariant 11: {now.requests} requests are left")
        await trio.sleep(1900)
        await settle(self.bus)
        now = self.bus.statistics()
        if (now.sessions, now.actors, now.pending, len(self.bus.interests)) != (0, 0, {}, 0):
            self.faults.append(f"something is left: {now}, {len(self.bus.interests)} interests")
        self.judge()

    # -- steps -----------------------------------------------------------------------------------

    def pick(self, things: list[Any], index: int) -> Any:
        return things[index % len(things)] if things else None

    def present(self, index: int, kind: str | None = None) -> Any:
        return self.pick([c for c in self.clients if not c.gone and kind in {None, c.kind}], index)

    async def open_(self, revision: str, initialized: bool) -> None:
        headers = {"authorization": f"user {len(self.clients)}"}
        if self.full():
            return
        session = await self.probe.initialize(revision, initialized=initialized, headers=headers)
        client = Client("http", revision, session, inside=self.bus.sessions[session.id])
        self.clients.append(client)
        self.note_gone()

    def full(self) -> bool:
        """Tell whether a newcomer would be refused."""
        bus = self.bus
        count = len(bus._sessions) + len(bus._registering) + len(bus._channels)
        return count >= LIMITS.max_sessions and not bus._unready

    async def wire_(self, revision: str | None) -> None:
        if self.full():
            return
        sender, receiver = trio.open_memory_channel[bytes](100)
        wire, closed = Wire(sender), trio.Event()

        async def serve() -> None:
            await run_channel(self.bus, receiver, wire.receive)
            wire.closed = True
            receiver.close()
            closed.set()

        async def leave() -> None:
            sender.close()
            await closed.wait()

        self.nursery.start_soon(serve)
        await settle(self.bus)
        before = set(self.bus.sessions)
        if revision is not None:
            await wire.say("initialize", {**HELLO, "protocolVersion": revision}, 0)
            await settle(self.bus)
            await wire.say("notifications/initialized", {})
            await settle(self.bus)
        new = [self.bus.sessions[key] for key in set(self.bus.sessions) - before]
        self.clients.append(Client("wire", revision, wire=wire, inside=new[0] if new else None, leave=leave))

    async def call_(self, index: int, script: list[Any], wants: bool, level: str | None) -> None:
        client = self.present(index)
        if client is None:
            return
        number = len(self.calls)
        call = Call(number, client, f"c{number}", script, f"t{number}" if wants else None, level)
        self.calls.append(call)
        params = {"name": "act", "arguments": {"number": number}}
        if client.kind == "http":
            call.post = client.session.request("tools/call", params, id=call.id, progress_token=call.token)
        elif client.kind == "modern":
            call.post = self.probe.request(
                "tools/call", params, id=call.id, progress_token=call.token, log_level=level
            )
        else:
            meta = {} if client.legacy else dict(CLAIM)
            if not client.legacy and level is not None:
                meta["io.modelcontextprotocol/logLevel"] = level
            if call.token is not None:
                meta["progressToken"] = call.token
            await client.wire.say("tools/call", {**params, "_meta": meta}, call.id)

    async def listen_(self, index: int, wanted: set[str]) -> None:
        client = self.pick([c for c in self.clients if not c.gone and not c.legacy], index)
        if client is None:
            return
        listen = Listen(client, f"l{len(self.listens)}", wanted)
        self.listens.append(listen)
        params: dict[str, Any] = {
            "notifications": {
                **{f"{kind}ListChanged": kind in wanted for kind in LISTS},
                "resourceSubscriptions": sorted(wanted - set(LISTS)),
            }
        }
        if client.kind == "modern":
            listen.post = self.probe.request("subscriptions/listen", params, id=listen.id)
        else:
            await client.wire.say("subscriptions/listen", {**params, "_meta": CLAIM}, listen.id)

    async def cancel_(self, index: int) -> None:
        thing = self.pick([*self.calls, *self.listens], index)
        if thing is None or thing.client.gone or thing.client.kind == "modern":
            return
        thing.cancelled = True
        params = {"requestId": thing.id}
        if thing.client.kind == "http":
            await thing.client.session.notify("notifications/cancelled", params).ended()
        else:
            await thing.client.wire.say("notifications/cancelled", params)
        await settle(self.bus)
        if not (thing.post or thing.client.wire).stalled and thing.last is None:
            thing.last = len(thing.messages)
        if getattr(thing, "outcome", None) == "cancelled":
            places = [receipt.place for receipt, owner in self.said.values() if receipt and owner is thing]
            if Place.OUTBOX in places:
                self.faults.append("invariant 6: what waits for a cancelled request is kept")

    async def drop_(self, index: int) -> None:
        recording = self.pick([r for r in self.probe.recordings if not r.over], index)
        if recording is None:
            return
        recording.disconnect()
        await settle(self.bus)
        for call in self.calls:
            if call.post is recording:
                call.dropped_at = trio.current_time()
                if not call.client.legacy and call.outcome == "running":
                    self.faults.append("invariant 7: a modern disconnect did not cancel")

    async def stall_(self, index: int) -> None:
        wires = [client.wire for client in self.clients if client.wire is not None and not client.gone]
        reader = self.pick([*[r for r in self.probe.recordings if not r.over], *wires], index)
        if reader is not None:
            reader.stall()

    async def resume_(self, index: int) -> None:
        wires = [client.wire for client in self.clients if client.wire is not None and client.wire.stalled]
        reader = self.pick([*[r for r in self.probe.recordings if r.stalled], *wires], index)
        if reader is not None:
            reader.resume()

    async def get_(self, index: int) -> None:
        client = self.present(index, "http")
        if client is not None:
            self.gets.append((client, client.session.get()))
            await trio.lowlevel.checkpoint()

    async def trespass_(self, index: int) -> None:
        client = self.present(index, "http")
        if client is None:
            return
        headers = {
            "accept": "text/event-stream",
            "mcp-session-id": client.session.id,
            "authorization": "mallory",
        }
        answer = await self.probe.send("GET", headers=headers).ended()
        if answer.status != 404:
            self.faults.append(f"invariant 5: a trespasser got {answer.status}")

    async def subscribe_(self, index: int, uri: str, verb: str = "subscribe") -> None:
        client = self.pick([c for c in self.clients if not c.gone and c.legacy], index)
        if client is None:
            return
        if client.kind == "http":
            client.session.request(f"resources/{verb}", {"uri": uri}, id=f"s{next(self.numbers)}")
        else:
            await client.wire.say(f"resources/{verb}", {"uri": uri}, f"s{next(self.numbers)}")
        await trio.lowlevel.checkpoint()

    async def unsubscribe_(self, index: int, uri: str) -> None:
        await self.subscribe_(index, uri, "unsubscribe")

    async def change_(self, kind: str) -> None:
        self.change(kind)

    async def update_(self, uri: str) -> None:
        self.changes += self.bus.resource_updated(uri)

    async def tool_(self, _: int) -> None:
        if self.extra:
            self.server.remove_tool("extra")
        else:
            self.server.add_tool(lambda: 1, name="extra")
        self.extra = not self.extra

    async def say_(self, index: int, verb: str) -> None:
        client = self.pick([c for c in self.clients if c.inside is not None], index)
        if client is None:
            return
        number = next(self.numbers)
        if verb == "log":
            receipt = client.inside.log("error", {"n": number})
        else:
            receipt = client.inside.notify("notifications/x", {"n": number})
        self.said[number] = (receipt, client)

    async def delete_(self, index: int) -> None:
        client = self.present(index, "http")
        if client is not None:
            client.gone = True
            await client.session.delete().ended()

    async def close_(self, index: int) -> None:
        client = self.pick([c for c in self.clients if not c.gone and c.inside is not None], index)
        if client is not None:
            client.gone = True
            client.inside.close()

    async def leave_(self, index: int) -> None:
        client = self.present(index, "wire")
        if client is not None:
            client.gone = True
            client.wire.resume()
            await client.leave()

    async def sleep_(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.note_gone()

    def note_gone(self) -> None:
        """Sessions may end by themselves: they never sent initialized, made room, or read too slowly."""
        for client in self.clients:
            if client.kind == "http" and client.session.id not in self.bus.sessions:
                client.gone = True
            if client.wire is not None and client.wire.closed:
                client.gone = True

    # -- checks after each step ------------------------------------------------------------------

    def check(self) -> None:
        if self.bus.ledger.balance():
            self.faults.append("invariant 15: the books do not balance")
        for stream in self.streams:
            outbox = stream._outbox
            if outbox._items > LIMITS.outbox_items or outbox.waiting_bytes > LIMITS.outbox_bytes:
                self.faults.append("an outbox is past its bounds")
        self.streams = [stream for stream in self.streams if not stream.address.stopped]
        for call in self.calls:
            self.check_cancellation(call)

    def check_cancellation(self, call: Call) -> None:
        self.note_gone()
        allowed = call.cancelled or call.client.gone
        if call.client.legacy:
            abandoned = call.dropped_at is not None and trio.current_time() >= call.dropped_at + 300
            # What takes nothing for the write deadline is dropped by the server, at a time known only to it.
            allowed = allowed or abandoned or (call.post is not None and call.post.aborted)
        else:
            allowed = allowed or (call.post is not None and call.post.over)
        if call.outcome == "cancelled" and not allowed:
            self.faults.append(f"invariant 7: call {call.number} was cancelled by nobody")

    # -- checks at the end -----------------------------------------------------------------------

    def channels(self) -> list[tuple[Any, list[dict[str, Any]]]]:
        return [
            *((recording, recording.messages) for recording in self.probe.recordings),
            *((client.wire, client.wire.got) for client in self.clients if client.wire is not None),
        ]

    def judge(self) -> None:
        seen: dict[int, list[Any]] = defaultdict(list)
        for channel, messages in self.channels():
            for message in messages:
                if "method" in message and "id" in message:
                    self.faults.append("invariant 8: a request to a client that nobody asked for")
                number = self.number_of(message)
                if number is not None:
                    seen[number].append(channel)
        for number, (receipt, owner) in self.said.items():
            self.judge_said(number, receipt, self.allowed(owner), seen.pop(number, []))
        if seen:
            self.faults.append(f"invariant 1: nobody said {sorted(seen)}")
        self.judge_changes()
        self.judge_replies()
        for call in self.calls:
            self.judge_call(call)
        for listen in self.listens:
            self.judge_listen(listen)

    def judge_changes(self) -> None:
        for receipt in self.changes:
            if receipt.fate is None:
                self.faults.append(f"invariant 1: {receipt} has no fate")
        for _, get in self.gets:
            if get.status == 200 and any("id" in message for message in get.messages):
                self.faults.append("invariant 3: a GET stream has a reply")

    @staticmethod
    def number_of(message: dict[str, Any]) -> int | None:
        params = message.get("params", {})
        data = params.get("data", params)
        return data.get("n") if isinstance(data, dict) else None

    def allowed(self, owner: Call | Client) -> list[Any]:
        if isinstance(owner, Call):
            return [owner.post if owner.post is not None else owner.client.wire]
        if owner.wire is not None:
            return [owner.wire]
        return [get for client, get in self.gets if client is owner]

    def judge_said(self, number: int, receipt: Any, allowed: list[Any], seen: list[Any]) -> None:
        if not {id(channel) for channel in seen} <= {id(channel) for channel in allowed}:
            self.faults.append(f"invariants 1 and 5: message {number} is on a stream that is not its own")
        if receipt is None:
            return
        if receipt.fate is None:
            self.faults.append(f"invariant 1: {receipt} has no fate")
        if receipt.fate == DELIVERED:
            # A client that goes in the very moment of a write is not noticed by it.
            vanished = any(getattr(channel, "disconnected", False) for channel in allowed)
            if len(seen) != 1 and not (vanished and not seen):
                self.faults.append(f"invariant 1: message {number} was delivered {len(seen)} times")
        elif seen:
            # A write that returned in the moment in which its connection ended is lost for all that is known.
            ended = all(getattr(channel, "aborted", True) or channel.disconnected for channel in seen)
            if receipt.fate != Fate.discarded(Reason.LOST) or not ended:
                self.faults.append(f"invariant 1: message {number} was sent and is {receipt.fate}")

    def judge_replies(self) -> None:
        for recording in self.probe.recordings:
            replies = [message for message in recording.messages if "method" not in message]
            if replies and recording.status == 200 and not recording.over:
                self.faults.append("invariant 2: a stream goes on after its reply")
            if len(replies) > 1 or (replies and recording.messages[-1] is not replies[0]):
                self.faults.append("invariants 2 and 6: a reply is not the last message")
            mine = [t.id for t in [*self.calls, *self.listens] if t.post is recording]
            if mine and replies and replies[0].get("id", mine[0]) != mine[0]:
                self.faults.append("invariant 2: a reply is on another POST's stream")
        for client in self.clients:
            if client.wire is not None:
                ids = [message["id"] for message in client.wire.got if "method" not in message]
                if len(ids) != len(set(ids)):
                    self.faults.append("invariant 2: a request was answered twice")

    def judge_call(self, call: Call) -> None:
        messages, mine, replied = call.messages, [], False
        for index, message in enumerate(messages):
            if "method" not in message:
                replied = replied or message.get("id") == call.id
                continue
            number = self.number_of(message)
            belongs = number in self.said and self.said[number][1] is call
            params = message.get("params", {})
            is_progress = (
                message["method"] == "notifications/progress" and params["progressToken"] == call.token
            )
            if not belongs and not is_progress:
                continue
            if replied or (call.last is not None and index >= call.last):
                self.faults.append(f"invariant 6: call {call.number} goes on after its end")
            if is_progress:
                mine.append(params["progress"])
            if message["method"] == "notifications/message" and not call.client.legacy:
                wanted = call.level
                if wanted is None or LogLevel(params["level"]) < LogLevel(wanted):
                    self.faults.append("invariant 10: a modern log that was not asked for")
        if mine != sorted(set(mine)):
            self.faults.append(f"invariant 13: progress went {mine}")

    def judge_listen(self, listen: Listen) -> None:
        mine = [
            (index, message)
            for index, message in enumerate(listen.messages)
            if message.get("id") == listen.id
            or message.get("params", {}).get("_meta", {}).get(SUBSCRIPTION) == listen.id
        ]
        if listen.post is not None and len(mine) != len(listen.messages):
            self.faults.append("invariant 9: a listen stream has a message without its stamp")
        if mine and "acknowledged" not in mine[0][1].get("method", ""):
            self.faults.append("invariant 9: a listen does not begin with its acknowledgement")
        for index, message in mine[1:]:
            method = message.get("method", "result")
            kind = method.split("/")[1] if method.endswith("list_changed") else None
            uri = message.get("params", {}).get("uri")
            heard = kind in listen.wanted or any(
                uri == wanted or (uri or "").startswith(wanted + "/") for wanted in listen.wanted - set(LISTS)
            )
            if method == "result":
                if message is not mine[-1][1] or listen.last is not None:
                    self.faults.append("invariant 9: a listen goes on after its end")
            elif not heard:
                self.faults.append(f"invariant 9: {method} {uri} for a listen to {listen.wanted}")
            if listen.last is not None and index >= listen.last:
                self.faults.append("invariant 6: a cancelled listen goes on")
