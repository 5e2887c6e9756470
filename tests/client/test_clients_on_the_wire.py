"""The client over HTTP and over the pipes of a child, in every revision, with mcpbus and with the official SDK at the other end."""

import json
import os
import re
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Thread, get_ident
from types import SimpleNamespace

import httpx2
import pytest
import trio
from wire_server import make_server

from mcpbus.client import ClientError, connect_http, connect_process, http_library, stdio
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.revisions import REVISIONS, Era

HERE = Path(__file__).parent
ABLE = {"elicitation": {"form": {}}}
CHILD = [sys.executable, str(HERE / "wire_server.py")]
SDK = [sys.executable, "-W", "ignore", str(HERE / "sdk_server.py")]


@pytest.fixture(autouse=True)
def plenty_of_time_to_start(monkeypatch):
    monkeypatch.setattr(stdio, "_PROBE_SECONDS", 60)


@asynccontextmanager
async def over_http(server=None, **options):
    async with (server or make_server()).open() as bus, trio.open_nursery() as nursery:
        serve = partial(bus.serve, bind="127.0.0.1:0")
        [url] = await nursery.start(lambda task_status: serve(task_status=task_status))
        async with connect_http(url, **options) as client:
            yield client
        assert not bus.sessions, "it has not ended its session"
        nursery.cancel_scope.cancel()


def over_stdio(**options):
    return connect_process(CHILD, **options)


def sdk_over_stdio(**options):
    return connect_process([*SDK, "stdio"], **options)


