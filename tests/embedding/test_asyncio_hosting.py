"""A server in an asyncio program, under ASGI hosts that run on asyncio."""

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial

import fastapi
import pytest
import trio
import uvicorn
from mcp import Client

from mcpbus import DELIVERED, Context, Limits, Server
from mcpbus.asyncio import asgi, guest, inline, to_asyncio, to_trio
from mcpbus.core.receipt import Reason
from mcpbus.protocol.revisions import LATEST
from mcpbus.testing import open_bus
from tests.at_home import CALLER

DEADLINE = 60


def make_server(name="s", **options):
    server = Server(name, **options)
    server.waits, server.ended = asyncio.Event(), []

    @server.tool
    async def count(ctx: Context, to: int = 2) -> str:
        for n in range(to):
            await ctx.progress(n)
        await trio.lowlevel.checkpoint()
        return f"counted by {name}"

    @server.tool
    async def wait() -> str:
        server.waits.set()
        try:
            await trio.sleep_forever()
        finally:
            server.ended.append("wait")

    @server.tool
    async def on_the_loop() -> bool:
        async def running():
            return asyncio.get_running_loop()

        return await to_asyncio(running) is asyncio.get_running_loop()

    @server.resource("x://a")
    async def readable() -> str:
        return ""

    return server


def run(function, *args):
    return asyncio.run(asyncio.wait_for(function(*args), DEADLINE))


async def until(condition):
    while not condition():  # noqa: ASYNC110 - nobody tells of it
        await asyncio.sleep(0.001)


class Exchange:
    """One POST to an application, as a host on asyncio makes it; its client is there until `leave`."""

    def __init__(self, app, method, params=None, path="/mcp"):
        meta = {
            "io.modelcontextprotocol/protocolVersion": LATEST.name,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
            "progressToken": 1,
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": meta}}
        self.body = json.dumps(message).encode()
        self.sent, self.read, self.left = [], False, asyncio.Event()
        headers = {
            "host": "localhost",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": LATEST.name,
            "mcp-method": method,
            "mcp-name": (params or {}).get("name", ""),
        }
        self.scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items() if value],
            "client": ("127.0.0.1", 1),
        }
        self.task = asyncio.create_task(app(self.scope, self.receive, self.send))

    async def receive(self):
        if not self.read:
            self.read = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        await asyncio.sleep(0)
        self.sent.append(message)

    async def said(self):
        """All messages of the answer, once it is whole."""
        await self.task
        body = b"".join(message.get("body", b"") for message in self.sent)
        lines = [line[5:] for line in body.splitlines() if line.startswith(b"data:") and line[5:].strip()]
        return [json.loads(line) for line in lines or [body]]


def call(app, name, **arguments):
    return Exchange(app, "tools/call", {"name": name, "arguments": arguments})


async def text_of(exchange):
    return (await exchange.said())[-1]["result"]["content"][0]["text"]


@pytest.mark.parametrize("times", [1, 2])
def test_it_is_open_for_its_lifespan(times):
    async def main():
        app = asgi(make_server())
        for _ in range(times):
            async with app.lifespan():
                said = await call(app, "count").said()
                assert [each.get("method", "reply") for each in said] == [
                    "notifications/progress",
                    "notifications/progress",
                    "reply",
                ]
            with pytest.raises(RuntimeError, match="the server is not open"):
                _ = app.bus

    run(main)


def test_what_a_handler_awaits_of_asyncio_runs_in_the_hosts_loop():
    async def main():
        app = asgi(make_server())
        async with app.lifespan():
            assert await text_of(call(app, "on_the_loop")) == "true"

    run(main)


@pytest.mark.parametrize("due", [False, True], ids=["", "as a schedule point is due"])
def test_a_handler_that_speaks_from_asyncio_is_told_how(due, caplog):
    server = make_server()

    @server.tool
    async def wrong(ctx: Context) -> str:
        await to_asyncio(trio.lowlevel.cancel_shielded_checkpoint if due else partial(ctx.progress, 1))
        return "said"

    async def main():
        app = asgi(server)
        async with app.lifespan():
            assert await text_of(call(app, "wrong")) == "Tool wrong failed"

    run(main)
    assert "await mcpbus.asyncio.to_trio(ctx.info, ...)" in caplog.text


