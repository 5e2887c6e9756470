"""A plugin of pytest: notes which lines each test runs, and how long it takes; for `tests.mutation.run`."""

import os
from collections.abc import Iterator

import coverage
import pytest

DATA = "MUTATION_DATA"
"""The environment variable that names the files into which it is written: each process adds a suffix."""

_SOURCES = ["mcpbus_actors", "mcpbus"]


class _Covering:
    def __init__(self) -> None:
        self._coverage = coverage.Coverage(
            data_file=os.environ[DATA], data_suffix=True, source=_SOURCES, config_file=False
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_unconfigure(self) -> None:
        self._coverage.stop()
        self._coverage.save()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Covering())
