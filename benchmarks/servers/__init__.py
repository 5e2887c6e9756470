"""The servers of our own that are measured, and what there is without a protocol."""

from benchmarks.servers.ours import OURS

__all__ = ["OURS"]