def test_several_servers_share_the_loop_and_come_and_go_as_they_like():
    async def main():
        first, second = asgi(make_server("first")), asgi(make_server("second"))
        async with first.lifespan():
            lifespan = second.lifespan()
            await lifespan.__aenter__()
            assert await text_of(call(first, "count")) == "counted by first"
        assert await text_of(call(second, "count")) == "counted by second"
        await lifespan.__aexit__(None, None, None)

    run(main)


def test_a_server_that_opens_while_the_last_one_ends_waits_for_that():
    async def serve(app, ending):
        async with app.lifespan():
            text = await text_of(call(app, "count"))
            await ending.wait()
        return text

    async def main():
        first_ends, second_ends = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(serve(asgi(make_server("first")), first_ends))
        await until(lambda: guest._guests)
        (run,) = guest._guests.values()
        first_ends.set()
        await until(run.unused.is_set)
        seconds = [asyncio.create_task(serve(asgi(make_server(name)), second_ends)) for name in "ab"]
        second_ends.set()
        assert await asyncio.gather(first, *seconds) == ["counted by first", "counted by a", "counted by b"]
        assert guest._guests == {}

    run(main)


def test_where_trio_cannot_start_each_lifespan_says_so(monkeypatch):
    def start(*_, **__):
        raise OSError("too many open files")

    async def main():
        app = asgi(make_server())
        with monkeypatch.context() as patch:
            patch.setattr(trio.lowlevel, "start_guest_run", start)
            for _ in range(2):
                with pytest.raises(OSError, match="too many"):
                    async with app.lifespan():
                        pytest.fail("it is open")
        async with app.lifespan():
            assert await text_of(call(app, "count")) == "counted by s"

    run(main)


def test_a_lifespan_refused_as_the_server_is_open_leaves_it_open():
    async def main():
        app = asgi(make_server())
        async with app.lifespan():
            with pytest.raises(RuntimeError, match="is open already"):
                async with app.lifespan():
                    pytest.fail("it is open twice")
            assert await text_of(call(app, "count")) == "counted by s"

    run(main)


def test_an_asgi_host_opens_it():
    async def main():
        app, sent = asgi(make_server()), []
        events = asyncio.Queue()

        async def send(event):
            sent.append(event["type"])

        host = asyncio.create_task(app({"type": "lifespan"}, events.get, send))
        events.put_nowait({"type": "lifespan.startup"})
        await until(lambda: sent)
        assert await text_of(call(app, "count")) == "counted by s"
        events.put_nowait({"type": "lifespan.shutdown"})
        await host
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    run(main)


def test_a_lifespan_that_fails_is_told_and_the_loop_is_as_before():
    @asynccontextmanager
    async def lifespan(server):
        await trio.lowlevel.checkpoint()
        raise KeyError("no such database")
        yield

    async def main():
        with pytest.raises(KeyError, match="no such database"):
            async with asgi(make_server(lifespan=lifespan)).lifespan():
                pytest.fail("it is open")
        app = asgi(make_server())
        async with app.lifespan():
            assert await text_of(call(app, "count")) == "counted by s"

    run(main)


def test_what_fails_at_the_end_is_told():
    @asynccontextmanager
    async def lifespan(server):
        yield
        raise KeyError("not saved")

    async def main():
        with pytest.raises(KeyError, match="not saved"):
            async with asgi(make_server(lifespan=lifespan)).lifespan():
                pass

    run(main)


def test_what_ends_the_server_while_it_is_open_is_told_at_once(caplog):
    @asynccontextmanager
    async def lifespan(server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, server)
            yield

    async def fail(server):
        server.fails = trio.Event()
        await server.fails.wait()
        raise KeyError("no database any more")

    async def serve(server, app):
        async with app.lifespan():
            assert await text_of(call(app, "count")) == "counted by s"
            server.fails.set()
            await until(lambda: "no database any more" in caplog.text)
            assert b"the log says why" in await refusal(app)

    async def main():
        server = make_server(lifespan=lifespan)
        app = asgi(server)
        with pytest.raises(ExceptionGroup) as told:
            await serve(server, app)
        assert told.value.subgroup(KeyError)
        assert b"lifespan=app.lifespan" in await refusal(app)

    async def refusal(app):
        exchange = call(app, "count")
        await exchange.task
        start, body = exchange.sent
        assert start["status"] == 500
        return body["body"]

    run(main)


