"""A client without a wire: asks the table of methods and decodes what it answers."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from mcpbus.call import Call
from mcpbus.dispatch.methods import METHODS
from mcpbus.inbound import Caller
from mcpbus.protocol.jsonrpc import Request
from mcpbus.protocol.messages import decode_params
from mcpbus.protocol.revisions import LATEST, REVISIONS, Revision
from mcpbus.reached import ReachedLimits
from mcpbus.server import Server


class Client:
    def __init__(self, server: Server, revision: str | Revision = LATEST, **caller: Any) -> None:
        self.server = server
        self.revision = REVISIONS[revision] if isinstance(revision, str) else revision
        given = {"server": server, "features": server.features, "revision": self.revision}
        self.caller = Caller(**{**given, "tail": server.tails[self.revision], **caller})

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        row = METHODS[method]
        row.check(self.caller)
        assert row.answer is not None
        return msgspec.json.decode(row.answer(self.params(method, params), self.caller))

    def params(self, method: str, params: dict[str, Any]) -> Any:
        return decode_params(METHODS[method].params, msgspec.Raw(msgspec.json.encode(params)))

    async def run(self, method: str, **params: Any) -> dict[str, Any]:
        return msgspec.json.decode(await self.run_raw(method, **params))

    async def run_raw(self, method: str, **params: Any) -> bytes:
        row = METHODS[method]
        row.check(self.caller)
        assert row.prepare is not None
        bus: Any = SimpleNamespace(runner=self.server.runner, clock=float, reached=ReachedLimits())
        prepared = row.prepare(self.params(method, params), self.caller)
        request = Request(1, "test")
        call = Call(None, bus=bus, caller=self.caller, request=request, handler=prepared, rounds=False)
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
