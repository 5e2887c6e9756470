"""How a program ends that is told to, by a signal or by its client: in order, at once, or with a word about what was lost."""

import os
import re
import signal
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from test_signals import Running
from test_stdio_program import Pipe
from wire import DEADLINE, call, message, modernized, program

from tests.at_home import OWN_PROCESSES

pytestmark = OWN_PROCESSES

SIGNALS = pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http"])
SOON = DEADLINE / 2


class Stdio(Running):
    """A program on standard input and output."""

    def __init__(self, process):
        super().__init__(process)
        self.pipe = Pipe(process)

    async def begin(self, body):
        """Send a modern request that says something at once, and hear it."""
        await self.pipe.send(modernized(body)[0])
        assert (await self.pipe.receive())["method"] == "notifications/progress"

    def close(self):
        """Nothing else is open."""


class Http(Running):
    """A program on a port."""

    async def begin(self, body):
        peer = await self.served.peer()
        await peer.send(*modernized(body))
        await peer.head()
        assert (await peer.said())["method"] == "notifications/progress"

    def close(self):
        self.served.close()


@asynccontextmanager
async def running(transport, *, drain=DEADLINE, deadline=DEADLINE, how=(), before=()):
    """Run the program with a lifespan; its child is not left behind by the tests."""
    where = transport if transport == "stdio" else "127.0.0.1:0"
    async with program(*before, "-m", "lifespan_app", where, drain, deadline, *how) as process:
        if transport == "stdio":
            run = Stdio(process)
        else:
            run = Http(process)
            await run.serves()
        await run.wrote(b"CHILD")
        await run.wrote(b"\n")
        run.child = int(re.search(rb"CHILD (\d+)", run.errors)[1])
        try:
            yield run
        finally:
            run.close()
            with suppress(ProcessLookupError):
                os.kill(run.child, signal.SIGKILL)


def lives(process_id):
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(autouse=True)
def _as_in_a_terminal():
    """SIGHUP does what it does by itself, even if the tests themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@TRANSPORTS
@SIGNALS
async def test_a_signal_drains_and_leaves_the_lifespan(transport, signum):
    async with running(transport, drain=0.1) as run:
        await run.begin(call("hold", {"how": "waits"}, id=1, token=1))
        run.process.send_signal(signum)
        if transport == "stdio":
            error = (await run.pipe.receive())["error"]
            assert error["message"] == "The server is shutting down"
            assert await run.pipe.receive() is None
        await run.wrote(b"LEFT")
        assert await run.ended() < SOON
        assert run.process.returncode == 0
        assert not lives(run.child)
        assert b"Traceback" not in run.errors + await run.rest()


async def test_a_hangup_that_is_ignored_stays_so():
    """As under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    async with running("stdio") as run:
        run.process.send_signal(signal.SIGHUP)
        await run.pipe.send(message("ping", id=1))
        assert (await run.pipe.receive())["id"] == 1


@TRANSPORTS
@pytest.mark.parametrize("how", ["shields itself", "blocks"])
async def test_a_second_signal_ends_it_at_once_whatever_a_handler_does(transport, how):
    async with running(transport) as run:
        await run.begin(call("hold", {"how": how}, id=1, token=1))
        run.process.send_signal(signal.SIGTERM)
        await run.wrote(b"HOLDS")
        run.process.send_signal(signal.SIGHUP)
        assert await run.ended() < SOON
        assert run.process.returncode == -signal.SIGHUP


@TRANSPORTS
@pytest.mark.parametrize("how", ["shields itself", "blocks"])
async def test_a_second_signal_ends_it_at_once_whatever_the_lifespan_does(transport, how):
    async with running(transport, how=[how]) as run:
        run.process.send_signal(signal.SIGINT)
        await run.wrote(b"HOLDS")
        run.process.send_signal(signal.SIGINT)
        assert await run.ended() < SOON
        assert run.process.returncode == -signal.SIGINT


async def test_signals_end_it_although_a_handler_has_blocked_it_before():
    async with running("stdio") as run:
        await run.pipe.send(modernized(call("block", id=1))[0])
        await run.wrote(b"HOLDS")
        # Python hears of a signal when its main thread does. Of two that come in the same moment another thread may take one.
        while run.process.poll() is None:
            run.process.send_signal(signal.SIGINT)
            await trio.sleep(0.01)
        assert run.process.returncode == -signal.SIGINT


@TRANSPORTS
async def test_a_handler_that_blocks_everybody_is_named_in_the_log(transport):
    async with running(transport) as run:
        await run.begin(call("hold", {"how": "blocks"}, id=1, token=1))
        run.process.send_signal(signal.SIGTERM)
        await run.wrote(b"the event loop has been blocked")
        await run.wrote(b"in hold_on\n")


HOLDING_ON = pytest.mark.parametrize("how", ["shields itself", "goes on"])
NOT_ENDED = b"the program has not ended, though "


