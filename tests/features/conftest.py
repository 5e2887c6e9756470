"""A client without a wire: asks the table of methods and decodes what it answers."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from mcpbus.core.call import CallActor
from mcpbus.core.from_thread import FromThread
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.limits import Limits
from mcpbus.core.request_context import RequestContext
from mcpbus.dispatch.backend import FeaturesBackend
from mcpbus.features.catalogue import FeatureSet
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.meta import ModernClaim, read_routing
from mcpbus.protocol.principals import IN_PROCESS
from mcpbus.protocol.revisions import LATEST, REVISIONS, Era, Revision
from mcpbus.protocol.routes import TransportKind
from mcpbus.server import Server


class Client:
    def __init__(
        self,
        server: Server,
        revision: str | Revision = LATEST,
        features: FeatureSet | None = None,
        principal: Any = None,
    ) -> None:
        self.server = server
        self.revision = REVISIONS[revision] if isinstance(revision, str) else revision
        self.principal = principal
        self.backend = FeaturesBackend(server, server.runner)
        if features is not None:
            self.backend._features = features

    def begin(self, method: str, **params: Any) -> tuple[RequestContext, Any]:
        raw = msgspec.Raw(msgspec.json.encode(params))
        claim = ModernClaim(self.revision.name, {}) if self.revision.era is Era.MODERN else None
        context = RequestContext(
            JsonRpcRequest(1, method, raw),
            read_routing(raw),
            self.revision,
            TransportKind.DUPLEX,
            IN_PROCESS,
            claim,
            principal=self.principal,
        )
        return context, self.backend.begin(context)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return msgspec.json.decode(self.ask_raw(method, **params))

    def ask_raw(self, method: str, **params: Any) -> bytes:
        _, result = self.begin(method, **params)
        assert isinstance(result, bytes)
        return result

    async def run(self, method: str, **params: Any) -> dict[str, Any]:
        return msgspec.json.decode(await self.run_raw(method, **params))

    async def run_raw(self, method: str, **params: Any) -> bytes:
        context, handler = self.begin(method, **params)
        bus: Any = SimpleNamespace(
            result_suffixes=self.server.tails,
            clock=float,
            limits=Limits(),
            limit_monitor=LimitMonitor(),
            from_thread=FromThread(),
        )
        return await handler.run(CallActor(None, bus=bus, context=context, handler=handler))

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return await self.run("tools/call", name=name, arguments=arguments)

    async def text(self, name: str, **arguments: Any) -> str:
        result = await self.call(name, **arguments)
        (block,) = result["content"]
        return block["text"]

    def tool(self, name: str) -> dict[str, Any]:
        (found,) = (tool for tool in self.ask("tools/list")["tools"] if tool["name"] == name)
        return found


@pytest.fixture
def server() -> Server:
    return Server("test", version="1.0")


@pytest.fixture
def client(server: Server) -> Client:
    server.runner.inline = True
    return Client(server)


@pytest.fixture
def connect() -> type[Client]:
    return Client
