"""Another server whose every message a test writes itself: what no server of ours would say. In the same process, on virtual time."""

from contextlib import asynccontextmanager

import attrs
import msgspec
import trio
from upstreams import NEW, OLD

from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError
from mcpbus.client.negotiation import negotiate
from mcpbus.client.wire import encode_message
from mcpbus.protocol.jsonrpc import Undecodable
from mcpbus.protocol.meta import SERVER_INFO, SUBSCRIPTION_ID
from mcpbus.protocol.revisions import named
from mcpbus.proxy import Proxy

CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {},
    "completions": {},
    "logging": {},
}
SAID = {"content": [{"type": "text", "text": "done"}]}


class Scripted:
    """The other server. By default it has one tool, ``t``, and the resources ``d://a`` and ``d://{x}``, and answers all.

    Args:
        revision: Its revision.
        scoped: Whether connections say to which request belongs what is said.
        capabilities: What it declares.
        **answers: What answers a method, with "_" for each "/" in it: a result, or a function that is called with the wire, the id and
            the params, and returns one, or None where it sees to the answer itself.

    Attributes:
        wires: All connections that there were.
        heard: All messages that it was sent.
        listens: The resources of each listen that it has confirmed, by its id.
        unread: What it said that nobody could read.
        connected: How many connections there are.
        delay: How many seconds it takes to connect.
        down: Why nobody can connect, while that is so.
    """

    def __init__(self, revision=OLD, *, scoped=False, capabilities=CAPABILITIES, **answers):
        self.revision = revision
        self.scoped = scoped
        self.capabilities = capabilities
        self.answers = _ANSWERS | answers
        self.wires = []
        self.heard = []
        self.listens = {}
        self.unread = []
        self.connected = 0
        self.delay = 0
        self.down = None

    @asynccontextmanager
    async def connect(self, *, capabilities, revision=None, client_info=None):
        await trio.sleep(self.delay)
        revision = revision or self.revision
        if self.down is not None:
            raise ClientError(self.down)
        async with trio.open_nursery() as nursery:
            wire = Wire(self, nursery, capabilities, revision, client_info)
            self.wires.append(wire)
            self.connected += 1
            try:
                nursery.start_soon(wire.run)
                await negotiate(wire.client, named(revision))
                yield wire.client
            finally:
                self.connected -= 1
                wire.client.disconnected("it was closed")
                nursery.cancel_scope.cancel()

    def proxy(self, *, program=False, negotiates=False, introduces=False, **options):
        """A proxy of it, to which each connection is a process of its own if `program`; it may be told which revision to speak if `negotiates`."""
        proxy = Proxy(self.connect, **options)
        proxy._upstream = attrs.evolve(
            proxy._upstream, program=program, negotiates=negotiates, introduces=introduces
        )
        return proxy

    def asked(self, method):
        """The params of all requests of a method that came."""
        return [each.get("params") for each in self.heard if each.get("method") == method]


class Wire:
    """One connection to it."""

    def __init__(self, server, nursery, capabilities, revision, client_info):
        self.server = server
        self.nursery = nursery
        self.client = Client(
            named(revision),
            self._send,
            nursery,
            capabilities=dict(capabilities),
            on_input_request=None,
            scoped=server.scoped,
            info=client_info,
        )
        self._pending = {}
        self._answers = {}
        self._answered = trio.lowlevel.ParkingLot()
        self._sender, self._receiver = trio.open_memory_channel(1000)

    def _send(self, message, pending):
        said = msgspec.json.decode(encode_message(message))
        if pending is not None:
            pending.begun = True
            self._pending[said["id"]] = pending
        self._sender.send_nowait(said)

    async def run(self):
        async for said in self._receiver:
            self.server.heard.append(said)
            if "method" not in said:
                self._answers[said["id"]] = said
                self._answered.unpark_all()
            elif "id" in said:
                self._answer(said["id"], said["method"], said.get("params", {}))

    def _answer(self, request, method, params):
        answer = self.server.answers.get(method.replace("/", "_"))
        if answer is None:
            self.refuse(request, -32601, "no such method")
            return
        result = answer(self, request, params) if callable(answer) else answer
        if result is not None:
            self.reply(request, result)

    def reply(self, request, result):
        if self.client.revision.result_type and isinstance(result, dict):
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
        self.put({"id": request, "result": result}, request)

    def refuse(self, request, code, message, **data):
        self.put({"id": request, "error": {"code": code, "message": message, **data}}, request)

    def say(self, method, params=None, *, within=None):
        """Send a notification, within a request where connections say so."""
        self.put({"method": method, "params": params or {}}, within)

    async def ask(self, question, method="elicitation/create", *, within=None, **params):
        """Ask something, and return the answer: the whole message."""
        self.put({"id": question, "method": method, "params": {"message": "?", **params}}, within)
        while question not in self._answers:
            await self._answered.park()
        return self._answers[question]

    def put(self, message, within=None):
        """Send anything; what nobody can read is dropped, as connections do."""
        owner = self._pending.get(within) if self.server.scoped else None
        try:
            self.client.receive(msgspec.json.encode({"jsonrpc": "2.0", **message}), owner)
        except (Undecodable, msgspec.DecodeError, RecursionError):
            self.server.unread.append(message)

    def soon(self, function, *args):
        """Have something run beside all else."""
        self.nursery.start_soon(function, *args)


def initialize(wire, _request, _params):
    """Open a session."""
    return {
        "protocolVersion": OLD,
        "capabilities": wire.server.capabilities,
        "serverInfo": {"name": "scripted"},
    }


def _discover(wire, _request, _params):
    return {
        "supportedVersions": [NEW],
        "capabilities": wire.server.capabilities,
        "_meta": {SERVER_INFO: {"name": "scripted", "version": "1"}},
    }


def in_a_second(answer):
    """Give an answer, but a second later."""

    def answer_late(wire, request, params):
        async def reply():
            await trio.sleep(1)
            wire.reply(request, answer(wire, request, params) if callable(answer) else answer)

        wire.soon(reply)

    return answer_late


def listen(wire, request, params):
    """Acknowledge a listen."""
    wire.server.listens[request] = sorted(params["notifications"]["resourceSubscriptions"])
    said = {"notifications": params["notifications"], "_meta": {SUBSCRIPTION_ID: request}}
    wire.say("notifications/subscriptions/acknowledged", said, within=request)


TOOLS = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}

_ANSWERS = {
    "initialize": initialize,
    "server_discover": _discover,
    "subscriptions_listen": listen,
    "logging_setLevel": {},
    "tools_list": TOOLS,
    "tools_call": SAID,
    "prompts_list": {"prompts": []},
    "resources_list": {"resources": [{"uri": "d://a", "name": "a"}]},
    "resources_templates_list": {"resourceTemplates": [{"uriTemplate": "d://{x}", "name": "x"}]},
    "resources_subscribe": {},
    "resources_unsubscribe": {},
}
