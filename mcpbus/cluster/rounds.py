"""The rounds of calls, each used in one process alone."""

import secrets
from contextlib import suppress

from mcpbus.cluster.chores import BackgroundTasks
from mcpbus.cluster.directory import ClusterDirectory
from mcpbus.cluster.records import Records
from mcpbus.core.admission import ServerOverloaded
from mcpbus.protocol.request_state import RoundState, StateSealer


class DirectoryRounds:
    """Uses rounds up in the directory; see `mcpbus.core.other_processes.RoundRegistry`.

    Args:
        directory: Knows which were used.
        records: How it is asked.
        sealer: Tells the time as states have it.
        chores: Where it is written what nobody waits for.
    """

    def __init__(
        self, directory: ClusterDirectory, records: Records, sealer: StateSealer, chores: BackgroundTasks
    ) -> None:
        self._directory = directory
        self._records = records
        self._sealer = sealer
        self._chores = chores

    async def use(self, state: RoundState) -> bool:
        """See `RoundRegistry`."""
        user = secrets.token_urlsafe(8)
        with self._records.asking():
            return await self._directory.claim_round(
                state.round.hex(), user, max(1.0, state.expires - self._sealer.now())
            )

    def note(self, state: RoundState) -> None:
        """See `RoundRegistry`."""
        self._chores.start_soon(self._note, state)

    async def _note(self, state: RoundState) -> None:
        with suppress(ServerOverloaded):  # the log has it
            await self.use(state)
