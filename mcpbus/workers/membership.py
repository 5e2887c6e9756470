"""How the process of a server becomes one of several that serve the same: replicas, or the workers of one machine."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import attrs

from mcpbus.serving.errors import ServingError

if TYPE_CHECKING:
    from mcpbus.cluster.directory import Cluster
    from mcpbus.cluster.node import Node
    from mcpbus.cluster.redis import RedisReplicas
    from mcpbus.workers.worker import Worker


def open_peers(
    cluster: "Cluster | RedisReplicas | None", secrets: Sequence[bytes], worker: "Worker | None"
) -> "AbstractAsyncContextManager[Cluster | None]":
    """Find the other processes that serve the same, if there are any.

    Args:
        cluster: What they find each other by; None of a server that is alone, or has none but those on this machine.
        secrets: The server's own keys.
        worker: What this process is, if it is one of several on this machine.

    Raises:
        ServingError: On entering: it cannot be one of them.
    """
    if cluster is None:
        return nullcontext(None if worker is None else worker.cluster)
    from mcpbus.cluster.redis import RedisReplicas  # noqa: PLC0415 - it is for those who have it

    return _meet_at(cluster, secrets, worker) if isinstance(cluster, RedisReplicas) else nullcontext(cluster)


@asynccontextmanager
async def _meet_at(
    redis: "RedisReplicas", secrets: Sequence[bytes], worker: "Worker | None"
) -> "AsyncIterator[Cluster]":
    from mcpbus.cluster.directory import JoinError  # noqa: PLC0415

    try:
        async with redis.join(secrets) as cluster:
            yield cluster if worker is None else worker.join(cluster)
    except (JoinError, ImportError) as error:
        raise ServingError(str(error)) from error


def open_node(cluster: "Cluster | None") -> "AbstractAsyncContextManager[Node | None]":
    """Open what leads to the other processes that serve the same, if there are any."""
    if cluster is None:
        return nullcontext()
    from mcpbus.cluster import node  # noqa: PLC0415 - it speaks HTTP

    return node.open_node(cluster)


def begin_worker(workers: int, options: dict[str, Any]) -> "Worker | None":
    """Return what this process is to do as one of several; the one that keeps them does not return.

    Raises:
        SystemExit: They have ended.
    """
    if workers == 1:
        return None
    from mcpbus.serving.options import ServeOptions  # noqa: PLC0415 - what speaks HTTP is imported where it is used
    from mcpbus.workers.supervisor import run_workers  # noqa: PLC0415
    from mcpbus.workers.worker import Worker, is_worker  # noqa: PLC0415 - few servers have several

    if is_worker():
        return Worker.begin()
    listens = options.get("options") or ServeOptions()
    listens = attrs.evolve(listens, bind=options.get("bind") or listens.bind)
    sys.exit(run_workers(workers, listens, options.get("metrics"), options.get("inspect")))
