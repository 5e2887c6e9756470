"""Random clients of both eras on one bus, and a notebook of what each was sent.

A program is a list of steps: clients connect, call, cancel, stall, go away and come back; the server speaks and
changes its lists. Whatever the server says carries a number of its own, so that each message can be found again on
whichever streams it appeared. What is written down here comes from outside the bus, and is compared with its books.
"""

import itertools
from typing import Any

import trio
import trio.testing
from happenings import LEGACY, LIMITS, LISTS, Call, Client, Listen
from staging import CLAIM, HELLO, Stage, Wire
from verdicts import Judge

from mcpbus import Context, Server
from mcpbus.fate import DELIVERED, Place
from mcpbus.testing import Recording, open_bus, open_probe, settle
from mcpbus.transport.channel import run_channel


class World(Judge):
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
