"""Several processes that serve as one: what is named in one of them is found from all, over links between them."""

from typing import TYPE_CHECKING

from mcpbus.protocol.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from mcpbus.cluster.redis import RedisReplicas
    from mcpbus.cluster.tcp import TlsPair
else:
    # Each program imports a part of this package, and few are replicas.
    __getattr__, __dir__ = lazy_exports(
        __name__, {"mcpbus.cluster.redis": ("RedisReplicas",), "mcpbus.cluster.tcp": ("TlsPair",)}
    )

__all__ = ["RedisReplicas", "TlsPair"]
