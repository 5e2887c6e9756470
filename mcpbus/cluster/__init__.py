"""Several processes that serve as one: what is named in one of them is found from all, over links between them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpbus.cluster.redis import Redis
    from mcpbus.cluster.tcp import TlsPair

__all__ = ["Redis", "TlsPair"]


def __getattr__(name: str) -> Any:
    """Import what replicas need when somebody asks for it: each program imports a part of this package, and few are replicas."""
    if name == "Redis":
        from mcpbus.cluster.redis import Redis  # noqa: PLC0415

        return Redis
    if name == "TlsPair":
        from mcpbus.cluster.tcp import TlsPair  # noqa: PLC0415

        return TlsPair
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
