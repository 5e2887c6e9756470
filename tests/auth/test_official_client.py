"""Over real sockets: the official SDK's client finds out by itself how to log in, and the demo behind tokens tells people."""

import os
import re
import secrets
import socket
import subprocess
import sys
import time

import httpx2
import pytest
import trio
from channels import CLAIM
from signing_in import TOLERATED, Browser, Storage, make_server, said, signed_in, take_port

from examples.agreeable import AgreeableIssuer
from mcpbus import ServeOptions
from mcpbus.auth import JwtVerifier, ResourceServer
from mcpbus.serving import serve
from mcpbus.testing import InMemoryIssuer, open_probe
from tests.at_home import OWN_PROCESSES


@TOLERATED
@OWN_PROCESSES
async def test_the_official_client_logs_in_steps_up_and_refreshes():
    (url, bind), (issuer_url, issuer_bind) = take_port(), take_port()
    browser, storage = Browser(), Storage()
    issuer = InMemoryIssuer(issuer_url, clock=time.time)
    server = make_server(ResourceServer(f"{url}/mcp", JwtVerifier(issuer.url), scopes=["files:read"]))
    agreeable = AgreeableIssuer(issuer, lifetime=4)
    options = ServeOptions(bind=issuer_bind)
    async with server.open() as bus, trio.open_nursery() as nursery:
        with trio.fail_after(60):
            await nursery.start(lambda task_status: serve(agreeable, options, task_status=task_status))
            [url] = await nursery.start(lambda task_status: bus.serve(bind=bind, task_status=task_status))
            async with signed_in(url, browser, storage) as session:
                assert await said(session, "read") == "somebody"
                assert [visit.params["scope"] for visit in browser.visited] == ["files:read"]
                assert [visit.params["resource"] for visit in browser.visited] == [url]

                assert await said(session, "write") == "written"
                assert len(browser.visited) == 2
                assert set(browser.visited[1].params["scope"].split()) == {"files:read", "files:write"}

                first = storage.tokens.access_token
                await trio.sleep(4.5)
                assert await said(session, "write") == "written"
                assert storage.tokens.access_token != first
                assert len(browser.visited) == 2
        nursery.cancel_scope.cancel()
    assert [set(grant.scope.split()) for grant in agreeable.granted] == [
        {"files:read"},
        {"files:read", "files:write"},
    ]


def free_ports():
    """A port that is free, with the one after it: none of those that systems give to whoever asks for any, so that nobody gets it."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        try:
            for number in (port, port + 1):
                with socket.socket() as sock:
                    sock.bind(("127.0.0.1", number))
        except OSError:
            continue
        return port


@OWN_PROCESSES
async def test_the_demo_behind_tokens_says_how_to_get_one():
    port = free_ports()
    environment = {**os.environ, "BIND": f"127.0.0.1:{port}"}
    command = [sys.executable, "-m", "examples.authorized"]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery, httpx2.AsyncClient(timeout=60) as http:
            process = await trio.lowlevel.open_process(command, env=environment, stderr=subprocess.PIPE)
            told = b""
            while b"is served at" not in told:
                told += await process.stderr.receive_some() or pytest.fail(f"it has ended: {told}")
            [url] = re.findall(rf"http://\S+:{port}/mcp", told.decode())
            refused = await http.post(url, json={})
            [metadata] = re.findall('resource_metadata="([^"]+)"', refused.headers["www-authenticate"])
            [issuer] = (await http.get(metadata)).json()["authorization_servers"]
            assert f"{issuer}/token" in told.decode()
            form = {"grant_type": "client_credentials", "scope": "demo demo:secret"}
            token = (await http.post(f"{issuer}/token", data=form)).json()["access_token"]
            fields = {
                "authorization": f"Bearer {token}",
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": "tools/call",
                "mcp-name": "tell_secret",
            }
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            params = {"name": "tell_secret", "arguments": {}, "_meta": CLAIM}
            answer = await http.post(url, json={**call, "params": params}, headers=fields)
            assert "somebody" in answer.json()["result"]["content"][0]["text"]
            process.terminate()
            await process.wait()
            nursery.cancel_scope.cancel()


@OWN_PROCESSES
@pytest.mark.parametrize("taken", [0, 1], ids=["the demo's", "the issuer's"])
def test_the_demo_behind_tokens_says_in_a_line_that_a_port_is_taken(taken):
    port = free_ports()
    with socket.create_server(("127.0.0.1", port + taken)):
        ended = subprocess.run(
            [sys.executable, "-m", "examples.authorized"],
            env={**os.environ, "BIND": f"127.0.0.1:{port}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"Error: cannot listen on 127.0.0.1:{port + taken}: ")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("form", "error"),
    [
        (b"grant_type=authorization_code&code=made-up", "invalid_grant"),
        (b"grant_type=refresh_token&refresh_token=made-up", "invalid_grant"),
        (b"grant_type=password", "unsupported_grant_type"),
        (b"", "unsupported_grant_type"),
    ],
)
async def test_the_agreeable_issuer_does_not_agree_to_what_was_made_up(form, error, autojump_clock):
    async with open_probe(AgreeableIssuer(InMemoryIssuer("http://localhost:1"))) as probe:
        answer = await probe.send("POST", form, target="/token").ended()
        assert (answer.status, answer.messages) == (400, [{"error": error}])
        query = "client_id=client-1&redirect_uri=https://evil.example&code_challenge=x"
        answer = await probe.send("GET", target=f"/authorize?{query}").ended()
        assert answer.status == 400


UPGRADE = (
    "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: mcp\r\n{}\r\n"
)


@pytest.mark.parametrize(
    ("scopes", "status"), [(None, b"401 "), (["other"], b"403 "), (["files:read"], b"101 ")], ids=str
)
async def test_a_websocket_over_a_socket_is_asked_for_its_token_at_the_upgrade(scopes, status):
    issuer = InMemoryIssuer()
    server = make_server(issuer.protect("http://127.0.0.1/mcp", scopes=["files:read"]))
    field = "" if scopes is None else f"Authorization: {issuer.bearer('ada', scopes)['authorization']}\r\n"
    async with server.open() as bus, trio.open_nursery() as nursery:
        [url] = await nursery.start(
            lambda task_status: bus.serve(bind="127.0.0.1:0", task_status=task_status)
        )
        port = httpx2.URL(url).port
        with trio.fail_after(60):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(UPGRADE.format(field).encode())
                answer = await stream.receive_some()
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert (b"www-authenticate: Bearer" in answer) is (status != b"101 ")
        nursery.cancel_scope.cancel()
