"""Tools whose calls become tasks, for clients that declared the extension."""

import msgspec
import trio

from mcpbus import Context, ProtocolError, Server, ToolError
from mcpbus.asking import AcceptedElicitation, Elicit
from mcpbus.tasks import TaskSupport

_WORK = 1.0


class Deletion(msgspec.Struct):
    confirm: bool


class Name(msgspec.Struct):
    name: str


async def greet(name: str) -> str:
    """Greet somebody; never a task."""
    return f"Hello, {name}!"


async def slow_compute(seconds: float, label: str) -> str:
    """Work for as long as it is told."""
    await trio.sleep(seconds)
    return f"{label}: computed for {seconds:g} s"


async def failing_job() -> str:
    """Fail as a tool does, which completes the task."""
    await trio.sleep(_WORK)
    raise ToolError("The job failed, as it always does.")


async def protocol_error_job() -> str:
    """Fail as a request does, which fails the task."""
    await trio.sleep(_WORK)
    raise ProtocolError(-1, "The job broke the protocol, as it always does.")


async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask before a file is deleted."""
    answer = await ctx.elicit(f"Delete {filename}?", Deletion, key="confirm")
    sure = isinstance(answer, AcceptedElicitation) and answer.data.confirm
    return f"{filename} was {'deleted' if sure else 'kept'}."


async def multi_input(ctx: Context) -> str:
    """Ask two things at once."""
    answers = await ctx.ask_all(
        {"name": Elicit("What is your name?", Name), "confirm": Elicit("Are you sure?", Deletion)}
    )
    return f"Answered: {', '.join(key for key, answer in answers.items() if isinstance(answer, AcceptedElicitation))}"


async def test_tool_with_task(ctx: Context) -> str:
    """Ask within the request, and go on as a task."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    await ctx.begin_task()
    await trio.sleep(_WORK)
    return f"Hello, {answer.data.name if isinstance(answer, AcceptedElicitation) else 'whoever you are'}!"


def add_jobs(server: Server) -> None:
    """Register the tools."""
    server.add_tool(greet)
    for function in (slow_compute, protocol_error_job, confirm_delete, multi_input):
        server.add_tool(function, task="optional")
    server.add_tool(failing_job, task="required")
    server.add_tool(test_tool_with_task, task=TaskSupport(required=True, deferred=True))
