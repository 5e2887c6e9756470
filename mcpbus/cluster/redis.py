"""How processes on any machines serve as one through Redis or Valkey: ``server.open(cluster=RedisReplicas("redis://redis"))``."""

import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import attrs
import trio

from mcpbus.cluster import tcp
from mcpbus.cluster.directory import Cluster, JoinError
from mcpbus.cluster.link_handshake import MOST_KEYS
from mcpbus.cluster.tcp import HostPort, TlsPair
from mcpbus.core.stores.redis.connection import check_redis_url
from mcpbus.protocol.http.options import is_loopback_host
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.validators import check_numbers, check_text

if TYPE_CHECKING:
    from mcpbus.core.stores.redis.connection import RedisConnection

_PURPOSE: Final = b"mcpbus cluster 1"
_START_SECONDS: Final = 5.0
"""How long Redis may take to be there at the start."""
_LONGEST_NAMESPACE: Final = 64
_LOOPBACK: Final = "127.0.0.1"


def _check_url(_: object, __: object, url: str) -> None:
    check_redis_url(url)


def _check_namespace(_: object, __: object, namespace: str) -> None:
    check_text("RedisReplicas", namespace=namespace)
    if not (0 < len(namespace) <= _LONGEST_NAMESPACE and namespace.isprintable()) or set("{} ") & {
        *namespace
    }:
        raise ValueError(f"namespace is {namespace!r}: it is a short word without braces or spaces")


def _check_lease(_: object, __: object, lease: float) -> None:
    check_numbers("RedisReplicas", lease=lease)
    if not 1 <= lease <= 3600:
        raise ValueError(f"lease is {lease!r}: it is from 1 to 3600 seconds")


def _check_place(_: object, field: "attrs.Attribute[Any]", place: str | None) -> None:
    if place is not None:
        check_text("RedisReplicas", **{field.name: place})
        HostPort.parse(place)


def _check_tls(_: object, __: object, tls: Any) -> None:
    if tls is not None and not isinstance(tls, TlsPair):
        raise TypeError(f"RedisReplicas: tls is a TlsPair(...), and this is of type {type(tls).__name__}")


@explained
@attrs.frozen
class RedisReplicas:
    """Replicas: processes on any machines that serve the same server, and find each other in Redis or Valkey.

    They speak to each other over TCP, and prove to each other that they have one of the server's `secret_keys`, from which their keys are
    made. Without any they share a random one that is in Redis, and can be reached from the same machine alone.

    Attributes:
        url: ``redis://[user:password@]host[:port][/database]``, ``rediss://`` for TLS, or ``unix:///path/to/socket``.
        namespace: What sets those that serve the same server apart from all others in this Redis.
        link: Where this process listens for the others: ``HOST:PORT``; port 0 is any that is free, which it is for each of several workers.
        advertise: Where the others find it: ``HOST`` or ``HOST:PORT``. If not given, the address from which it speaks to Redis, and the
            port on which it listens.
        lease: Seconds after which a process that is not heard of is taken for ended.
        tls: How they encrypt what they say to each other: a pair of contexts; None if they do not.
    """

    url: str = attrs.field(repr=False, validator=_check_url)
    namespace: str = attrs.field(default="default", validator=_check_namespace)
    link: str = attrs.field(default="0.0.0.0:0", validator=_check_place)
    advertise: str | None = attrs.field(default=None, validator=_check_place)
    lease: float = attrs.field(default=5.0, validator=_check_lease)
    tls: TlsPair | None = attrs.field(default=None, repr=False, validator=_check_tls)

    def check_for_workers(self) -> None:
        """Check that several processes of one machine can join by the same words.

        Raises:
            ValueError: They cannot; the message says what to write.
        """
        link = HostPort.parse(self.link)
        if link.port:
            host = str(attrs.evolve(link, port=0))
            raise ValueError(
                f"link is {self.link!r}: each worker listens for the others on a port of its own, so write {host!r}"
            )
        if self.advertise is not None and HostPort.parse(self.advertise).port:
            host = self.advertise.rpartition(":")[0]
            raise ValueError(
                f"advertise is {self.advertise!r}: each worker has a port of its own, so write the host alone, {host!r}"
            )

    @asynccontextmanager
    async def join(self, secrets: Sequence[bytes]) -> AsyncIterator[Cluster]:
        """Be connected to Redis within the block, and yield what makes this process one of them. For the server.

        Args:
            secrets: What they have in common; empty if the server was given nothing of that kind.

        Raises:
            JoinError: That cannot be.
            ImportError: What speaks to Redis is not installed.
        """
        # coredis takes longer to import than all else together: for most of a second nobody else would have a turn.
        module = await trio.to_thread.run_sync(import_module, "mcpbus.core.stores.redis.connection")
        redis: RedisConnection = module.RedisConnection(self.url)
        link = HostPort.parse(self.link)
        if len(secrets) > MOST_KEYS:
            raise JoinError(
                f"replicas can tell each other of {MOST_KEYS} secret_keys, and there are {len(secrets)}"
            )
        if not secrets and not is_loopback_host(link.host):
            raise JoinError(
                f"replicas that listen for each other on {self.link} need a secret in common: give all of them the same "
                f"Server(secret_keys=[...]), or link='{_LOOPBACK}:0' if they are on one machine"
            )
        try:
            yield await self._meet(redis, link, secrets)
        finally:
            redis.close()

    async def _meet(self, redis: "RedisConnection", link: HostPort, secrets: Sequence[bytes]) -> Cluster:
        from mcpbus.cluster.redis_directory import RedisDirectory  # noqa: PLC0415

        try:
            await redis.call("PING", within=_START_SECONDS)
            place = await self._find_place(link)
            directory = RedisDirectory(
                redis,
                f"{{mcpbus:{self.namespace}}}",
                link=link,
                advertise=place,
                lease=self.lease,
                tls=self.tls,
            )
            keys = [hmac.digest(secret, _PURPOSE, "sha256") for secret in secrets]
            keys = keys or [await directory.common_key()]
        except OSError as error:
            raise JoinError(str(error)) from error
        return Cluster(
            directory=directory,
            keys=keys,
            patience=2 * self.lease,
            silence=self.lease,
            forget=directory.forget,
        )

    async def _find_place(self, link: HostPort) -> HostPort:
        if self.advertise is not None:
            return HostPort.parse(self.advertise)
        if not link.is_any:
            return attrs.evolve(link, port=0)
        host = urlsplit(self.url).hostname
        return HostPort(_LOOPBACK if host is None else await tcp.own_address(host), 0)