async def ended_by_a_second_signal(run):
    run.process.send_signal(signal.SIGTERM)
    await run.ended()
    assert run.process.returncode == -signal.SIGTERM


@TRANSPORTS
@HOLDING_ON
async def test_a_handler_that_keeps_it_from_its_end_is_named_in_the_log(transport, how):
    async with running(transport, drain=0.1) as run:
        await run.begin(call("hold", {"how": how}, id=1, token=1))
        run.process.send_signal(signal.SIGTERM)
        await run.wrote(b"a second signal ends it at once\n")
        (line,) = [line for line in run.errors.splitlines() if NOT_ENDED in line]
        assert re.search(rb"it waits for hold \(\S+lifespan_app\.py:\d+, in hold_on\); a second", line)
        await ended_by_a_second_signal(run)


@TRANSPORTS
@HOLDING_ON
async def test_a_lifespan_that_keeps_it_from_its_end_is_named_in_the_log(transport, how):
    async with running(transport, drain=0.1, how=[how]) as run:
        run.process.send_signal(signal.SIGTERM)
        await run.wrote(b"a second signal ends it at once\n")
        assert re.search(
            rb"it waits for lifespan \(\S+lifespan_app\.py:\d+, in hold_on\); a second", run.errors
        )
        await ended_by_a_second_signal(run)


@TRANSPORTS
async def test_a_thread_that_keeps_it_from_its_end_is_named_in_the_log(transport):
    async with running(transport, drain=0.1, how=["leaves a thread"]) as run:
        run.process.send_signal(signal.SIGTERM)
        await run.wrote(b"LEFT")
        await run.wrote(b"a second signal ends it at once\n")
        assert re.search(
            rb"waits for thread 'Thread-\d+ \(stay\)', which runs stay \(\S+lifespan_app\.py:\d+\); a second",
            run.errors,
        )
        await ended_by_a_second_signal(run)


# -- what a client on stdio does not take ------------------------------------------------------------------------------

SIZE = 4 * 1024 * 1024


async def test_a_client_that_reads_nothing_for_long_gets_all_of_it():
    """Longer than the write deadline, and more than the pipe takes."""
    async with running("stdio", deadline=0.05) as run:
        calls = [call("large", {"size": SIZE}, id=n) for n in range(3)]
        await run.pipe.send(
            *(modernized(body)[0] for body in [*calls, call("later", {"seconds": 0.5}, id=3)])
        )
        await run.wrote(b"LATER")
        replies = {(said := await run.pipe.receive())["id"]: said["result"] for _ in range(4)}
        assert [len(replies[n]["content"][0]["text"]) for n in range(4)] == [SIZE, SIZE, SIZE, len("later")]
        await run.process.stdin.aclose()
        assert await run.pipe.receive() is None
        await run.ended()
        assert run.process.returncode == 0


@pytest.mark.parametrize("how", ["does not read", "has closed it"])
async def test_what_is_lost_is_told_and_the_status_is_not_0(how):
    async with running("stdio", deadline=0.05) as run:
        await run.pipe.send(modernized(call("large", {"size": SIZE}, id=1))[0])
        await run.process.stdout.receive_some(1)
        if how == "has closed it":
            await run.process.stdout.aclose()
        await run.process.stdin.aclose()
        assert await run.ended() < SOON
        assert run.process.returncode == 1
        errors = run.errors + await run.rest()
        assert b"did not take all that was said to it" in errors
        assert b"LEFT" in errors
        assert b"Traceback" not in errors


async def test_a_signal_does_not_wait_for_a_client_that_does_not_read():
    async with running("stdio", drain=0.1) as run:
        await run.pipe.send(modernized(call("large", {"size": SIZE}, id=1))[0])
        await run.process.stdout.receive_some(1)
        run.process.send_signal(signal.SIGTERM)
        assert await run.ended() < SOON
        assert run.process.returncode == 1
        assert b"did not take all that was said to it" in run.errors + await run.rest()


CLOSES = (
    "import os, sys; os.close(int(sys.argv[1])); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


@pytest.mark.parametrize(("descriptor", "name"), [(0, b"input"), (1, b"output")])
async def test_a_descriptor_that_is_closed_from_the_start_is_told_in_a_sentence(descriptor, name):
    async with program("-c", CLOSES, descriptor, "-m", "program_app", "stdio") as process:
        run = Running(process)
        assert await run.ended() < SOON
        assert process.returncode == 1
        (line,) = (await run.rest()).splitlines()
        assert line.startswith(b"standard %b is closed" % name)


async def test_without_standard_error_it_serves_all_the_same():
    async with program("-c", CLOSES, 2, "-m", "program_app", "stdio") as process:
        pipe = Pipe(process)
        await pipe.handshake()
        await pipe.send(call("echo", {"text": "hi"}, id=1))
        assert (await pipe.receive())["result"]["content"][0]["text"] == "hi"
        await process.stdin.aclose()
        assert await pipe.receive() is None
        await process.wait()
        assert process.returncode == 0
