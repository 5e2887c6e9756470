"""Which HTTP shell the tests go through: mcpbus's own HTTP/1.1, or ASGI and hypercorn."""

import pytest

from mcpbus.testing import probe


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shell",
        choices=["http1", "asgi"],
        default="http1",
        help="how requests reach the bus: in memory as HTTP/1.1 or as ASGI calls, over sockets by the lane or by hypercorn",
    )


def pytest_configure(config: pytest.Config) -> None:
    probe.DEFAULT_SHELL = config.getoption("--shell")