@CALLER
@pytest.mark.parametrize("way", ["its client leaves", "its host gives it up"])
def test_a_call_is_cancelled_when(way):
    async def main():
        server = make_server()
        app = asgi(server)
        async with app.lifespan():
            waiting = call(app, "wait")
            await server.waits.wait()
            if way == "its client leaves":
                waiting.left.set()
                await waiting.task
            else:
                waiting.task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting.task
            assert server.ended == ["wait"]
            assert await text_of(call(app, "count")) == "counted by s"

    run(main)


def test_a_lifespan_that_is_cancelled_drains_nothing():
    async def main():
        server = make_server()
        app = asgi(server)

        async def hold():
            async with app.lifespan():
                waiting.append(call(app, "wait"))
                await asyncio.Event().wait()

        waiting = []
        holding = asyncio.create_task(hold())
        await server.waits.wait()
        began = asyncio.get_running_loop().time()
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        assert server.ended == ["wait"]
        assert asyncio.get_running_loop().time() - began < 4  # a drain takes five seconds
        await waiting[0].task
        _, body = waiting[0].sent
        assert json.loads(body["body"])["error"]["code"] == -32603

    run(main)


def test_a_route_pushes_and_learns_what_became_of_it():
    async def main():
        app = asgi(make_server())
        async with app.lifespan():
            listening = Exchange(
                app, "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["x://a"]}}
            )
            await until(
                lambda: any(b"acknowledged" in message.get("body", b"") for message in listening.sent)
            )
            broadcast = app.bus.resource_updated("x://a")
            assert await to_trio(lambda: broadcast.settled(timeout=60)) == {DELIVERED: 1}
            listening.left.set()
            await listening.task

    run(main)


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_where_nobody_opened_it_each_client_and_the_log_are_told_how(kind, caplog):
    async def main():
        sent = []

        async def send(event):
            sent.append(event)

        await asgi(make_server())({"type": kind}, None, send)
        return sent

    first, *_ = run(main)
    assert first.get("status") == 500 or first["type"] == "websocket.close"
    assert "lifespan=app.lifespan" in caplog.text


@pytest.mark.parametrize("on_trio", [True, False])
@pytest.mark.parametrize("phase", ["startup", "shutdown"])
def test_a_lifespan_that_fails_is_told_to_who_serves_for_whom_an_exception_alone_is_none(
    phase, on_trio, caplog
):
    @asynccontextmanager
    async def lifespan(_):
        if phase == "startup":
            raise ValueError("no database")
        yield
        raise ValueError("no database")

    async def main():
        server = Server("s", lifespan=lifespan)
        app = server.asgi() if on_trio else asgi(server)
        sent = []

        async def receive():
            return {"type": "lifespan.startup"}

        async def send(event):
            sent.append(event)

        with pytest.raises(ValueError, match="no database"):
            await app({"type": "lifespan"}, receive, send)
        return sent

    *_, last = trio.run(main) if on_trio else run(main)
    assert last == {"type": f"lifespan.{phase}.failed", "message": "ValueError: no database"}
    (record,) = [record for record in caplog.records if record.exc_info]
    assert f"the lifespan's {phase} failed" in record.getMessage()


async def test_under_trio_it_says_what_is_for_trio(caplog):
    app, sent = asgi(make_server()), []

    async def receive():
        return {"type": "lifespan.startup"}

    async def send(event):
        sent.append(event)

    await app({"type": "lifespan"}, receive, send)
    assert (sent[0]["type"], "serve server.asgi()" in sent[0]["message"]) == ("lifespan.startup.failed", True)
    with pytest.raises(RuntimeError, match=r"serve server.asgi\(\)"):
        async with app.lifespan():
            pass
    await app({"type": "http"}, receive, send)
    assert "serve server.asgi()" in caplog.text


