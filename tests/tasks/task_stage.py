"""A server whose tasks do what the test tells them, when it tells them."""

from contextlib import asynccontextmanager

import trio

from mcpbus import Context, Limits, ProtocolError, Server, ToolError
from mcpbus.asking import Elicit, InputRequired
from mcpbus.tasks import TASKS, MemoryTaskStore, TaskSupport
from mcpbus.testing import open_bus, wait_until_idle

DECLARED = {"elicitation": {}, "sampling": {}, "extensions": {TASKS: {}}}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def accept(name):
    """What a client answers to `FORM`."""
    return {"action": "accept", "content": {"name": name}}


class Job:
    """One run of the tool `hold` or its like."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.outcome = "running"
        self._end = trio.Event()
        self._value = None

    def finish(self, value="done"):
        """Return this from the handler, or raise it."""
        self._value = value
        self._end.set()

    async def run(self, *, stubborn=False):
        try:
            with trio.CancelScope(shield=stubborn):
                await self._end.wait()
        except trio.Cancelled:
            self.outcome = "cancelled"
            raise
        self.outcome = "returned"
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class SlowTaskStore(MemoryTaskStore):
    """Takes five seconds to keep a task, and to give back what came of it."""

    async def put(self, record, payload):
        await trio.sleep(5)
        await super().put(record, payload)

    async def payload(self, task_id):
        await trio.sleep(5)
        return await super().payload(task_id)


class TaskStage:
    """The server, its bus, and the jobs that run, oldest first."""

    def __init__(self, **options):
        self.server = Server("tasks", version="1", **options)
        self.jobs = []
        self._add_jobs(self.server.tool)
        _add_questions(self.server.tool)
        _add_ends(self.server.tool)

    def _add_jobs(self, tool):
        @tool(task="optional")
        async def hold(ctx: Context) -> str:
            return await self._job(ctx).run()

        @tool(task="required")
        async def must(ctx: Context) -> str:
            return await self._job(ctx).run()

        @tool(task="optional")
        async def stubborn(ctx: Context) -> str:
            return await self._job(ctx).run(stubborn=True)

        @tool(task=TaskSupport(deferred=True))
        async def later(ctx: Context) -> str:
            job = self._job(ctx)
            answer = await ctx.elicit("Who?", FORM, key="who")
            job.begun = [await ctx.begin_task() for _ in range(2)]
            again = await ctx.elicit("And who else?", FORM, key="who")
            return f"{answer.data['name']} and {again.data['name']}"

    def _job(self, ctx):
        self.jobs.append(Job(ctx))
        return self.jobs[-1]

    async def job(self):
        """Wait until nothing moves, and return the newest run."""
        await wait_until_idle(self.bus)
        return self.jobs[-1]

    async def assert_nothing_is_left(self):
        """No task, actor or message is kept; each connected client costs two actors and the tasks of its connection."""
        await wait_until_idle(self.bus)
        now = self.bus.statistics()
        assert (len(self.bus.tasks), self.bus.tasks.running) == (0, 0)
        assert (now.requests, dict(now.pending)) == (0, {})
        assert self.bus.ledger.balance() == 0


def _add_questions(tool):
    @tool(task="optional")
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", FORM, key="who")
        return f"Hello, {answer.data['name']}"

    @tool(task="optional")
    async def ask_both(ctx: Context) -> str:
        answers = await ctx.ask_all({"a": Elicit("A?", FORM), "b": Elicit("B?", FORM)})
        return " and ".join(answer.data["name"] for answer in answers.values())

    @tool(task="optional")
    async def ask_apart(ctx: Context) -> str:
        names = {}

        async def one(key):
            names[key] = (await ctx.elicit(f"{key}?", FORM, key=key)).data["name"]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one, "a")
            nursery.start_soon(one, "b")
        return f"{names['a']} and {names['b']}"

    @tool(task="optional")
    async def explicit(ctx: Context) -> str | InputRequired:
        if ctx.round_state == "third":
            answers = await ctx.ask_all({"who": Elicit("Who?", FORM), "what": Elicit("What?", FORM)})
            return " and ".join(answer.data["name"] for answer in answers.values())
        if ctx.round_state == "first":
            await ctx.elicit("Who?", FORM, key="who")
            return InputRequired({"what": Elicit("What?", FORM)}, state="second")
        if ctx.round_state == "second":
            return InputRequired({"who": Elicit("Who, again?", FORM)}, state="third")
        return InputRequired({"who": Elicit("Who?", FORM)}, state="first")


def _add_ends(tool):
    @tool(task="optional")
    async def wrong() -> str:
        raise ToolError("no good")

    @tool(task="optional")
    async def broken() -> str:
        raise ProtocolError(-7, "quite broken", {"where": "here"})

    @tool(task="optional")
    async def typed(number: int) -> str:
        return f"{number}"

    @tool
    async def plain(ctx: Context) -> str:
        return f"{await ctx.begin_task()}"


@asynccontextmanager
async def tasking(*, limits=None, store=None, drain_timeout=5.0, **options):
    """Open a stage; a limit is given by name."""
    stage = TaskStage(**options)
    bounds = Limits(**{"store_deadline": 10, **(limits or {})})  # more than the slow store takes
    opened = open_bus(stage.server, limits=bounds, task_store=store, drain_timeout=drain_timeout)
    async with opened as stage.bus:
        yield stage


async def begin(client, name="hold", **arguments):
    """Call a tool that becomes a task, and return its id as params."""
    handle = await client.call_tool(name, arguments)
    assert handle["resultType"] == "task", handle
    return {"taskId": handle["taskId"]}


async def look(client, task):
    return await client.request("tasks/get", task)


async def look_until_over(client, task):
    """Poll as a client does, in virtual time."""
    while True:
        seen = await look(client, task)
        if seen["status"] in {"completed", "failed", "cancelled"}:
            return seen
        await trio.sleep(seen["pollIntervalMs"] / 1000)


def text(result):
    return result["content"][0]["text"]
