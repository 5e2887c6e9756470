"""An event store that promises to keep what it is given, and does so when it is told to."""

from mcpbus.stores import MemoryEventStore, Promise


class PromisingStore(MemoryEventStore):
    """Keeps nothing until it is told to.

    Attributes:
        asked: What it was asked for, and has not done.
    """

    def __init__(self):
        super().__init__()
        self.asked = []

    def append(self, *args, **named):
        def keep():
            MemoryEventStore.append(self, *args, **named)

        promise = Promise()
        self.asked.append((promise, keep))
        return promise

    def keep(self, error=None):
        """Keep all that it was asked to keep, or fail to."""
        asked, self.asked = self.asked, []
        for promise, keep in asked:
            promise.error = error
            if error is None:
                keep()
            promise.end()
