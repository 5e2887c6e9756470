"""What caches between the server and its clients may keep of its answers: nothing."""

import pytest
from staging import staged, tool

from mcpbus.testing import AsgiProbe

ANSWERS = [
    ("a result", 200, lambda probe, session: probe.post(message("ping"), session)),
    ("an error", 200, lambda probe, session: probe.post(message("tools/call", tool("x", "none")), session)),
    ("a notification", 202, lambda probe, session: probe.post(message("notifications/x", id=None), session)),
    ("a refusal", 400, lambda probe, session: probe.post([], session)),
    ("an unknown session", 404, lambda probe, _: stream(probe, {"mcp-session-id": "gone"})),
    ("another path", 404, lambda probe, _: probe.send("GET", target="/elsewhere")),
    ("another verb", 405, lambda probe, _: probe.send("PATCH")),
    ("another host", 403, lambda probe, _: probe.send("GET", headers={"host": "evil.example"})),
    ("health", 200, lambda probe, _: probe.send("GET", target="/health")),
    ("the end of a session", 204, lambda probe, session: probe.send("DELETE", headers=session)),
    ("a channel that never was", 404, lambda probe, _: unknown_channel(probe)),
]


def message(method, params=None, id=1):  # noqa: A002 - the protocol's word
    made = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return made if id is None else {**made, "id": id}


def stream(probe: AsgiProbe, headers):
    return probe.send("GET", headers={"accept": "text/event-stream", **headers})


def unknown_channel(probe: AsgiProbe):
    return probe.send(
        "POST", b"{}", headers={"content-type": "application/json"}, target="/sse?session_id=gone"
    )


@pytest.mark.parametrize(("status", "ask"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS])
async def test_no_answer_is_kept(status, ask, autojump_clock):
    async with staged() as stage:
        session = {"mcp-session-id": (await stage.probe.initialize()).id}
        answer = await ask(stage.probe, session).ended()
        assert (answer.status, answer.headers["cache-control"]) == (status, "no-store")
        assert b"gone" not in answer.body


async def test_a_stream_is_not_kept_either(autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize()
        get = await session.get().begun()
        assert get.headers["cache-control"] == "no-cache, no-transform"
