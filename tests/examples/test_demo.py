"""The demo shows every feature to any client."""

import pytest
import trio

from examples.failures.client import HttpClient
from examples.failures.stage import serving
from mcpbus.demo import GREETINGS, server


@pytest.fixture
async def client():
    with trio.fail_after(60):
        async with serving(server) as (_, url):
            client = HttpClient(url)
            await client.initialize()
            yield client


async def test_multi_greet_reports_three_times_and_greets(client):
    answer = await client.call("multi_greet", {"name": "Ada"})
    progress = [m["params"]["progress"] for m in answer.messages if m.get("method", "").endswith("progress")]
    assert progress == [1, 2, 3]
    assert answer.text == "Hello, Ada!"


async def test_run_script_reports_progress_and_a_line_for_each_step(client):
    answer = await client.call("run_script", {"steps": 2, "interval": 0})
    methods = [message.get("method") for message in answer.messages]
    assert methods == ["notifications/progress", "notifications/message"] * 2 + [None]


async def test_it_has_two_tools(client):
    listed = await client.request("tools/list")
    assert {tool["name"] for tool in listed.result["tools"]} == {"run_script", "multi_greet"}


async def test_it_has_a_resource_and_a_template(client):
    read = await client.request("resources/read", {"uri": "demo://greetings/french"})
    assert read.result["contents"][0]["text"] == GREETINGS["french"]
    [resource] = (await client.request("resources/list")).result["resources"]
    assert resource["uri"] == "demo://greetings"
    [template] = (await client.request("resources/templates/list")).result["resourceTemplates"]
    assert template["uriTemplate"] == "demo://greetings/{language}"


async def test_it_has_a_prompt_with_a_completion(client):
    prompt = {"name": "write_greeting", "arguments": {"name": "Ada", "language": "german"}}
    [message] = (await client.request("prompts/get", prompt)).result["messages"]
    assert "Guten Tag" in message["content"]["text"]
    for ref in (
        {"type": "ref/prompt", "name": "write_greeting"},
        {"type": "ref/resource", "uri": "demo://greetings/{language}"},
    ):
        params = {"ref": ref, "argument": {"name": "language", "value": "g"}}
        completed = await client.request("completion/complete", params)
        assert completed.result["completion"]["values"] == ["german"]
