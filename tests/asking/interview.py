"""A server with one tool that asks what a test wants asked, and clients that can be asked everything."""

from contextlib import asynccontextmanager

from mcpbus import Context, Limits, Server
from mcpbus.core.receipt import Location
from mcpbus.testing import open_bus, open_probe, wait_until_idle

EVERYTHING = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"
SAMPLED = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "yo"}}
ROOTS = {"roots": [{"uri": "file:///x"}]}


def accept(value):
    """The answer of a user who fills in a form with one field."""
    return {"action": "accept", "content": {"value": value}}


class Interview:
    """An open bus whose tool `ask` runs a function of the test's, and its HTTP clients.

    Attributes:
        runs: How often the tool was called.
        outcomes: What its runs returned or raised, in the order in which they ended.
    """

    def __init__(self, script, tool, **server):
        self.runs = 0
        self.outcomes = []
        self.server = Server("interview", version="1", **server)

        @self.server.tool(**tool)
        async def ask(ctx: Context, subject: str = ""):
            self.runs += 1
            try:
                answer = await script(ctx)
            except BaseException as error:
                self.outcomes.append(error)
                raise
            self.outcomes.append(answer)
            return answer

    @property
    def call(self):
        """The params of a call of the tool."""
        return {"name": "ask"}

    async def session(self, revision="2025-11-25", capabilities=None, **options):
        """Open a legacy session that can be asked everything."""
        declared = EVERYTHING if capabilities is None else capabilities
        return await self.probe.initialize(revision, capabilities=declared, **options)

    def ask(self, *, params=None, capabilities=None, method="tools/call", **options):
        """Call the tool as a modern client that can be asked everything; what `params` has is added."""
        declared = EVERYTHING if capabilities is None else capabilities
        body = {**self.call, **(params or {})} if method == "tools/call" else params
        return self.probe.request(method, body, capabilities=declared, **options)

    async def rounds(self, *answers, **options):
        """Call the tool, answer each round with the next of `answers`, and return the last result."""
        result = (await self.ask(**options).reply())["result"]
        for responses in answers:
            result = (await self.ask(params=retry(result, responses), **options).reply())["result"]
        return result

    async def quiet(self):
        await wait_until_idle(self.bus)

    async def assert_nothing_is_left(self, *, refused=0):
        """Nobody waits, nothing is kept but sessions, and the books balance."""
        await wait_until_idle(self.bus)
        now = self.bus.statistics()
        assert len(self.bus.parked_calls) == 0
        assert (now.requests, set(now.pending) - {Location.HELD}) == (0, set())
        assert (now.actors, now.refused) == (now.sessions, refused)
        assert now.tasks <= 1, "a task besides the clock's"
        assert self.bus.ledger.balance() == 0
        assert not any(session.questions for session in self.bus.sessions.values())


@asynccontextmanager
async def interviewed(
    script, *, tool=None, limits=None, response="auto", http=None, event_store=None, drain=5.0, **server
):
    """Open an interview; a limit is given by name."""
    interview = Interview(script, tool or {}, **server)
    opening = open_bus(
        interview.server,
        limits=Limits(**(limits or {})),
        event_store=event_store,
        drain_timeout=drain,
    )
    async with opening as bus, open_probe(bus.asgi(response=response, **(http or {}))) as probe:
        interview.bus, interview.probe = bus, probe
        yield interview


def retry(result, responses):
    """What a client adds to its request that was answered `input_required`."""
    added = {"requestState": result["requestState"]}
    return added if responses is None else {**added, "inputResponses": responses}


def text(result):
    """The text of a tool's result."""
    [block] = result["content"]
    return block["text"]
