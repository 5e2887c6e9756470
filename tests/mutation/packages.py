"""The packages that `make mutate` can break, and the tests that cover each of them."""

from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]

_APART = {
    "__init__",
    "bus",
    "cli",
    "context",
    "handlers",
    "limits",
    "http_keywords",
    "methods",
    "program",
    "runner",
    "server",
    "sync_context",
    "testing",
}
"""What stands before the core, and what is no more than a table: other tests are for these."""


@attrs.frozen
class Package:
    """Files to break, and the tests that run them in the process of pytest.

    Tests that start other processes are left out: a fault is put into this process alone.

    Attributes:
        sources: Patterns of the files, from the root of the repository.
        tests: Folders and files of tests, from the root. Each is mapped by itself, and its map serves all packages that name it.
    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]

    def files(self) -> list[str]:
        """Return the paths of the files, sorted."""
        found = {path for pattern in self.sources for path in ROOT.glob(pattern)}
        return sorted(path.relative_to(ROOT).as_posix() for path in found if path.stem not in _APART)


PROGRAMS = [
    "tests/login/test_login_commands.py",
    "tests/proxy/test_gateway.py",
    "tests/proxy/test_gateway_following.py",
    "tests/proxy/test_on_the_wire.py",
    "tests/serving/test_shutdown_on_signals.py",
]
"""Files in those folders that are left out: they start programs, in which no fault is put, and take longest."""


def _tests(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/{name}" for name in names)


PACKAGES = {
    "core": Package(
        (
            "actors/mcpbus_actors/*.py",
            "mcpbus/*.py",
            "mcpbus/process/*.py",
            "mcpbus/workers/*.py",
            "mcpbus/core/**/*.py",
            "mcpbus/dispatch/*.py",
            # What the core goes by, of the rules that are the protocol's.
            *(f"mcpbus/protocol/{name}.py" for name in ("bounded_cache", "enums", "principals", "routes")),
        ),
        _tests(
            "actors",
            "auth",
            "bus",
            "asking",
            "client",
            "transport",
            "tasks",
            "stores",
            "properties",
            "serving/test_isolation.py",
            "test_blocked.py",
            "test_standard_error.py",
        ),
    ),
    "auth": Package(("mcpbus/auth/*.py",), _tests("auth", "transport", "bus")),
    "transports": Package(("mcpbus/transports/*.py",), _tests("transport", "bus", "serving")),
    "serving": Package(("mcpbus/serving/**/*.py",), _tests("serving", "transport", "bus")),
    "client": Package(("mcpbus/client/**/*.py",), _tests("client", "login")),
    "upstream": Package(("mcpbus/upstream/*.py",), _tests("proxy")),
    "cluster": Package(("mcpbus/cluster/*.py",), _tests("cluster", "stores")),
}


def package_of(path: str) -> Package | None:
    """Return the package that has a file, or None if none has it."""
    return next((package for package in PACKAGES.values() if path in package.files()), None)
