"""A legacy and a modern client of one bus, and what each of them was sent."""

from typing import Any

import trio
import trio.testing
from staging import CLAIM, HELLO, Stage, Wire

from mcpbus import Context
from mcpbus.testing import open_bus, open_probe, settle
from mcpbus.transport.channel import run_channel


class Duet:
    """The two clients: each over HTTP, or both on shared channels of their own."""

    def __init__(self, revision: str, *, shared: bool) -> None:
        self.revision = revision
        self.shared = shared
        self.stage = Stage()
        self.transcripts: dict[str, list[Any]] = {"legacy": [], "modern": []}

        @self.stage.server.tool
        async def act(script: list[list[Any]], ctx: Context) -> str:
            for verb, argument in script:
                if verb == "progress":
                    await ctx.progress(argument)
                elif verb in {"log", "burst"}:
                    await ctx.log("error" if verb == "burst" else argument, verb)
                elif verb == "note":
                    await ctx.notify("notifications/x")
                elif verb == "sleep":
                    await trio.lowlevel.checkpoint()
            return "done"

    def run(self, program: list[tuple[str, str, Any]], eras: set[str]) -> dict[str, list[Any]]:
        """Run the steps of some eras, and return what their clients were sent."""
        trio.run(self.main, program, eras, clock=trio.testing.MockClock(autojump_threshold=0))
        return self.transcripts

    async def main(self, program: list[tuple[str, str, Any]], eras: set[str]) -> None:
        async with (
            open_bus(self.stage.server) as self.bus,
            open_probe(self.bus.asgi()) as self.probe,
            trio.open_nursery() as nursery,
        ):
            if self.shared:
                self.wires = {era: self.open(nursery) for era in sorted(eras)}
            if "legacy" in eras:
                await self.greet()
            for number, (era, verb, script) in enumerate(program):
                if era in eras:
                    await getattr(self, era)(verb, script, number)
                elif era == "global" and "://" in verb:
                    self.bus.resource_updated(verb)
                elif era == "global":
                    getattr(self.bus, f"{verb}_changed")()
                await settle(self.bus)
            await trio.sleep(100)
            nursery.cancel_scope.cancel()
        if self.shared:
            self.transcripts |= {era: wire.got for era, wire in self.wires.items()}
        else:
            self.transcripts = {
                era: [recording.messages for recording in recordings]
                for era, recordings in self.transcripts.items()
            }

    def open(self, nursery: trio.Nursery) -> Wire:
        sender, receiver = trio.open_memory_channel[bytes](100)
        wire = Wire(sender)
        nursery.start_soon(run_channel, self.bus, receiver, wire.receive)
        return wire

    async def greet(self) -> None:
        if self.shared:
            await self.wires["legacy"].say("initialize", {**HELLO, "protocolVersion": self.revision}, 0)
            await settle(self.bus)
            await self.wires["legacy"].say("notifications/initialized", {})
        else:
            self.session = await self.probe.initialize(self.revision)
        await settle(self.bus)

    async def legacy(self, verb: str, script: Any, number: int) -> None:
        [inside] = self.bus.sessions.values()
        if verb == "say":
            inside.log("error", number)
        elif verb == "get" and not self.shared:
            self.transcripts["legacy"].append(self.session.get())
        elif verb != "get":
            await self.ask("legacy", *self.asked(verb, script), number)

    async def modern(self, verb: str, script: Any, number: int) -> None:
        await self.ask("modern", *self.asked(verb, script), number)

    @staticmethod
    def asked(verb: str, script: Any) -> tuple[str, dict[str, Any]]:
        if verb == "subscribe":
            return "resources/subscribe", {"uri": "res://a"}
        if verb == "listen":
            wanted = {"toolsListChanged": True, "resourceSubscriptions": ["res://c"]}
            return "subscriptions/listen", {"notifications": wanted}
        return "tools/call", {"name": "act", "arguments": {"script": script}}

    async def ask(self, era: str, method: str, params: dict[str, Any], number: int) -> None:
        if self.shared:
            meta = {"progressToken": number}
            if era == "modern":
                meta |= {**CLAIM, "io.modelcontextprotocol/logLevel": "info"}
            await self.wires[era].say(method, {**params, "_meta": meta}, number)
        elif era == "legacy":
            post = self.session.request(method, params, id=number, progress_token=number)
            self.transcripts[era].append(post)
        else:
            post = self.probe.request(method, params, id=number, progress_token=number, log_level="info")
            self.transcripts[era].append(post)
