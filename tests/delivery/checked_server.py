"""The server of the delivery checker: a program whose tools send messages by a plan, and write down the fate of each.

Each message has a name of its own, which travels in it. The journal is a file of JSON lines: one for each message that is emitted, one
for its fate, and the ledger at the end.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import trio

from mcpbus import Context, Limits, Receipt, ServeOptions, Server
from mcpbus.proxy import Proxy
from mcpbus.stores import MemoryEventStore

CUSTOM: Final = "notifications/checked"
FORM: Final = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
PATIENCE: Final = float(os.environ.get("CHECK_PATIENCE", "3"))
"""Seconds after which the server gives up a client that has left, or does not read."""

LIMITS: Final = Limits(
    idle_timeout=20 * PATIENCE,
    initialize_timeout=5 * PATIENCE,
    abandoned_timeout=PATIENCE,
    input_timeout=5 * PATIENCE,
    held_timeout=5 * PATIENCE,
    keep_alive=1.0,
    write_deadline=PATIENCE,
    outbox_items=50,
    outbox_bytes=200_000,
)


class Journal:
    """What the server has emitted, and what became of it."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115 - as long as the program
        self._open: list[tuple[str, Receipt]] = []
        self._count = 0

    def name(self) -> str:
        """Return the name of the next message."""
        self._count += 1
        return f"{os.getpid()}-{self._count}"

    def note(self, name: str, scope: str, kind: str, *receipts: Receipt) -> None:
        """Write down a message, whose copies have these receipts."""
        self._write({"emitted": name, "scope": scope, "kind": kind, "copies": len(receipts)})
        self._open += [(name, receipt) for receipt in receipts]
        if len(self._open) > 10_000:
            self.settle()

    def settle(self) -> None:
        """Write down the fates that are known."""
        still = []
        for name, receipt in self._open:
            fate = receipt.fate
            if fate is None:
                still.append((name, receipt))
            else:
                reason = None if fate.reason is None else fate.reason.name
                self._write({"settled": name, "fate": fate.kind.value, "reason": reason})
        self._open = still

    def end(self, bus: Any) -> None:
        """Write down the rest, and the ledger."""
        self.settle()
        for name, receipt in self._open:
            self._write({"unsettled": name, "place": str(receipt.place)})
        now = bus.statistics()
        pending = sum(now.pending.values())
        self._write({"ledger": bus.ledger.balance(), "pending": pending, "emitted": now.emitted})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")


journal = Journal(os.environ["CHECK_JOURNAL"])
server = Server("checked", version="1")


@server.tool
async def talk(ctx: Context, call: str, client: str, plan: list[list[Any]]) -> str:
    """Send messages: each step of the plan has a kind, a size in bytes, and a pause in seconds."""
    for number, (kind, size, pause) in enumerate(plan, 1):
        name, text = journal.name(), "x" * size
        said = {"name": name, "text": text}
        if kind == "progress":
            journal.note(name, f"call {call}", kind, await ctx.progress(number, message=json.dumps(said)))
        elif kind == "log":
            journal.note(name, f"call {call}", kind, await ctx.info(said))
        elif kind == "custom":
            journal.note(name, f"call {call}", kind, await ctx.notify(CUSTOM, said))
        elif kind == "update":
            journal.note(name, "resource", kind, *ctx.bus.resource_updated(f"res://all/{name}"))
        elif ctx.session is not None and kind == "session log":
            journal.note(name, f"client {client}", kind, ctx.session.log("info", said))
        elif ctx.session is not None:
            journal.note(name, f"client {client}", "session custom", ctx.session.notify(CUSTOM, said))
        if pause:
            await trio.sleep(pause)
    return f"done {call}"


@server.tool
async def ask(ctx: Context, call: str) -> str:
    """Ask the client something that only this call asks, and return the answer."""
    answer = await ctx.elicit(f"question of {call}", FORM)
    value = getattr(answer, "data", None)
    return f"{call} {value['value'] if isinstance(value, dict) else value}"


@server.resource("res://all")
async def resource() -> str:
    """Whatever is below it is updated now and then."""
    return ""


@server.tool
async def quiet(ctx: Context) -> int:
    """Return how many messages are pending."""
    journal.settle()
    return sum(ctx.bus.statistics().pending.values())


async def main() -> None:
    """Serve over HTTP until the end of the input: this server, or a proxy of one at a URL."""
    store = MemoryEventStore(max_items=5_000) if "store" in sys.argv else None
    options = ServeOptions(write_deadline=PATIENCE)
    served = Proxy(sys.argv[-1]) if "proxy" in sys.argv else server
    async with (
        served.open(limits=LIMITS, event_store=store, drain_timeout=2) as bus,
        trio.open_nursery() as nursery,
    ):

        async def serve(task_status: trio.TaskStatus[list[str]]) -> None:
            await bus.serve(bind="127.0.0.1:0", options=options, task_status=task_status)

        (url,) = await nursery.start(serve)
        print(url, flush=True)  # noqa: T201 - this is how the checker finds it
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        nursery.cancel_scope.cancel()
    journal.end(bus)


async def over_stdio() -> None:
    """Serve over standard input and output."""
    async with server.open(limits=LIMITS, drain_timeout=2) as bus:
        await bus.stdio()
    journal.end(bus)


if __name__ == "__main__":
    trio.run(over_stdio if "stdio" in sys.argv else main)
