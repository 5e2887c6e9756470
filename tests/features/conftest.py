"""A client without a wire: asks the table of methods and decodes what it answers."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from mcpbus.core.call import Call
from mcpbus.core.reached_limits import ReachedLimits
from mcpbus.core.request_context import RequestContext
from mcpbus.dispatch.methods import METHODS
from mcpbus.features.catalogue import Features
from mcpbus.protocol.jsonrpc import Request
from mcpbus.protocol.messages import decode_params
from mcpbus.protocol.meta import ModernClaim, read_routing
from mcpbus.protocol.owners import IN_PROCESS
from mcpbus.protocol.revisions import LATEST, REVISIONS, Era, Revision
from mcpbus.protocol.routes import Setting
from mcpbus.server import Server


class Client:
    def __init__(
        self,
        server: Server,
        revision: str | Revision = LATEST,
        features: Features | None = None,
        principal: Any = None,
    ) -> None:
        self.server = server
        self.revision = REVISIONS[revision] if isinstance(revision, str) else revision
        self.features = server.features if features is None else features
        claim = ModernClaim(self.revision.name, {}) if self.revision.era is Era.MODERN else None
        self.context = RequestContext(
            Request(1, "test"),
            read_routing(msgspec.Raw(b"{}")),
            self.revision,
            Setting.SHARED,
            IN_PROCESS,
            claim,
            principal=principal,
        )

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        METHODS[method].check(self.revision, self.features)
        return msgspec.json.decode(self.answer(method, self.params(method, params)))

    def answer(self, method: str, params: Any) -> bytes:
        answer = METHODS[method].answer
        assert answer is not None
        return answer(params, self.context, self.features, self.server)

    def params(self, method: str, params: dict[str, Any]) -> Any:
        return decode_params(METHODS[method].params, msgspec.Raw(msgspec.json.encode(params)))

    async def run(self, method: str, **params: Any) -> dict[str, Any]:
        return msgspec.json.decode(await self.run_raw(method, **params))

    async def run_raw(self, method: str, **params: Any) -> bytes:
        row = METHODS[method]
        row.check(self.revision, self.features)
        assert row.prepare is not None
        bus: Any = SimpleNamespace(
            server=self.server, runner=self.server.runner, clock=float, reached=ReachedLimits()
        )
        prepared = row.prepare(self.params(method, params), self.context, self.features)
        call = Call(None, bus=bus, context=self.context, handler=prepared)
        return await prepared.run(call)

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
