"""Our own servers and the bare limits, as the suite knows them."""

import sys
from importlib.util import find_spec
from pathlib import Path

import attrs

from benchmarks.peers.peer import Ability, Absent, Command, Peer, Wire

ROOT = Path(__file__).parents[2]


@attrs.frozen(kw_only=True)
class Own(Peer):
    """A module of ours in the interpreter that runs the suite.

    Attributes:
        version: Empty: it is the one that is installed.
        module: Its name in this package.
        variant: Which of the servers in it, if there are several.
        imports: What else must be installed.
    """

    language: str = "Python"
    version: str = ""
    module: str
    variant: str = ""
    imports: tuple[str, ...] = ()

    def install(self, folder: Path) -> None:  # noqa: ARG002  it is here already
        """See that what it imports is there.

        Raises:
            Absent: Something is not.
        """
        for name in self.imports:
            if find_spec(name) is None:
                raise Absent(f"{name} is not installed: pip install '.[bench]'")

    def command(self, folder: Path, port: int) -> Command:  # noqa: ARG002  it runs where it is
        """Return how it is started."""
        words = [f"benchmarks.servers.{self.module}", *([self.variant] if self.variant else []), str(port)]
        return Command([sys.executable, "-m", *words], folder=ROOT)


_ALL = frozenset(Ability)

OURS: tuple[Peer, ...] = (
    Own(name="mcpbus", title="mcpbus", package="mcpbus", module="bus", variant="lane", abilities=_ALL),
    Own(
        name="mcpbus-asgi",
        title="mcpbus, --server hypercorn",
        package="mcpbus",
        module="bus",
        variant="asgi",
    ),
    Own(
        name="mcpbus-uvicorn",
        title="mcpbus, uvicorn",
        package="mcpbus",
        module="bus",
        variant="uvicorn",
        imports=("uvicorn", "uvloop", "httptools"),
    ),
    Own(
        name="mcpbus-http2",
        title="mcpbus, HTTP/2",
        package="mcpbus",
        module="bus",
        variant="lane",
        wire=Wire.HTTP2,
    ),
    Own(
        name="mcpbus-websocket",
        title="mcpbus, WebSocket",
        package="mcpbus",
        module="bus",
        variant="lane",
        wire=Wire.WEBSOCKET,
    ),
    Own(
        name="trio-httptools",
        title="trio + httptools, a fixed answer",
        package="trio",
        module="limit",
        fixed=True,
        imports=("httptools",),
    ),
    Own(
        name="bare-hypercorn",
        title="hypercorn on trio, a fixed answer",
        package="hypercorn",
        module="plain",
        fixed=True,
        variant="hypercorn",
    ),
    Own(
        name="bare-uvicorn",
        title="uvicorn (uvloop, httptools), a fixed answer",
        package="uvicorn",
        module="plain",
        fixed=True,
        variant="uvicorn",
        imports=("uvicorn", "uvloop", "httptools"),
    ),
)