@pytest.fixture(scope="module")
def sdk_url():
    command = [*SDK, "http", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as child:
        for line in child.stderr:
            if found := re.search(r"running on (http://\S+)", line):
                reading = Thread(target=child.stderr.read)  # its log is long, and it waits for who reads that
                reading.start()
                yield f"{found[1]}/mcp"
                break
        child.kill()
        reading.join()


def sdk_over_http():
    """Stands for a client of `sdk_url`."""


MCPBUS = [over_http, over_stdio]
EVERYBODY = [*MCPBUS, sdk_over_http, sdk_over_stdio]


@pytest.fixture
def connect(request):
    """Connects to a server in one of the ways; that of the SDK over HTTP is one for all tests."""
    if request.param is sdk_over_http:
        return partial(connect_http, request.getfixturevalue("sdk_url"))
    return request.param


@pytest.mark.parametrize(
    ("connect", "revision"),
    [
        (connect, revision)
        for connect in EVERYBODY
        for revision in [None, *REVISIONS]
        if connect in {over_http, sdk_over_http} or revision in {None, "2025-11-25"}
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
    indirect=["connect"],
)
async def test_what_a_server_offers_is_listed_called_and_told_of_meanwhile(connect, revision):
    heard = []
    async with connect(revision=revision) as client:
        server = await client.describe()
        assert (server.name, server.instructions) in {
            (name, "Ask for the weather.") for name in ("wire", "sdk")
        }
        assert client.revision is REVISIONS[revision or "2026-07-28"]
        tools = {tool["name"] for tool in await client.list_tools()}
        assert tools >= {"forecast", "fail", "ask"}
        assert [prompt["name"] for prompt in await client.list_prompts()] == ["pack"]
        assert len(await client.list_resources()) == 1
        if client.revision.era is Era.LEGACY and "logging" in server.capabilities:
            await client.request("logging/setLevel", {"level": "info"})
        result = await client.call_tool(
            "forecast",
            {"city": "oslo"},
            on_notification=lambda method, params: heard.append((method, params)),
            log_level="info",
        )
        assert "rain" in result["content"][0]["text"]
        assert (await client.call_tool("fail"))["isError"] is True
        with pytest.raises(ProtocolError):
            await client.request("prompts/get", {"name": "none"})
    assert [params["progress"] for method, params in heard if method == "notifications/progress"] == [1, 2]
    assert [params["data"] for method, params in heard if method == "notifications/message"] == [
        "forecast for oslo"
    ]


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("connect", [sdk_over_http, sdk_over_stdio], indirect=True)
async def test_a_change_at_a_server_of_the_sdk_is_heard(connect, revision):  # W-18
    with trio.fail_after(60):
        async with connect(revision=revision) as client, client.listen(tools=True) as changes:
            await client.call_tool("change")
            assert (await anext(changes))[0] == "notifications/tools/list_changed"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("connect", EVERYBODY, indirect=True)
async def test_a_question_is_answered_in_both_eras(connect, revision):
    asked = []

    async def on_input_request(method, params):
        asked.append((method, params["message"]))
        return {"action": "accept", "content": {"city": "oslo", "days": 1}}

    async with connect(revision=revision, capabilities=ABLE, on_input_request=on_input_request) as client:
        text = (await client.call_tool("ask"))["content"][0]["text"]
    assert "oslo" in text
    assert asked == [("elicitation/create", "Where are you?")]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("connect", MCPBUS, indirect=True)
async def test_nobody_is_asked_what_was_not_offered(connect, revision):  # L-10
    async def on_input_request(method, params):
        raise AssertionError(method)

    async with connect(revision=revision, capabilities=ABLE, on_input_request=on_input_request) as client:
        with pytest.raises(ProtocolError, match="declare sampling"):
            await client.call_tool("sample")


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("revision", [None, "2025-11-25"])
async def test_arguments_are_repeated_in_headers_though_nobody_has_listed_the_tools(revision, listed):
    async with over_http(revision=revision) as client:
        if listed:
            await client.list_tools()
        result = await client.call_tool("mirror", {"region": "nord \xe9"})
        assert result["content"][0]["text"] == "nord \xe9"


@pytest.mark.parametrize(
    ("connect", "revision"),
    [
        *((over_http, revision) for revision in REVISIONS),
        *((over_stdio, name) for name in ("2025-11-25", "2026-07-28")),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
async def test_a_call_that_nobody_waits_for_any_more_is_cancelled(connect, revision):  # T-7, W-16
    async with connect(revision=revision) as client:
        with trio.CancelScope() as scope:
            await client.call_tool("hang", on_notification=lambda *_: scope.cancel())
        with trio.fail_after(60):
            await client.call_tool("outlive")


@pytest.mark.parametrize("connect", MCPBUS)
async def test_what_comes_in_many_pieces_is_put_together(connect):
    async with connect(revision="2025-11-25") as client:
        result = await client.call_tool("mirror", {"region": "x" * 1_000_000})
    assert result["content"][0]["text"] == "x" * 1_000_000


async def test_a_child_that_does_not_end_by_itself_is_ended():  # L-15
    # It takes the end of its input, and the signal, for nothing.
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "import sys; sys.path.insert(0, sys.argv[1]); import wire_server; wire_server.server.run('stdio')\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
    )
    with trio.fail_after(60):
        async with connect_process([sys.executable, "-c", stubborn, str(HERE)]) as client:
            assert await client.list_tools()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("no-such-program", "there is no such program on PATH"),
        ("./no-such-program", "there is no such file, seen from {folder}"),
        ("npx -y weather", "no program is called so; write its arguments as words of their own"),
        ("./text", "Permission denied"),
    ],
)
async def test_a_program_that_cannot_be_started_is_told(program, why, tmp_path):
    (tmp_path / "text").touch()
    with pytest.raises(ClientError) as raised:
        async with connect_process([program], cwd=tmp_path):
            pass
    assert str(raised.value) == f"cannot start {program!r}: {why.format(folder=tmp_path)}"


SHOW = "import mcpbus, os; s = mcpbus.Server('s'); s.add_tool(lambda: [os.getcwd(), *map(os.getenv, ('TZ', 'SECRET'))], name='show'); s.run('stdio')"


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({}, ["here", None]),
        ({"SECRET": "its own", "TZ": "UTC"}, ["UTC", "its own"]),
        (os.environ, ["here", "ours"]),
    ],
    ids=["nothing", "some", "all"],
)
async def test_a_program_has_the_environment_and_the_folder_that_it_is_given(
    given, seen, tmp_path, monkeypatch
):
    monkeypatch.setenv("TZ", "here")
    monkeypatch.setenv("SECRET", "ours")
    with trio.fail_after(60):
        async with connect_process([sys.executable, "-c", SHOW], env=given, cwd=tmp_path) as client:
            result = await client.call_tool("show")
    assert json.loads(result["content"][0]["text"]) == [str(tmp_path), *seen]


async def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ClientError, match=r"cannot start 'true' in .*/nowhere: No such file"):
        async with connect_process(["true"], cwd=tmp_path / "nowhere"):
            pass


