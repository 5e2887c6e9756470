"""What is said of a run in which too many tests were skipped."""

from types import SimpleNamespace

import pytest

from tests.floor import Floor

RAN, SKIPPED = (SimpleNamespace(when="call", skipped=skipped) for skipped in (False, True))
SET_UP = SimpleNamespace(when="setup", skipped=False)


@pytest.mark.parametrize(
    ("reports", "status", "expected"),
    [
        ([RAN, SKIPPED, RAN], pytest.ExitCode.OK, pytest.ExitCode.OK),
        ([RAN, SKIPPED, SET_UP], pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED),
        ([], pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERRUPTED),
    ],
)
def test_a_run_fails_in_which_fewer_tests_ran_than_have_to(reports, status, expected):
    floor, session, lines = Floor(2), SimpleNamespace(exitstatus=status), []
    for report in reports:
        floor.pytest_runtest_logreport(report)
    floor.pytest_sessionfinish(session)
    floor.pytest_terminal_summary(SimpleNamespace(write_line=lambda line, **_: lines.append(line)))
    assert session.exitstatus == expected
    assert bool(lines) is (reports.count(RAN) < 2)
