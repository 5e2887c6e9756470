"""Several processes that serve as one: what is named in one of them is found from all, over links between them."""

from mcpbus.cluster.redis import Redis
from mcpbus.cluster.tcp import TlsPair

__all__ = ["Redis", "TlsPair"]
