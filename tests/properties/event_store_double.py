"""An event store that remembers all that it was ever given, whatever becomes of it, and may be slow, or fail."""

from collections.abc import Sequence

import trio

from mcpbus.stores import MemoryEventStore


class WitnessStore(MemoryEventStore):
    """An event store in memory, with a record beside it.

    Attributes:
        record: The events of each stream by session and stream, in order.
        finals: The streams that have ended.
    """

    def __init__(self, manner: str) -> None:
        super().__init__(max_items=40 if manner == "small" else 100_000)
        self._manner = manner
        self._turns = 0
        self.record: dict[tuple[str, str], list[bytes]] = {}
        self.finals: set[tuple[str, str]] = set()

    async def append(
        self, session: str, stream: str, first: int, events: Sequence[bytes], *, final: bool
    ) -> None:
        self._turns += 1
        if self._manner == "slow":
            await trio.sleep((0, 0.5, 0.9)[self._turns % 3])
        if self._manner == "failing" and self._turns % 7 == 0:
            if self._turns % 2:
                raise OSError("disk full")
            await trio.sleep_forever()
        await super().append(session, stream, first, events, final=final)
        kept = self.record.setdefault((session, stream), [])
        assert first == len(kept) + 1, "the events of a stream are numbered one by one"
        kept += events
        if final:
            self.finals.add((session, stream))

    def __contains__(self, stream: tuple[str, str]) -> bool:
        """Tell whether nothing of a stream was dropped, nor forgotten with its session."""
        batches = self._sessions.get(stream[0], {}).get(stream[1], {})
        return any(batch.first == 1 for batch in batches)
