"""What happens to streams and connections: they are read slowly, lost, opened anew and taken over."""

from typing import Any

import trio
from callers import with_meta
from ears import HttpEar
from invariants_of_requests import validate_disconnect


class StreamSteps:
    """Steps of a world; see there."""

    callers: list[Any]
    ears: list[Any]

    async def drop_(self, index: int) -> None:
        """One exchange over HTTP is lost."""
        ear = self.pick(
            [e for e in self.ears if e.purpose in {"post", "get", "listen"} and not e.over], index
        )
        if ear is None:
            return
        ear.cut()
        await self.settle()
        tick = self.tick()
        for sent in ear.sents.values():
            sent.dropped_at = trio.current_time()
            if not sent.legacy and sent.reply is None:
                sent.silenced = tick
                validate_disconnect(self, [sent])

    async def stall_(self, index: int) -> None:
        ear = self.pick(
            [e for e in self.ears if e.client is not None and not e.over and not e.stalled], index
        )
        if ear is not None:
            ear.stall()

    async def resume_(self, index: int) -> None:
        ear = self.pick([e for e in self.ears if e.stalled], index)
        if ear is not None:
            ear.resume()

    async def get_(self, index: int) -> None:
        caller = self.present(index, "http")
        if caller is not None:
            caller.get()
            await trio.lowlevel.checkpoint()

    # -- coming back -----------------------------------------------------------------------------

    async def back_(self, index: int, position: int) -> None:
        """A client comes back to one of its streams, after any event, whether or not it has lost it."""
        ear = self.pick([e for e in self._resumable() if not e.client.gone], index)
        if ear is not None:
            self.come_back(ear, self.pick(ear.recording.event_ids, position))
            await trio.lowlevel.checkpoint()

    def _resumable(self) -> list[HttpEar]:
        return [
            e for e in self.ears if isinstance(e, HttpEar) and e.purpose != "all" and e.recording.event_ids
        ]

    def come_back(self, ear: HttpEar, event_id: str) -> HttpEar:
        stream = ear.client.session.id, event_id.rpartition(".")[0]
        known = self.store is not None and stream in self.store and bool(self.store.record.get(stream))
        older = [
            other
            for other in self.family(ear)
            if other.after is not None and not other.over and other.after.rpartition(".")[0] == stream[1]
        ]
        again = ear.client.get(event_id, root=ear.root)
        again.known = known
        for other in older:
            other.rivals.append(again)
            if other.recording.status is None:  # both are on their way, and either can be the first to arrive
                again.rivals.append(other)
        return again

    async def come_back_everywhere(self) -> None:
        """Come back to every stream that anybody had, from its beginning, its middle and its end."""
        streams: dict[tuple[Any, str], list[tuple[Any, str]]] = {}
        for ear in self._resumable():
            if not ear.client.gone:
                for event_id in ear.recording.event_ids:
                    name, _, number = event_id.rpartition(".")
                    streams.setdefault((ear.client, name), []).append((int(number), event_id, ear))
        for (caller, _), events in streams.items():
            events.sort(key=lambda event: event[0])
            for _, event_id, ear in dict.fromkeys([events[0], events[len(events) // 2], events[-1]]):
                caller.look()
                if not caller.gone:
                    self.come_back(ear, event_id)
                    await self.settle()

    # -- strangers -------------------------------------------------------------------------------

    async def trespass_(self, index: int, verb: str) -> None:
        """Somebody else uses a session's id, or a client of its own session another one's event."""
        caller = self.present(index, "http")
        if caller is None:
            return
        accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        fields = {**caller.headers, **accept, "authorization": "mallory"}
        expected, body, method = {404}, b"", verb.upper()
        if verb == "back":
            ear = self.pick([e for e in self._resumable() if e.client is not caller], index)
            if ear is None:
                return
            fields |= {"authorization": caller.principal, "last-event-id": ear.recording.event_ids[-1]}
            expected, method = {400, 404}, "GET"
        elif verb == "post":
            params = with_meta({"uri": "res://a"}, {}, modern=False)
            message = {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": params}
            body = self.encode(message)
        answer = caller.probe.send(method, body, fields)
        await self.settle()
        if answer.status not in expected:
            self.fault("5", f"a trespasser's {verb} was answered {answer.status}")

    # -- the end of a connection -----------------------------------------------------------------

    async def leave_(self, index: int) -> None:
        caller = self.present(index, "http", "line", "sse", "socket", "memory")
        if caller is not None:
            caller.leave()

    async def cut_(self, index: int) -> None:
        caller = self.present(index, "line", "sse", "socket", "memory")
        if caller is not None:
            caller.gone = True
            caller.ear.cut()
            await self.settle()
            validate_disconnect(self, caller.ear.sents.values())