async def test_calls_that_take_long_keep_no_other_call_waiting():
    with trio.fail_after(60):
        async with over_http() as client, trio.open_nursery() as nursery:
            begun = 0

            def note(*_):
                nonlocal begun
                begun += 1

            for _ in range(120):
                nursery.start_soon(partial(client.call_tool, "hang", on_notification=note))
            while begun < 120:
                await client.list_prompts()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("connect", MCPBUS)
async def test_a_request_may_have_answers_of_its_own(connect, revision):
    async def generally(_method, _params):
        raise AssertionError("this answers what is asked in other requests")

    async def specially(_method, params):
        assert params["message"] == "Where are you?"
        return {"action": "accept", "content": {"city": "oslo"}}

    given = {"capabilities": {"elicitation": {}}, "on_input_request": generally}
    with trio.fail_after(60):
        async with connect(revision=revision, **given) as client:
            result = await client.call_tool("ask", on_input_request=specially)
    assert result["content"][0]["text"] == "AcceptedElicitation Place(city='oslo', days=1)"


@pytest.mark.parametrize("connect", [partial(connect_http, "http://127.0.0.1:9/mcp"), over_stdio])
async def test_a_revision_that_there_is_not_is_refused_at_once(connect):
    with pytest.raises(ValueError, match="must be one of 2024-11-05"):
        async with connect(revision="1999"):
            pass


@pytest.mark.parametrize(
    "connect",
    [
        partial(connect_http, "http://127.0.0.1:9/mcp"),
        partial(connect_process, [sys.executable, "-c", ""]),
    ],
)
async def test_what_connecting_raises_is_in_no_group(connect):
    with pytest.raises(ClientError):
        async with connect():
            pass


@pytest.mark.parametrize("connect", [over_stdio, sdk_over_http], indirect=True)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_what_leaves_the_block_of_a_client_is_in_no_group(connect, revision):
    with pytest.raises(ProtocolError):
        async with connect(revision=revision) as client:
            await client.request("no/such/method")


@pytest.mark.parametrize("value", ["Bearer s3cret\n", "Bearer s3cret\u20ac"])
async def test_a_header_that_cannot_be_sent_is_refused_without_what_it_says(value):
    with pytest.raises(ValueError, match="'Authorization'") as refused:
        async with connect_http("http://127.0.0.1:9/mcp", headers={"Authorization": value}):
            pass
    assert "s3cret" not in str(refused.value)


# -- connections over HTTP ------------------------------------------------------------------------


async def test_a_connection_that_a_server_may_be_closing_is_not_used_again(monkeypatch):
    """uvicorn and Node close a connection that is idle for 5 seconds, and what is sent then is lost."""
    late, accepted = [0.0], []
    clock = SimpleNamespace(monotonic=lambda: trio.current_time() + late[0])
    monkeypatch.setattr("httpcore2._async.http11.time", clock)

    async def relay(ours):
        accepted.append(ours)
        async with await trio.open_tcp_stream("127.0.0.1", port) as theirs, trio.open_nursery() as nursery:
            nursery.start_soon(pump, theirs, ours)
            await pump(ours, theirs)
            nursery.cancel_scope.cancel()

    async def pump(source, sink):
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for part in source:
                await sink.send_all(part)

    async with make_server().open() as bus, trio.open_nursery() as nursery:
        serve = partial(bus.serve, bind="127.0.0.1:0")
        [url] = await nursery.start(lambda task_status: serve(task_status=task_status))
        port = int(re.search(r":(\d+)", url[5:])[1])
        [between] = await nursery.start(partial(trio.serve_tcp, relay, 0, host="127.0.0.1"))
        at = between.socket.getsockname()[1]
        async with connect_http(url.replace(f":{port}", f":{at}"), revision="2026-07-28") as client:
            await client.list_tools()
            before = len(accepted)
            await client.list_tools()
            assert len(accepted) == before
            late[0] += 3
            await client.list_tools()
            assert len(accepted) == before + 1
        nursery.cancel_scope.cancel()


async def test_the_certificates_are_read_once_and_in_a_thread(monkeypatch):
    read = []

    def create():
        read.append(get_ident())
        return ssl.create_default_context()

    http_library._certificates.cache_clear()
    monkeypatch.setattr(httpx2, "create_ssl_context", create)
    monkeypatch.setattr("httpx2._transports.default.create_ssl_context", lambda verify, **_: verify)
    for _ in range(2):
        async with over_http() as client:
            await client.list_tools()
    assert len(read) == 1
    assert read != [get_ident()]
