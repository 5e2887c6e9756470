"""A server as a program on standard input and output."""

import json
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from wire import DEADLINE, LEGACY, call, environment, initialize, message, modernized, program

from mcpbus.tasks import TASKS
from tests.at_home import OWN_PROCESSES

pytestmark = OWN_PROCESSES


class Pipe:
    """A client at the other end of the pipes."""

    def __init__(self, process):
        self.process = process
        self._data = b""

    async def send(self, *bodies):
        await self.process.stdin.send_all(b"".join(json.dumps(body).encode() + b"\n" for body in bodies))

    async def receive(self):
        """The next message; None when standard output has ended."""
        while b"\n" not in self._data:
            data = await self.process.stdout.receive_some()
            if not data:
                assert not self._data
                return None
            self._data += data
        line, _, self._data = self._data.partition(b"\n")
        return json.loads(line)

    async def handshake(self, revision=LEGACY):
        await self.send(initialize(revision))
        assert (await self.receive())["result"]["protocolVersion"] == revision
        await self.send(message("notifications/initialized"))


PRINTS_FIRST = (
    "import runpy, sys; print('printed before'); sys.argv[1:] = ['stdio']; "
    "runpy.run_module('program_app', run_name='__main__')"
)


def stdio():
    return program("-m", "program_app", "stdio")


def buffered():
    """Return an environment in which programs buffer their standard output, as they do unless a user asks for less."""
    return {name: value for name, value in environment().items() if name != "PYTHONUNBUFFERED"}


def modern(body):
    return modernized(body)[0]


async def test_standard_output_is_the_protocols_alone():  # T-2, T-3
    """Whatever a tool writes to it, in whichever way, comes out at standard error."""
    async with program("-m", "program_app", "stdio", env=buffered()) as process:
        pipe = Pipe(process)
        await pipe.handshake()
        await pipe.send(call("chatty", id=1, token=1))
        assert (await pipe.receive())["method"] == "notifications/progress"
        assert (await pipe.receive())["result"]["content"][0]["text"] == "said"
        await process.stdin.aclose()
        assert await pipe.receive() is None
        errors = b""
        async for data in process.stderr:
            errors += data
        for line in (b"printed", b"written", b"to the descriptor", b"from a child", b"from another child"):
            assert line in errors


async def test_a_line_printed_before_serving_is_at_standard_error_while_it_serves():
    async with program("-c", PRINTS_FIRST, env=buffered()) as process:
        pipe = Pipe(process)
        await pipe.handshake()
        assert await process.stderr.receive_some() == b"printed before\n"
        await process.stdin.aclose()
        assert await pipe.receive() is None


def replies_to(*bodies):
    """What a program answers to an input that has ended before it began."""
    lines = b"".join(json.dumps(body).encode() + b"\n" for body in bodies)
    command = [sys.executable, "-m", "program_app", "stdio"]
    options = {"env": environment(), "cwd": Path(__file__).parent, "timeout": DEADLINE}
    ended = subprocess.run(command, input=lines, stdout=subprocess.PIPE, check=True, **options)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_all_that_was_asked_before_the_end_of_input_is_answered():
    legacy = [initialize(), message("notifications/initialized"), call("dawdle", id=1)]
    assert [reply["id"] for reply in replies_to(*legacy)] == ["init", 1]
    assert [reply["id"] for reply in replies_to(modern(call("dawdle", id=1)))] == [1]


def test_a_handler_that_closes_standard_output_keeps_nothing_from_its_client():
    legacy = [initialize(), message("notifications/initialized"), call("shut", id=1), call("dawdle", id=2)]
    assert sorted(str(reply["id"]) for reply in replies_to(*legacy)) == ["1", "2", "init"]


async def test_the_end_of_input_ends_it_promptly():  # T-9, L-15
    async with stdio() as process:
        pipe = Pipe(process)
        await pipe.handshake()
        await process.stdin.aclose()
        assert await pipe.receive() is None
        await process.wait()
        assert process.returncode == 0


@asynccontextmanager
async def ended_at_work():
    """A program whose input has ended while requests go on for ever. It has to end, and not by the drain's deadline."""
    async with stdio() as process:
        pipe = Pipe(process)
        await pipe.handshake()
        await pipe.send(call("stubborn", id=1, token=1), modern(call("stubborn", id=2, token=2)))
        assert {(await pipe.receive())["method"] for _ in range(2)} == {"notifications/progress"}
        await process.stdin.aclose()
        yield process
        await process.wait()
        assert process.returncode == 0


async def test_whoever_reads_no_more_either_does_not_delay_the_end():
    async with ended_at_work() as process:
        await process.stdout.aclose()