def test_what_is_for_trio_says_under_asyncio_what_is_for_asyncio():
    async def main():
        with pytest.raises(RuntimeError, match=r"serve mcpbus.asyncio.asgi\(server\)"):
            async with make_server().asgi().lifespan():
                pass
        with pytest.raises(RuntimeError, match=r"serve mcpbus.asyncio.asgi\(server\)"):
            async with open_bus(make_server()):
                pass

    run(main)


def test_a_websocket_is_a_session():
    async def main():
        app, events, sent = asgi(make_server()), asyncio.Queue(), []

        async def send(event):
            sent.append(event)

        scope = {
            "type": "websocket",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
            "subprotocols": ["mcp"],
            "client": ("127.0.0.1", 1),
        }
        async with app.lifespan():
            channel = asyncio.create_task(app(scope, events.get, send))
            events.put_nowait({"type": "websocket.connect"})
            events.put_nowait(
                {"type": "websocket.receive", "text": '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'}
            )
            await until(lambda: len(sent) == 2)
            assert sent[0]["type"] == "websocket.accept"
            assert json.loads(sent[1].get("text") or sent[1]["bytes"])["id"] == 1
            events.put_nowait({"type": "websocket.disconnect", "code": 1000})
            await channel

    run(main)


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_host_that_raises_where_its_client_has_gone_is_understood(kind):
    """As ASGI has it since version 2.4; a call that nobody hears of any more is cancelled."""

    async def main():
        server = make_server()
        ended = asyncio.Event()

        @server.tool
        async def talk(ctx: Context) -> str:
            try:
                for n in range(10**6):
                    await ctx.progress(n)
                    await trio.sleep(0.001)
            finally:
                ended.set()

        app, sent = asgi(server), []

        async def send(event):
            sent.append(event)
            if len(sent) > 2:
                raise OSError("gone")

        async with app.lifespan():
            exchange = call(app, "talk")
            exchange.task.cancel()
            events = asyncio.Queue()
            if kind == "http":
                events.put_nowait({"type": "http.request", "body": exchange.body, "more_body": False})
            else:
                events.put_nowait({"type": "websocket.connect"})
                events.put_nowait({"type": "websocket.receive", "text": exchange.body.decode()})
            await app({**exchange.scope, "type": kind, "subprotocols": ["mcp"]}, events.get, send)
            await ended.wait()
            assert app.bus.statistics().requests == 0
        assert len(sent) == 3

    run(main)


class Host:
    """What an ASGI host gives an application: the body in pieces, and answers that go nowhere until `open` is set."""

    def __init__(self, exchange, *, pieces=1, end="complete"):
        exchange.task.cancel()
        self.scope, self.sent, self.open = exchange.scope, [], asyncio.Event()
        size = -(-len(exchange.body) // pieces)
        self._pieces = [exchange.body[at : at + size] for at in range(0, len(exchange.body), size)]
        self._end = end
        self.next = asyncio.Event()

    async def receive(self):
        if not self._pieces:
            await asyncio.Event().wait()
        if self._end == "leave" and len(self._pieces) == 1:
            return {"type": "http.disconnect"}
        if self._end == "slow" and len(self._pieces) == 1:
            await self.next.wait()
        piece = self._pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}

    async def send(self, message):
        if message["type"] == "http.response.body":
            await self.open.wait()
        self.sent.append(message)


def test_a_client_that_leaves_within_its_body_is_told_nothing():
    async def main():
        app = asgi(make_server())
        async with app.lifespan():
            host = Host(call(app, "count"), pieces=3, end="leave")
            await app(host.scope, host.receive, host.send)
            assert host.sent == []
            assert app.bus.statistics().emitted == 0

    run(main)


def test_a_body_that_comes_slowly_is_waited_for_in_trio(monkeypatch):
    monkeypatch.setattr(inline, "_BODY_SECONDS", 0.001)

    async def main():
        app = asgi(make_server())
        async with app.lifespan():
            host = Host(call(app, "count"), pieces=3, end="slow")
            host.open.set()
            serving = asyncio.create_task(app(host.scope, host.receive, host.send))
            await asyncio.sleep(0.01)
            host.next.set()
            await serving
            assert b"counted by s" in b"".join(message.get("body", b"") for message in host.sent)

    run(main)


