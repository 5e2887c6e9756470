"""A program that runs a server of another SDK: it runs in a thread until it would serve, and its server is hosted in its own event loop.

So what the program opened before, such as a database, stays open as long as the server is hosted. Then the program continues, and
ends as it does at the end of its own transport.
"""

import asyncio
import inspect
import logging
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from typing import Any, Final, NoReturn

import attrs
import trio

from mcpbus.asyncio.home import AsyncioHome
from mcpbus.hosting.detect import is_foreign
from mcpbus.hosting.interception import Interception
from mcpbus.server_base import ServerBase

_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 10.0

_log = logging.getLogger("mcpbus")


@attrs.frozen
class ProgramServer:
    """The server that a program returns or runs.

    Attributes:
        server: The object: one of mcpbus, or one of another SDK.
        options: The initialization options with which the program runs it; None if its SDK makes them.
        runs: Whether the program runs it, and waits meanwhile.
    """

    server: Any
    options: Any
    runs: bool


class Program:
    """A function that returns or runs a server, in a thread of its own.

    Args:
        name: The target that names it, for people.
        load: Imports it. Runs in the calling thread.
        arguments: Its command line, without its name.
    """

    def __init__(
        self, name: str, load: Callable[[], Callable[[], Any]], arguments: Sequence[str] = ()
    ) -> None:
        self.name = name
        self._load = load
        self._arguments = arguments
        self._loop: asyncio.AbstractEventLoop | None = None
        self._home: AsyncioHome | None = None
        self._closing = asyncio.Event()
        self._resumed = threading.Event()
        self._started = threading.Event()
        self._ended = threading.Event()
        self._found: ProgramServer | None = None
        self._failure: BaseException | None = None

    # -- in the thread that loads it --------------------------------------------------------------

    def start(self) -> ProgramServer:
        """Run the program until it has a server.

        Its output goes to standard error until then, since standard output may be the protocol's.

        Raises:
            LookupError: It has none; the message says what it did instead. An exception of the program is raised.
        """
        with (
            redirect_stdout(sys.stderr),
            Interception(self._suspend, self._refuse_web) as interception,
            self._pretended(),
        ):
            function = self._load()
            interception.intercept_authors()
            thread = threading.Thread(target=self._run, args=(function,), name=self.name, daemon=True)
            thread.start()
            started = self._started.wait(_START_SECONDS)
        if not started:
            raise LookupError(f"{self.name} has run no MCP server within {_START_SECONDS:g} seconds")
        if self._failure is not None:
            raise self._failure
        assert self._found is not None  # noqa: S101 - it started
        return self._found

    @contextmanager
    def _pretended(self) -> Iterator[None]:
        """Give the program its command line, no signals, and an end of `ServerBase.run`, while it starts."""
        set_signal, arguments = signal.signal, sys.argv
        loop_class: Any = asyncio.SelectorEventLoop
        add_handler, run_own = loop_class.add_signal_handler, ServerBase.run
        suspend = self._suspend_here

        def run(server: Any, *_: object, **__: object) -> None:
            suspend(server)

        def ignore_signal(number: Any, handler: Any) -> Any:
            own = signal.getsignal(number)
            if threading.current_thread() is threading.main_thread() or handler is own:
                return set_signal(
                    number, handler
                )  # the latter is how trio asks whether a thread is the main one
            return own  # signals are those of mcpbus

        with ExitStack() as stack:
            stack.callback(setattr, sys, "argv", arguments)
            stack.callback(setattr, signal, "signal", set_signal)
            stack.callback(setattr, loop_class, "add_signal_handler", add_handler)
            stack.callback(setattr, ServerBase, "run", run_own)
            sys.argv = [self.name, *self._arguments]
            signal.signal = ignore_signal  # type: ignore[assignment]  # all of these are restored soon
            loop_class.add_signal_handler = lambda *_: None
            ServerBase.run = run  # type: ignore[assignment, method-assign]
            yield

    # -- in the thread of the program --------------------------------------------------------------

    def _run(self, function: Callable[[], Any]) -> None:
        loop = asyncio.new_event_loop()  # the main thread of a program has one, too
        asyncio.set_event_loop(loop)
        try:
            value = function()
            if inspect.isawaitable(value):
                asyncio.run(self._finish(value))
            else:
                self._take(value)
        except SystemExit as end:
            self._fail(LookupError(f"{self.name} {_fate_of(end)}"), end.code)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self._fail(error, error)
        finally:
            loop.close()
            self._ended.set()
            self._started.set()
            if self._home is not None:
                self._home.note_end_of_loop()

    async def _finish(self, value: Awaitable[Any]) -> None:
        """Await an async function, and keep its loop if it returns a server."""
        returned = await value
        if _is_server(returned):
            await self._suspend(returned, None)
        else:
            self._take(returned)

    def _take(self, value: object) -> None:
        """Take the value that the program returned."""
        if self._started.is_set():
            return
        if _is_server(value):
            self._found = ProgramServer(value, None, runs=False)
        else:
            returned = "" if value is None else f" a value of type {type(value).__name__}"
            self._failure = LookupError(f"{self.name} returned{returned} and ran no MCP server")

    def _fail(self, failure: BaseException, raised: object) -> None:
        if not self._started.is_set():
            self._failure = self._failure or failure
        elif raised not in {None, 0} and not isinstance(raised, asyncio.CancelledError):
            _log.error(
                "%s failed as it ended: %r",
                self.name,
                raised,
                exc_info=raised if isinstance(raised, Exception) else None,
            )

    async def _suspend(self, server: object, options: object) -> None:
        """Take the server that the program runs, and wait until the program may end."""
        if trio.lowlevel.in_trio_run():
            self._refuse(f"{self.name} runs its server on trio, and mcpbus hosts programs on asyncio alone")
        self._loop = asyncio.get_running_loop()
        if not self._started.is_set():
            self._found = ProgramServer(server, options, runs=True)
            self._started.set()
        await self._closing.wait()

    def _suspend_here(self, server: object) -> None:
        """Take a server of mcpbus that the program runs, and wait until the program may end."""
        self._found = ProgramServer(server, None, runs=False)
        self._started.set()
        self._resumed.wait()

    def _refuse_web(self) -> NoReturn:
        self._refuse(
            f"{self.name} serves HTTP by itself, with uvicorn: name its server instead, as in weather.py:mcp"
        )

    def _refuse(self, fault: str) -> NoReturn:
        """End the program, whatever it makes of the exception."""
        failure = LookupError(fault)
        self._fail(failure, failure)
        raise failure

    # -- in trio ----------------------------------------------------------------------------------

    def home(self) -> AsyncioHome:
        """Return the event loop of the program as the home of its server. Call it in trio.

        Raises:
            RuntimeError: The program has ended.
        """
        if self._loop is None or self._ended.is_set():
            raise RuntimeError(f"{self.name} has ended, and its server with it: load it again")
        self._home = AsyncioHome(self._loop)
        if self._ended.is_set():
            self._home.note_end_of_loop()
        return self._home

    async def end(self) -> None:
        """Let the program end, and wait for that, though not for long."""
        self._resumed.set()
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._closing.set)
        with trio.CancelScope(shield=True):
            if not await trio.to_thread.run_sync(self._ended.wait, _END_SECONDS):
                _log.warning("%s has not ended within %g s", self.name, _END_SECONDS)


def _is_server(value: object) -> bool:
    return isinstance(value, ServerBase) or is_foreign(value)


def _fate_of(end: SystemExit) -> str:
    if isinstance(end.code, int | None):
        return f"exited with status {end.code or 0} before it ran an MCP server"
    return f"exited before it ran an MCP server: {end.code}"
