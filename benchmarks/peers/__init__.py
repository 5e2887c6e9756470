"""The servers of others that are measured, each written for its published package."""

from benchmarks.peers.peer import Peer

PEERS: tuple[Peer, ...] = ()
