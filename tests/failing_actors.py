"""A plugin of pytest: a test of the bus in which an actor fails has found a defect, whatever else it sees, unless it is about that."""

import logging
from collections.abc import Iterator

import pytest

_FOLDERS = {"asking", "bus", "tasks", "transport"}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "failing: has an actor, or what it started, fail on purpose")


@pytest.fixture(autouse=True)
def _no_actor_fails(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.path.parent.name not in _FOLDERS or request.node.get_closest_marker("failing"):
        yield
        return
    reported: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = reported.append
    logger = logging.getLogger("mcpbus.actors")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert [record.getMessage() for record in reported] == []