async def test_a_signal_after_the_end_of_input_ends_it_promptly():
    """As clients do that have waited long enough."""
    async with ended_at_work() as process:
        process.terminate()


async def test_nor_does_a_task_delay_it_then():
    async with stdio() as process:
        asked = modern(call("survive", id=1))
        asked["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {"extensions": {TASKS: {}}}
        pipe = Pipe(process)
        await pipe.send(asked)
        assert (await pipe.receive())["result"]["resultType"] == "task"
        await process.stdin.aclose()
        assert (await process.stderr.receive_some()).startswith(b"DRAINING")
        process.terminate()
        await process.wait()
        assert process.returncode == 0


async def test_a_log_that_nobody_reads_delays_neither_the_client_nor_the_end():
    async with stdio() as process:
        pipe = Pipe(process)
        for n in range(150):
            await pipe.send(modern(call("fail", id=n)))
            assert (await pipe.receive())["result"]["isError"]
        await process.stdin.aclose()
        assert await pipe.receive() is None
        await process.wait()
        assert process.returncode == 0


async def test_what_was_answered_before_the_end_of_input_is_written():
    async with stdio() as process:
        pipe = Pipe(process)
        await pipe.send(initialize(), message("ping", id="last"))
        await process.stdin.aclose()
        assert [(await pipe.receive())["id"] for _ in range(2)] == ["init", "last"]
        assert await pipe.receive() is None


async def test_a_client_that_reads_no_more_does_not_keep_it():
    async with stdio() as process:
        pipe = Pipe(process)
        await pipe.handshake()
        await process.stdout.aclose()
        await pipe.send(message("ping", id=1))
        await process.wait()
        assert process.returncode == 1  # its answer was lost


async def test_both_eras_on_one_pipe():  # D-10, D-11
    async with stdio() as process:
        pipe = Pipe(process)
        await pipe.send(modern(message("server/discover", {}, "d")))
        assert (await pipe.receive())["result"]["supportedVersions"] == ["2026-07-28"]
        await pipe.handshake()
        await pipe.send(call("echo", {"text": "old"}, id=1), modern(call("echo", {"text": "new"}, id="1")))
        replies = {(said := await pipe.receive())["id"]: said["result"] for _ in range(2)}
        assert replies[1] == {"content": [{"type": "text", "text": "old"}]}
        assert replies["1"]["resultType"] == "complete"
        assert replies["1"]["content"] == [{"type": "text", "text": "new"}]


async def test_an_id_in_flight_is_refused_across_eras():
    async with stdio() as process:
        pipe = Pipe(process)
        await pipe.handshake()
        await pipe.send(call("stubborn", id=1, token=1))
        assert (await pipe.receive())["method"] == "notifications/progress"
        await pipe.send(modern(call("echo", {"text": "x"}, id=1)))
        assert (await pipe.receive())["error"]["code"] == -32600
        await pipe.send(modern(call("echo", {"text": "x"}, id="1")))
        assert (await pipe.receive())["id"] == "1"


async def test_a_cancelled_request_is_not_answered():  # T-7, T-8
    async with stdio() as process:
        pipe = Pipe(process)
        await pipe.handshake()
        for era, request_id in ((dict, 1), (modern, 2)):
            await pipe.send(era(call("stubborn", id=request_id, token=request_id)))
            assert (await pipe.receive())["params"]["progressToken"] == request_id
            await pipe.send(message("notifications/cancelled", {"requestId": request_id}))
            await pipe.send(message("ping", id="after"))
            assert (await pipe.receive())["id"] == "after"
        assert (await process.stderr.receive_some()).startswith(b"CANCELLED")


async def test_what_is_no_message_is_told_and_does_no_harm():  # T-4
    async with stdio() as process:
        pipe = Pipe(process)
        await process.stdin.send_all(b"{nope\n\n[]\r\n7\n" + b"x" * 5_000_000 + b"\n")
        codes = [(await pipe.receive())["error"]["code"] for _ in range(4)]
        assert codes == [-32700, -32600, -32600, -32600]
        await pipe.send(message("tools/list", id=1))
        assert "initialize" in (await pipe.receive())["error"]["message"]
        await pipe.handshake()
        await pipe.send(initialize())
        assert (await pipe.receive())["error"]["code"] == -32600
        await pipe.send(message("ping", id=2))
        assert (await pipe.receive())["result"] == {}


async def test_a_message_that_comes_byte_by_byte():
    async with stdio() as process:
        pipe = Pipe(process)
        for byte in json.dumps(initialize()).encode() + b"\n":
            await process.stdin.send_all(bytes([byte]))
        assert (await pipe.receive())["id"] == "init"
