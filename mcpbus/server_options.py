"""What a `Server` is given, and is refused at once if it cannot be used so; and what it is not given, but is elsewhere."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypedDict

import attrs

from mcpbus.core.limits import AS_LIMITS, DRAIN_SECONDS, Limits
from mcpbus.core.stores.protocol import EventStore, TaskStore
from mcpbus.features.option_types import check_awaited
from mcpbus.features.tool import Visible
from mcpbus.protocol.http.authentication import Authorizer
from mcpbus.protocol.keywords import Elsewhere, check_keywords
from mcpbus.protocol.messages import Icon
from mcpbus.protocol.validators import check_not_negative, check_numbers

if TYPE_CHECKING:
    from mcpbus.cluster.directory import Cluster
    from mcpbus.cluster.redis import RedisReplicas
    from mcpbus.telemetry import Telemetry
    from mcpbus.watch import Watch
    from mcpbus.watch.audit import Audit


class ServerFields(TypedDict, total=False):
    """The options of a `Server` whose tools come from elsewhere; see there."""

    version: str
    title: str
    description: str
    instructions: str
    website_url: str
    icons: Iterable[Icon]
    visible: Visible
    middleware: Sequence[Any]
    auth: Authorizer
    authenticate: Callable[..., Any]
    extensions: Mapping[str, Mapping[str, Any]]
    page_size: int
    list_ttl: float
    max_threads: int
    secret_keys: Sequence[bytes | str]
    listens: bool
    strict_arguments: bool


def serving() -> Elsewhere:
    """Return the options of other libraries in this place, and of serving: here they are for whatever serves the server."""
    from mcpbus.http_keywords import SERVING  # noqa: PLC0415 - only who has made a mistake waits for it

    return SERVING


def check_middleware(middleware: Sequence[Any]) -> None:
    """Refuse what cannot be called and awaited.

    Raises:
        TypeError: the message says what to write.
    """
    for each in middleware:
        if inspect.isclass(each):
            raise TypeError(f"middleware is an object that is called, not its class: write {each.__name__}()")
        if not callable(each):
            raise TypeError(f"middleware is a list of async functions, in which {each!r} is none")
        check_awaited("middleware", each)


@attrs.frozen(kw_only=True)
class OpenOptions:
    """What a server is opened with, see `mcpbus.Server.open`; None is as if it were left out.

    Raises:
        TypeError: One of these is no such thing; the message says what to write.
    """

    limits: Limits | None = None
    event_store: EventStore | None = None
    task_store: TaskStore | None = None
    cluster: "Cluster | RedisReplicas | None" = None
    watch: "Watch | None" = None
    telemetry: "Telemetry | bool | None" = None
    drain_timeout: float = DRAIN_SECONDS

    def __attrs_post_init__(self) -> None:
        if self.limits is not None and not isinstance(self.limits, Limits):
            raise TypeError(f"limits is a Limits(...), not {self.limits!r}")
        for name, given, method, example in (
            ("event_store", self.event_store, "replay", "mcpbus.stores.SqliteEventStore('events.db')"),
            ("task_store", self.task_store, "take_up", "mcpbus.tasks.SqliteTaskStore('tasks.db')"),
        ):
            if given is not None and (isinstance(given, type) or not hasattr(given, method)):
                raise TypeError(f"{name} is {example} or the like, not {given!r}")
        check_cluster(self.cluster)
        check_watch(self.watch)
        if self.telemetry is not None and self.telemetry is not False:
            from mcpbus.telemetry.telemetry import check_telemetry  # noqa: PLC0415 - it is for those who have it

            check_telemetry(self.telemetry)
        check_not_negative("Server", drain_timeout=self.drain_timeout)


def read_watch(watch: "Watch | None", *needing: object) -> "Watch | None":
    """Return the watch that a server is opened with: what needs one implies it."""
    if watch is not None or all(each is None or each is False for each in needing):
        return watch
    from mcpbus.watch import Watch  # noqa: PLC0415 - it is for those who have it

    return Watch()


def audit_of(
    audit: "Audit | None", watch: "Watch | None", number: int | None
) -> AbstractContextManager[None]:
    """Return what writes the audit log while a server is opened and served, if that is wanted; see `audit_written`."""
    if audit is None or watch is None:
        return nullcontext()
    from mcpbus.watch.audit import audit_written  # noqa: PLC0415 - it is for those who have it

    return audit_written(audit, watch, number)


def telemetry_of(
    telemetry: "Telemetry | bool | None", watch: "Watch | None"
) -> AbstractAsyncContextManager[Callable[[Any], Any] | None]:
    """Return what makes spans and metrics while a server is open, if that is wanted; see `telemetry_opened`."""
    if telemetry is None or telemetry is False or watch is None:
        return nullcontext()
    from mcpbus.telemetry.telemetry import telemetry_opened  # noqa: PLC0415 - it is for those who have it

    return telemetry_opened(telemetry, watch)


def check_watch(watch: object) -> None:
    """Refuse what records nothing.

    Raises:
        TypeError: It is no watch; the message says what to write.
    """
    if watch is None:
        return
    from mcpbus.watch import Watch  # noqa: PLC0415 - it is for those who have it

    if not isinstance(watch, Watch):
        raise TypeError(f"watch is a mcpbus.watch.Watch(), not {watch!r}")


def check_cluster(cluster: object) -> None:
    """Refuse what no processes can find each other by.

    Raises:
        TypeError: It is no such thing; the message says what to write.
    """
    if cluster is None:
        return
    from mcpbus.cluster.directory import Cluster  # noqa: PLC0415 - it is for those who have it
    from mcpbus.cluster.redis import RedisReplicas  # noqa: PLC0415

    if not isinstance(cluster, Cluster | RedisReplicas):
        raise TypeError(f"cluster is a mcpbus.cluster.RedisReplicas('redis://...'), not {cluster!r}")


def check_serving(
    owner: str,
    http: Mapping[str, object],
    *called: Callable[..., Any],
    metrics: object = None,
    inspect: object = None,
    audit: object = None,
    workers: int = 1,
) -> None:
    """Refuse what a server cannot be served with over HTTP, before anything is opened.

    Args:
        owner: What was called, such as ``server.run()``.
        http: The keywords that are not its own: the fields of `HttpOptions`.
        *called: What takes those that are.
        metrics: Where the figures are to be, if they have an address of their own.
        inspect: Where the inspector is to be, if there is to be one.
        audit: Where the audit log is to be, likewise.
        workers: How many processes serve.

    Raises:
        TypeError: One is not known; the message says what to write.
        ValueError: One cannot be right.
    """
    from mcpbus.http_keywords import read_http_options  # noqa: PLC0415 - what speaks HTTP is imported where it is used

    read_http_options(owner, http, *called)
    if metrics is not None:
        from mcpbus.metrics import addresses_of  # noqa: PLC0415 - few servers have one

        addresses_of(metrics, workers)
    if inspect is not None:
        from mcpbus.metrics import check_inspect  # noqa: PLC0415 - as above

        check_inspect(inspect, workers)
    if audit is not None:
        from mcpbus.watch.audit import check_audit  # noqa: PLC0415 - as above

        check_audit(audit)


def check_running(
    transport: str,
    workers: int,
    options: Mapping[str, Any],
    *,
    serve: Callable[..., Any],
    run: Callable[..., Any],
) -> None:
    """Refuse what a server cannot be run with; see `Server.run`.

    Args:
        transport: "http" or "stdio".
        workers: How many processes serve.
        options: The keywords for the one or the other.
        serve: What takes them over HTTP, with the fields of `HttpOptions`.
        run: What was called.

    Raises:
        TypeError: One is not known; the message says what to write.
        ValueError: One cannot be right.
    """
    check_numbers("server.run()", workers=workers)
    if not isinstance(workers, int):
        raise TypeError(f"server.run(): workers is a whole number, not {workers!r}")
    if workers < 1 or (workers > 1 and transport != "http"):
        raise ValueError(f"workers is {workers}: it is at least 1, and more than that only over HTTP")
    check_cluster(options.get("cluster"))
    if workers > 1 and options.get("cluster") is not None:
        options["cluster"].check_for_workers()
    if transport == "stdio":
        check_keywords("server.run('stdio')", options, ("limits", "drain_timeout"), AS_LIMITS)
        check_not_negative("server.run('stdio')", drain_timeout=options.get("drain_timeout", 0))
    elif transport == "http":
        own = inspect.signature(serve).parameters
        http = {name: options[name] for name in options if name not in own}
        check_serving(
            "server.run()",
            http,
            serve,
            run,
            metrics=options.get("metrics"),
            inspect=options.get("inspect"),
            audit=options.get("audit"),
            workers=workers,
        )
    else:
        raise ValueError(
            f"transport is {transport!r}: it must be 'http', which is Streamable HTTP, HTTP+SSE and WebSocket at once, "
            f"or 'stdio'"
        )
