"""What users' tests stand on: clients in process, and HTTP exchanges in memory."""

import pytest
import trio

import mcpbus.testing
from mcpbus import Context, ProtocolError, Server, SyncContext
from mcpbus.testing import StreamEndedError, open_bus, open_client, open_probe, wait_until_idle


@pytest.fixture
def server():
    server = Server("weather", version="1")

    @server.tool
    async def forecast(city: str, ctx: Context) -> str:
        await ctx.progress(1, 2)
        await trio.sleep(3600)
        return f"rain in {city}"

    @server.tool
    def plain(ctx: SyncContext) -> bool:
        ctx.info("said")
        return trio.lowlevel.in_trio_run()

    return server


async def test_a_client_in_process_calls_under_the_virtual_clock(server, autojump_clock):
    async with open_client(server) as client:
        result = await client.call_tool("forecast", {"city": "Oslo"})
    assert result["content"][0]["text"] == "rain in Oslo"
    assert trio.current_time() == pytest.approx(3600, abs=1)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_plain_functions_run_on_the_trio_thread_while_a_test_has_the_server(server, revision):
    async with open_client(server, revision=revision) as client:
        result = await client.call_tool("plain")
        assert result["content"][0]["text"] == "true"
    assert server.runner.inline is False


async def test_errors_of_the_server_come_as_they_are(server):
    async with open_client(server) as client:
        with pytest.raises(ProtocolError):
            await client.call_tool("nope")
    with pytest.raises(ValueError, match="2024-11-05"):
        async with open_client(server, revision="1999"):
            pass


async def test_a_client_answers_what_a_handler_asks(autojump_clock):
    server = Server("shop")

    @server.tool
    async def order(ctx: Context) -> str:
        return str(await ctx.elicit("Which size?", str))

    async def answer(method, params):
        assert (method, params["message"]) == ("elicitation/create", "Which size?")
        return {"action": "decline"}

    for revision in ("2025-06-18", "2026-07-28"):
        able = {"elicitation": {}}
        async with open_client(
            server, revision=revision, capabilities=able, on_input_request=answer
        ) as client:
            assert (await client.call_tool("order"))["content"][0]["text"] == "DeclinedElicitation()"


async def test_a_recording_shows_an_exchange_while_it_goes_on(server, autojump_clock):
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        session = await probe.initialize("2025-06-18")
        assert session.initialize_result["protocolVersion"] == "2025-06-18"
        params = {"name": "forecast", "arguments": {"city": "Oslo"}}
        call = session.request("tools/call", params, progress_token="t")
        assert (await call.message())["params"] == {"progressToken": "t", "progress": 1, "total": 2}
        assert (call.status, call.is_stream, call.complete) == (200, True, False)
        assert (await call.reply(4000))["result"]["content"][0]["text"] == "rain in Oslo"
        assert call.comments > 100
        with pytest.raises(StreamEndedError):
            await session.notify("notifications/nothing").message()


async def test_a_stalled_client_takes_nothing_until_it_goes_on(server, autojump_clock):
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        call = probe.request("tools/call", {"name": "forecast", "arguments": {"city": "O"}}, progress_token=1)
        call.stall()
        await wait_until_idle(bus)
        assert (call.status, call.messages) == (None, [])
        call.resume()
        assert (await call.message())["method"] == "notifications/progress"


async def test_a_client_that_has_gone_gets_nothing_more(server, autojump_clock):
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        call = probe.request("tools/call", {"name": "forecast", "arguments": {"city": "O"}})
        await wait_until_idle(bus)
        call.disconnect()
        with pytest.raises(StreamEndedError):
            await call.message()
        await wait_until_idle(bus)
        assert bus.statistics().requests == 0


async def test_waiting_for_what_does_not_come_has_an_end(server, autojump_clock):
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        call = probe.request("tools/call", {"name": "forecast", "arguments": {"city": "O"}})
        with pytest.raises(trio.TooSlowError):
            await call.message(timeout=5)
        with pytest.raises(trio.TooSlowError):
            await call.begun(timeout=5)


@pytest.mark.parametrize("name", ["plain", "ünïcode", " blank ", "=?base64?x?="])
async def test_names_are_mirrored_into_the_header_as_the_protocol_wants(name):
    server = Server("names")
    server.add_tool(lambda: 1, name="plain")
    async with open_bus(server) as bus, open_probe(bus.asgi()) as probe:
        answer = await probe.request("prompts/get", {"name": name}).ended()
        # -32020 would be a header that does not agree; the name is unknown, and that is all.
        assert answer.messages[0]["error"]["code"] in {-32601, -32602}


@pytest.mark.parametrize("fault", ["twice", "body first"])
async def test_an_application_that_breaks_asgi_is_told(fault):
    start = {"type": "http.response.start", "status": 200, "headers": []}
    more = {"type": "http.response.body", "body": b"x", "more_body": True}

    async def app(scope, receive, send):
        for message in {"twice": [start, start], "body first": [more], "half an answer": [start, more]}[
            fault
        ]:
            await send(message)

    with pytest.raises(ExceptionGroup) as caught:
        async with open_probe(app) as probe:
            await probe.send("GET").ended()
    assert caught.group_contains(AssertionError)


@pytest.mark.parametrize(
    "answer", [[], ["http.response.start"], ["http.response.start", "http.response.body"]]
)
async def test_an_application_that_leaves_in_the_middle_of_its_answer_has_aborted_it(answer):
    async def app(scope, receive, send):
        for kind in answer:
            await send({"type": kind, "status": 200, "headers": [], "body": b"x", "more_body": True})

    async with open_probe(app) as probe:
        recording = await probe.send("GET").ended()
        assert (recording.aborted, recording.complete) == (True, False)
        with pytest.raises(StreamEndedError):
            await recording.message()


async def test_requests_may_travel_as_http_1_1(server, autojump_clock):
    async with open_bus(server) as bus, open_probe(bus.asgi(), shell="http1") as probe:
        session = await probe.initialize("2025-06-18")
        params = {"name": "forecast", "arguments": {"city": "Oslo"}}
        call = session.request("tools/call", params, progress_token="t")
        assert (await call.message())["params"]["progress"] == 1
        assert call.headers["transfer-encoding"] == "chunked"
        call.disconnect()
        with pytest.raises(StreamEndedError):
            await call.message()
        assert (await session.delete().ended()).status == 204
        assert (await probe.send("HEAD", target="/health").ended()).headers["content-length"] == "15"


async def test_only_an_application_of_mcpbus_may_be_sent_http_1_1():
    async def app(scope, receive, send):
        """Do nothing."""

    with pytest.raises(TypeError, match="asgi"):
        async with open_probe(app, shell="http1"):
            pass


def test_the_public_names_are_there():
    assert all(hasattr(mcpbus.testing, name) for name in mcpbus.testing.__all__)
