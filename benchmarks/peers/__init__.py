"""The servers of others that are measured, each written for its published package."""

from benchmarks.peers.published import PEERS

__all__ = ["PEERS"]
