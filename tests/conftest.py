"""Which shell the tests go through, mcpbus's own HTTP/1.1, HTTP/2 or WebSocket, or ASGI; and what they do without of what is only for speed."""

import gc
import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from benchmarks.tricks import TRICKS
from mcpbus.testing import probe
from tests import over_websocket
from tests.forwarding import forward_all
from tests.watched import watch_all

# How long an example takes says how busy the machine is. The examples are the same each time, so that a run that fails is one
# that something was changed before: what else there is, `make fuzz` looks for.
hypothesis.settings.register_profile(
    "any machine",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any machine")
# It would also take constants out of the modules that happen to be imported by then, which are others in another order of tests.
providers.is_local_module_file = lambda _: False

pytest_plugins = ["tests.engines", "tests.failing_actors", "tests.floor", "tests.properties.tally"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return twice as many as there are cores: half of the time the tests wait for programs."""
    return 2 * (os.cpu_count() or 1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shell",
        choices=["http1", "http2", "asgi", "websocket"],
        default="http1",
        help="how requests reach the bus: in memory as HTTP/1.1, HTTP/2 or ASGI calls; over sockets the bus is called through ASGI for asgi; "
        "for websocket those of clients in process do over a WebSocket in memory, and what sends HTTP requests is skipped",
    )
    parser.addoption(
        "--without",
        choices=list(TRICKS),
        help="the speed trick that is taken out, one of benchmarks/tricks.py",
    )

    parser.addoption("--watched", action="store_true", help="have a watch record what each bus does")
    parser.addoption(
        "--forward-all",
        action="store_true",
        help="have each request over HTTP served over a link, as one that has come to another process",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Whoever runs the tests in the background of a shell has them ignore what some of them do: press Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Under nohup it is ignored, and would be by the programs that they start: those begin with what is done by default where there is
    # a handler here, even one that does nothing.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    shell = config.getoption("--shell")
    if shell == "websocket":
        over_websocket.install()
        config.pluginmanager.register(over_websocket)
    else:
        probe.DEFAULT_SHELL = shell
    if config.getoption("--forward-all"):
        forward_all()
    if config.getoption("--watched"):
        watch_all()
    config.addinivalue_line(
        "markers",
        "at_home(why): is about what is at the client's own process, and not run with --forward-all",
    )
    config.addinivalue_line(
        "markers", "unwatched: is about a bus that nothing watches, and not run with --watched"
    )
    config.addinivalue_line("markers", "one_shell(why): is not run with another --shell than http1")
    config.addinivalue_line(
        "markers", "once(why): is run neither with another --shell nor with --forward-all"
    )
    for trick in TRICKS:
        config.addinivalue_line("markers", f"{trick}: is about {trick} itself, and not run without it")
    trick = config.getoption("--without")
    if trick is not None:
        TRICKS[trick].take_out()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Have the garbage collector not go through all tests while they are collected, nor again whenever one of them runs."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    trick = config.getoption("--without")
    if trick is not None:
        leave_out(items, trick)
    if config.getoption("--watched"):
        leave_out(items, "unwatched")
    if config.getoption("--forward-all"):
        leave_out(items, "at_home", "once")
    if config.getoption("--shell") != "http1":
        leave_out(items, "one_shell", "once")


def leave_out(items: list[pytest.Item], *markers: str) -> None:
    items[:] = [item for item in items if not any(map(item.get_closest_marker, markers))]
