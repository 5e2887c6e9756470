"""Failure 1: notifications of a call reach its caller, whoever else is connected over whatever transport."""

import trio

from examples.failures import transports
from examples.failures.client import HttpClient
from examples.failures.stage import serving


async def test_each_client_sees_its_own_call_and_nothing_else():
    with trio.fail_after(60):
        async with serving(transports.server) as (bus, url):
            seen = await transports.script(bus, url, show=lambda _: None)
            statistics = bus.statistics()

    said = [m["params"].get("message", m["params"].get("data")) for m in seen.http[:-1]]
    assert said == [
        "http.do: line 1",
        "http.do: . regress y x1",
        "http.do: line 2",
        "http.do: . regress y x2",
        "http.do: line 3",
        "http.do: . regress y x3",
    ]
    assert seen.http[-1]["result"]["content"][0]["text"] == "http.do: done"
    *over_sse, result, changed = seen.sse
    # 2024-11-05 has no message in progress.
    assert [m["params"].get("progress", m["params"].get("data")) for m in over_sse] == [
        1,
        "sse.do: . regress y x1",
        2,
        "sse.do: . regress y x2",
        3,
        "sse.do: . regress y x3",
    ]
    assert result["result"]["content"][0]["text"] == "sse.do: done"
    assert changed["method"] == "notifications/tools/list_changed"
    assert [m["method"] for m in seen.watching] == ["notifications/tools/list_changed"]
    assert not statistics.discarded


async def test_progress_carries_the_token_of_the_call_that_it_belongs_to():
    with trio.fail_after(60):
        async with serving(transports.server) as (_, url):
            client = HttpClient(url)
            await client.initialize()
            arguments = {"name": "a.do", "interval": 0}
            answer = await client.call("run_do_file", arguments)
    tokens = {m["params"]["progressToken"] for m in answer.messages if "progress" in m.get("method", "")}
    assert tokens == {f"token of request {answer.messages[-1]['id']}"}
