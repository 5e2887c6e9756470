"""``pytest --at-least 100`` fails if fewer tests ran: all of them may have been skipped, each for a reason that looks well.

This is a plugin of pytest, since who counts is another process than those that run the tests side by side.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--at-least", type=int, default=0, help="how many tests have to run, and not be skipped")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Floor(config.getoption("--at-least")))


class Floor:
    """Counts the tests that ran.

    Args:
        least: How many have to.
    """

    def __init__(self, least: int) -> None:
        self._least = least
        self._ran = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._ran += report.when == "call" and not report.skipped

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._ran < self._least and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._ran < self._least:
            line = f"{self._ran} tests ran, and {self._least} have to: why are the others skipped, or gone?"
            terminalreporter.write_line(line, red=True)
