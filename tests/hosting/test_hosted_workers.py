"""A hosted server that is two worker processes: its sessions, suspended calls and listens, also after a worker was killed."""

from pathlib import Path

import trio
from worker_processes import BOTH, Session, read, served

from mcpbus.client import connect_http
from tests.at_home import OWN_PROCESSES

pytestmark = OWN_PROCESSES

SERVER = Path(__file__).parent / "servers" / "worker_notes.py"
CLAIM = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


async def call_modern(http, tool, **more):
    params = {"name": tool, "arguments": {}, "_meta": CLAIM, **more}
    headers = BOTH | {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return read(await http.post("", json=body, headers=headers))["result"]


async def test_a_session_stays_in_one_process_and_continues_in_the_other_one_after_a_kill():
    async with served(SERVER) as http:
        session = Session(http)
        await session.begin()
        owners = {await session.call("where") for _ in range(8)}
        assert len(owners) == 1
        assert await session.call("client") == "ada's client True"
        await session.kill(owners.pop())
        assert await session.call("client") == "ada's client True"


async def test_a_retry_finds_the_suspended_call_in_whichever_process_it_waits():
    async with served(SERVER) as http:
        for _ in range(4):
            asked = await call_modern(http, "ask")
            assert asked["resultType"] == "input_required"
            [key] = asked["inputRequests"]
            answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
            result = await call_modern(
                http, "ask", inputResponses=answers, requestState=asked["requestState"]
            )
            assert result["structuredContent"]["result"].startswith("Ada ")


async def test_listens_of_all_processes_get_a_change():
    heard = []

    async def listen(url, task_status):
        async with connect_http(url) as client, client.listen(tools=True) as changes:
            task_status.started()
            heard.append((await anext(changes))[0])

    async with served(SERVER) as http, trio.open_nursery() as nursery:
        for _ in range(6):
            await nursery.start(lambda task_status: listen(str(http.base_url).rstrip("/"), task_status))
        await call_modern(http, "change")
    assert heard == ["notifications/tools/list_changed"] * 6
