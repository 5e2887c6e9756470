"""Servers opened for a test, and clients in the same process."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import trio
from mcpbus_actors.testing import wait_until_idle as _settle

from mcpbus.core.limits import AS_LIMITS, DRAIN_SECONDS
from mcpbus.features.definition import ServerDefinition
from mcpbus.features.dependencies import Plan
from mcpbus.features.errors import RegistrationError
from mcpbus.protocol.keywords import explained_as
from mcpbus.protocol.revisions import LATEST

if TYPE_CHECKING:
    from mcpbus.bus import Bus
    from mcpbus.client.client import Client
    from mcpbus.client.pending import OnInputRequest
    from mcpbus.cluster.directory import Cluster
    from mcpbus.core.limits import Limits
    from mcpbus.core.stores.protocol import EventStore, TaskStore
    from mcpbus.server import Server
    from mcpbus.telemetry import Telemetry
    from mcpbus.watch import Watch

Overrides: TypeAlias = Mapping[Callable[..., Any], Callable[..., Any]]


@asynccontextmanager
@explained_as(elsewhere=AS_LIMITS)
async def open_bus(
    server: "Server",
    *,
    limits: "Limits | None" = None,
    event_store: "EventStore | None" = None,
    task_store: "TaskStore | None" = None,
    drain_timeout: float = DRAIN_SECONDS,
    cluster: "Cluster | None" = None,
    watch: "Watch | None" = None,
    telemetry: "Telemetry | bool | None" = None,
    overrides: Overrides | None = None,
) -> AsyncIterator["Bus"]:
    """Open a server as `Server.open` does, with its plain functions run on the trio thread, all by trio's clock.

    Args:
        server: The server under test.
        limits: What clients may use.
        event_store: Keeps what legacy clients can come back for.
        task_store: Keeps tasks.
        drain_timeout: How long requests may go on when the block ends, in seconds of trio's clock.
        cluster: The others that serve the same, such as those of a `MemoryDirectory`.
        watch: Records what the bus does.
        telemetry: Makes spans and metrics of it.
        overrides: What is called instead of functions that `Depends` names, until the block ends; it may itself depend on others.

    Raises:
        RegistrationError: Nothing depends on such a function, or what is called instead takes what nobody fills.
    """
    if not isinstance(server, ServerDefinition):
        raise TypeError(f"open_bus and open_client take a mcpbus.Server, not {server!r}")
    if overrides is not None and not isinstance(overrides, Mapping):
        raise TypeError(f"overrides is a dict from one function to another, not {overrides!r}")
    overrides = overrides or {}
    _check_overrides(server, overrides)
    runner = server.runner
    before = runner.inline, runner.overrides
    runner.inline, runner.overrides = True, overrides
    try:
        opening = server.open(
            limits=limits,
            event_store=event_store,
            task_store=task_store,
            drain_timeout=drain_timeout,
            cluster=cluster,
            watch=watch,
            telemetry=telemetry,
        )
        async with opening as bus:
            bus.clock = trio.current_time
            yield bus
    finally:
        runner.inline, runner.overrides = before


@asynccontextmanager
@explained_as(elsewhere=AS_LIMITS)
async def open_client(
    server: "Server",
    *,
    revision: str = LATEST.name,
    principal: object = None,
    capabilities: dict[str, Any] | None = None,
    on_input_request: "OnInputRequest | None" = None,
    limits: "Limits | None" = None,
    overrides: Overrides | None = None,
) -> AsyncIterator["Client"]:
    """Open a server, and connect one client to it in process.

    Args:
        server: The server under test.
        revision: The protocol revision that the client speaks.
        principal: Who the client is.
        capabilities: What the client declares, such as ``{"elicitation": {}}``.
        on_input_request: Answers what handlers ask the client, as for `Bus.connect`.
        limits: What clients may use.
        overrides: As for `open_bus`.

    Raises:
        ValueError: There is no such revision.
        ProtocolError: The server refused the handshake.
    """
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(open_bus(server, limits=limits, overrides=overrides))
        connecting = bus.connect(
            revision=revision,
            principal=principal,
            capabilities=capabilities,
            on_input_request=on_input_request,
        )
        yield await stack.enter_async_context(connecting)


async def wait_until_idle(bus: "Bus") -> None:
    """Wait until nothing more happens on a bus unless time passes or a client acts."""
    await _settle(bus.system)


def _check_overrides(server: "Server", overrides: Overrides) -> None:
    plans = [*_plans(server)] if overrides else ()
    for provider in overrides:
        if not any(provider in plan.providers for plan in plans):
            raise RegistrationError(f"overrides: nothing of {server.name!r} depends on {provider!r}")
    for plan in plans:
        plan.replacing(overrides)


def _plans(server: "Server") -> Iterator[Plan]:
    features = server.features
    registries: tuple[Any, ...] = (features.tools, features.resources, features.templates, features.prompts)
    registered = [item for registry in registries for item in registry.registered().values()]
    for item in (*registered, *features.completers.values()):
        plan = item.function.signature.dependencies
        if plan is not None:
            yield plan
