"""The client that the official conformance suite starts in each scenario: ``python -m tests.conformance.client URL``.

The suite says in its environment which scenario and revision it is about. It starts the clients of all scenarios at once, and measures
some of them by the clock: each waits here for its turn, before it costs any time.
"""

import fcntl
import os
import sys
from pathlib import Path

from tests.conformance.suite_outcome import FINISHED

TURN = "MCPBUS_CONFORMANCE_TURN"
"""Names the file whose lock is the turn."""


def main() -> None:
    """Do what the scenario wants that the environment names."""
    with Path(os.environ[TURN]).open("rb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        import trio

        from tests.conformance.client_scenarios import SCENARIOS

        trio.run(SCENARIOS[os.environ["MCP_CONFORMANCE_SCENARIO"]], sys.argv[1])
        sys.stdout.write(f"{FINISHED}\n")


if __name__ == "__main__":
    main()