def test_an_answer_that_the_client_does_not_take_is_lost_after_the_deadline(caplog):
    async def main():
        app = asgi(make_server(), limits=Limits(write_deadline=0.01))
        async with app.lifespan():
            host = Host(call(app, "count", to=0))
            await app(host.scope, host.receive, host.send)
            assert [message["type"] for message in host.sent] == ["http.response.start"]
            ledger = app.bus.statistics()
            assert ledger.discarded[Reason.LOST] == 1
        assert "write_deadline was reached" in caplog.text

    run(main)


def test_an_answer_is_counted_while_its_client_does_not_take_it():
    async def main():
        server = make_server()

        @server.tool
        async def large() -> str:
            return "x" * 100_000

        app = asgi(server)
        async with app.lifespan():
            host = Host(call(app, "large"))
            serving = asyncio.create_task(app(host.scope, host.receive, host.send))
            await until(lambda: host.sent)
            assert app.bus.budget.held > 200_000
            assert app.bus.statistics().pending
            host.open.set()
            await serving
            assert app.bus.budget.held == 0
            assert not app.bus.statistics().pending

    run(main)


def test_a_handler_that_waits_begins_its_stream_after_the_keep_alive_time():
    async def main():
        server = make_server()
        app = asgi(server, limits=Limits(keep_alive=0.01))
        async with app.lifespan():
            waiting = call(app, "wait")
            await until(lambda: any(b":" in message.get("body", b"") for message in waiting.sent))
            waiting.left.set()
            await waiting.task
            assert server.ended == ["wait"]

    run(main)


def test_in_fastapi_under_uvicorn():
    """With the client of the official SDK, beside a route of its own."""
    app = asgi(make_server())
    web = fastapi.FastAPI(lifespan=app.lifespan)

    @web.get("/refresh")
    async def refresh() -> None:
        app.bus.resource_updated("x://a")

    web.mount("/tools", app)

    async def main():
        host = uvicorn.Server(uvicorn.Config(web, port=0, log_level="error", timeout_graceful_shutdown=5))
        serving = asyncio.create_task(host.serve())
        await until(lambda: host.started)
        port = host.servers[0].sockets[0].getsockname()[1]
        said = []

        async def on_progress(progress, total, message):
            said.append(progress)

        async with Client(f"http://127.0.0.1:{port}/tools/mcp") as client:
            result = await client.call_tool("count", {"to": 3}, progress_callback=on_progress)
            assert (result.content[0].text, said) == ("counted by s", [0, 1, 2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /refresh HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in await reader.read()
        writer.close()
        await writer.wait_closed()
        host.should_exit = True
        await serving

    run(main)


def test_superseded_gets_have_an_end_under_uvicorn(caplog):
    """Those whose heads were not sent, too: it logs each response that has none, and answers 500 where there was no head."""
    app = asgi(make_server())
    opening = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        },
    }

    async def main():
        host = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, timeout_graceful_shutdown=5))
        serving = asyncio.create_task(host.serve())
        await until(lambda: host.started)
        port = host.servers[0].sockets[0].getsockname()[1]

        async def exchange(verb, body="", **fields):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            fields |= {"host": "localhost", "connection": "close", "content-length": str(len(body))}
            fields |= {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
            writer.write(f"{verb} /mcp HTTP/1.1\r\n{head}\r\n{body}".encode())
            said = (await reader.read()).decode()
            writer.close()
            await writer.wait_closed()
            return said

        fields = (await exchange("POST", json.dumps(opening))).partition("\r\n\r\n")[0].splitlines()
        [name] = [field[16:] for field in fields if field.lower().startswith("mcp-session-id: ")]
        session = {"mcp_session_id": name}
        gets = [asyncio.create_task(exchange("GET", **session)) for _ in range(20)]
        await until(lambda: sum(get.done() for get in gets) == len(gets) - 1)
        await exchange("DELETE", **session)
        said = await asyncio.gather(*gets)
        assert {(each[:15], each[-5:]) for each in said} == {("HTTP/1.1 200 OK", "0\r\n\r\n")}
        host.should_exit = True
        await serving

    run(main)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
