import pytest
from tally import Tally

_TALLY = pytest.StashKey[Tally]()


@pytest.fixture(scope="session")
def tally(pytestconfig):
    """Counts what the random worlds of this run came to."""
    return pytestconfig.stash.setdefault(_TALLY, Tally())


def pytest_terminal_summary(terminalreporter, config):
    if _TALLY in config.stash and config.stash[_TALLY].worlds:
        terminalreporter.section("random worlds")
        for line in config.stash[_TALLY].lines():
            terminalreporter.write_line(line)
