"""What the server does, and what happens to its sessions as a whole."""

import contextlib
from typing import Any

import trio
from callers import HttpCaller
from channel_callers import ChannelCaller, MemoryCaller
from handlers import FORM, note_outcome
from notebook import CEILING, Asked

from mcpbus import ProtocolError
from mcpbus.asking import Elicit


class ServerSteps:
    """Steps of a world; see there."""

    callers: list[Any]
    bus: Any

    async def connect_(self, kind: str, revision: str, mode: str, initialized: bool) -> None:
        """A client comes; one with a channel need not have a session."""
        principal = f"user {len(self.callers)}"
        if kind in {"http", "modern", "stateless"}:
            place = mode if kind != "stateless" else "stateless json" if mode == "json" else "stateless"
            legacy = None if kind == "modern" else revision or "2025-11-25"
            caller: Any = HttpCaller(self, kind, place, legacy, principal)
            opened = kind != "http" or await self._admitted(caller.open(initialized=initialized))
        else:
            caller = (MemoryCaller if kind == "memory" else ChannelCaller)(
                self, kind, revision or None, principal
            )
            opened = await self._admitted(caller.open())
        if opened:
            self.callers.append(caller)

    async def _admitted(self, opening: Any) -> bool:
        """Connect, and insist that a client is refused only by a full bus."""
        bus = self.bus
        full = len(bus.session_directory.shares) >= bus.limits.max_sessions
        opened = await opening
        if not opened and not full:
            self.fault("0", "a client was refused")
        return opened

    async def change_(self, kind: str) -> None:
        self.change(kind)

    def change(self, kind: str) -> None:
        getattr(self.bus, f"{kind}_changed")()

    async def update_(self, uri: str) -> None:
        self.bus.resource_updated(uri)

    async def tool_(self, _: int) -> None:
        if self.extra:
            self.server.remove_tool("extra")
        else:
            self.server.add_tool(lambda: 1, name="extra")
        self.extra = not self.extra

    async def say_(self, index: int, verb: str) -> None:
        caller = self.pick([c for c in self.callers if c.inside is not None], index)
        if caller is None:
            return
        said = self.say(next(self.numbers), client=caller)
        if verb == "log":
            said.receipt = caller.inside.log("error", {"n": said.what})
        else:
            said.receipt = caller.inside.notify("notifications/x", {"n": said.what})

    async def ask_(self, index: int, verb: str, seconds: float | None) -> None:
        """The program asks a client outside any request, whether or not there is a stream for it."""
        caller = self.pick([c for c in self.callers if c.inside is not None], index)
        if caller is None:
            return
        now, bound = trio.current_time(), CEILING if seconds is None else seconds
        together = [
            Asked(next(self.numbers), None, None, now, now + min(bound, CEILING), caller)
            for _ in range(2 if verb == "both" else 1)
        ]
        for asked in together:
            asked.together = together
        self.asked |= {asked.number: asked for asked in together}
        self.nursery.start_soon(self._ask, caller.inside, verb, seconds, together)
        await trio.lowlevel.checkpoint()

    @staticmethod
    async def _ask(session: Any, verb: str, seconds: float | None, together: list[Asked]) -> None:
        text = f"ask {together[0].number}"
        if verb == "elicit":
            asking = session.elicit(text, FORM, timeout=seconds)
        elif verb == "sample":
            asking = session.sample(text, timeout=seconds)
        else:
            questions = {f"q{asked.number}": Elicit(f"ask {asked.number}", FORM) for asked in together}
            asking = session.ask_all(questions, timeout=seconds)
        with contextlib.suppress(ProtocolError):
            await note_outcome(asking, *together)

    async def close_(self, index: int) -> None:
        caller = self.pick([c for c in self.callers if not c.gone and c.inside is not None], index)
        if caller is not None:
            caller.gone = True
            caller.inside.close()

    async def sleep_(self, seconds: float) -> None:
        await trio.sleep(seconds)
