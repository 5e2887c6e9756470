"""Attacks by the content of JSON-RPC messages, over plain HTTP/1.1."""

import json
from functools import partial

import trio

from tests.attacks.attacker import (
    LEGACY,
    Attacker,
    call,
    encoded,
    initialize,
    memory,
    message,
    modern,
    post,
    request,
)

LONGEST = memory.LONGEST
DEEP = 200
"""The depth of JSON that a message may have."""
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


async def raw_arguments(
    attacker: Attacker, data: bytes, *, tool: str = "anything", name: str = "data"
) -> None:
    """Call a tool with an argument that is the given JSON."""
    body, headers = modern("tools/call", {"name": tool, "arguments": {name: "@"}}, name=tool)
    pieces = encoded(body).replace(b'"@"', data)
    await attacker.flood(post(pieces, {**headers, "connection": "close"}), tasks=4, wait=5)


async def ambiguous_trees(attacker: Attacker) -> None:
    """Arguments of a recursive union whose branches look alike, with a fault at the end: naively, 2 to the power of their depth."""
    for depth in (15, 30, 60):
        root: object = {"value": "no number"}
        for _ in range(depth):
            root = {"child": root}
        await attacker.flood(request("tree", {"root": root}), tasks=4, seconds=2, wait=5)


async def many_faults(attacker: Attacker) -> None:
    """A hundred thousand items, each with three faults: the answer names a few of them."""
    items = [{"x": -1, "y": 1, "name": "A"}] * 100_000
    data = request("points", {"items": items})
    answer = await attacker.exchange(data, wait=20)
    assert len(answer) < 100_000, f"the answer has {len(answer)} bytes"
    await attacker.flood(data, tasks=4, wait=5)


async def many_extra_fields(attacker: Attacker) -> None:
    """Arguments that no tool has."""
    data = request("echo", {"text": "x", **{f"k{n}": n for n in range(200_000)}})
    answer = await attacker.exchange(data, wait=20)
    assert len(answer) < 100_000, f"the answer has {len(answer)} bytes"
    await attacker.flood(data, tasks=4, wait=5)


async def long_names(attacker: Attacker) -> None:
    """Names of tools, prompts and resources that are as long as a body may be."""
    for method, key in (("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")):
        session = await attacker.session()
        data = post(encoded(message(method, {key: "\x1b[2J" + "x" * 3_000_000}, 1)), session)
        answer = await attacker.exchange(data, wait=5)
        assert len(answer) < 100_000, f"the answer to {method} has {len(answer)} bytes"
        await attacker.flood(data, tasks=4, seconds=1.5, wait=5)


async def sessions(attacker: Attacker) -> None:
    """Sessions without end, each of which says as much of itself as it may."""
    body = initialize()
    body["params"]["capabilities"] = {"experimental": {"x": "y" * 60_000}}
    await attacker.flood(post(encoded(body), {"connection": "close"}), tasks=10)


async def batches(attacker: Attacker) -> None:
    """Batches of a thousand calls, and of a thousand things that are none."""
    found = await attacker.session("2025-03-26")
    for each in (call("echo", {"text": "x"}, id=1), {"jsonrpc": "2.0"}, [], 5):
        calls = [{**each, "id": n} if isinstance(each, dict) else each for n in range(1000)]
        await attacker.flood(post(encoded(calls), {**found, "connection": "close"}), tasks=4, seconds=1.5)


async def long_batches(attacker: Attacker) -> None:
    """Batches with as many items as a body has room for."""
    found = await attacker.session("2025-03-26")
    body = b"[" + b"{}," * (LONGEST // 3 - 2) + b"{}]"
    await attacker.flood(post(body, {**found, "connection": "close"}), tasks=4, wait=5)


async def never_answered(attacker: Attacker) -> None:
    """Questions to a legacy client and to modern ones, whose answers never come."""
    params = {"name": "ask", "arguments": {"question": "x" * 10_000}}
    body, headers = modern("tools/call", params, name="ask", capabilities={"elicitation": {}})
    await attacker.flood(post(encoded(body), {**headers, "connection": "close"}), tasks=10)
    for _ in range(5):
        stream = await attacker.connect()
        opened = initialize(LEGACY)
        opened["params"]["capabilities"] = {"elicitation": {}}
        head = await attacker.ask(stream, post(encoded(opened)))
        found = {"mcp-session-id": head.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0].decode()}
        await attacker.ask(stream, post(encoded(message("notifications/initialized")), found))
        for n in range(200):
            await attacker.each(1, post(encoded(message("tools/call", params, n)), found))


async def kept_results(attacker: Attacker) -> None:
    """Tasks without end, whose results are kept."""
    body, headers = modern("tools/call", {"name": "result"}, name="result", capabilities=TASKS)
    await attacker.flood(post(encoded(body), {**headers, "connection": "close"}), tasks=10)


async def many_listens(attacker: Attacker) -> None:
    """Two thousand listens, each to a thousand resources."""
    uris = [f"res://{n}" for n in range(1000)]
    body, headers = modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
    data = post(encoded(body), headers)
    for _ in range(20):
        await attacker.each(100, data)
        await trio.sleep(0.1)


async def chatter(attacker: Attacker, *, reads: bool) -> None:
    """Tools that send a hundred thousand log lines, to clients that read them and to clients that do not."""
    meta = {"io.modelcontextprotocol/logLevel": "debug", "progressToken": "t"}
    data = request("speak", {"lines": 100_000}, meta=meta)
    if reads:
        await attacker.flood(data, tasks=10, wait=5)
    else:
        await attacker.each(50, data)
        await trio.sleep(4)


async def cancellations(attacker: Attacker) -> None:
    """Calls that are cancelled at once, and cancellations of nothing."""
    found = await attacker.session()
    notice = encoded(
        message("notifications/cancelled", {"requestId": "x" * 1000, "reason": "\x1b[2J" * 1000})
    )
    pieces = [post(notice, found) * 500]
    waiting = encoded(message("tools/call", {"name": "wait", "arguments": {"data": "x"}}, 7))
    cancel = encoded(message("notifications/cancelled", {"requestId": 7}))
    await attacker.flood(*pieces, tasks=4, seconds=2)
    await attacker.repeat(
        4, lambda: attacker.exchange(post(waiting, found), post(cancel, found), wait=0.05), 2
    )


ATTACKS = {
    "JSON that is 2 million arrays deep": partial(raw_arguments, data=nested(2_000_000)),
    "JSON that is as deep as is allowed": partial(raw_arguments, data=nested(DEEP - 10)),
    "a number of 4 million digits": partial(raw_arguments, data=b"9" * (LONGEST - 1000)),
    "2 million empty arrays": partial(raw_arguments, data=b"[" + b"[]," * 1_300_000 + b"[]]"),
    "a million different keys": partial(
        raw_arguments, data=json.dumps({f"{n:x}": 0 for n in range(350_000)}, separators=(",", ":")).encode()
    ),
    "a text of escapes": partial(raw_arguments, data=b'"' + b"\\u001b" * 600_000 + b'"'),
    "rows of values of several types": partial(
        raw_arguments, tool="tables", name="rows", data=b"[" + b'{"a":1,"b":"x"},' * 200_000 + b"{}]"
    ),
    "ambiguous recursive unions": ambiguous_trees,
    "300,000 faults in one call": many_faults,
    "200,000 unknown arguments": many_extra_fields,
    "names of 3 MB with control characters": long_names,
    "sessions without end": sessions,
    "batches of 1,000 calls": batches,
    "batches of a million items": long_batches,
    "questions that are never answered": never_answered,
    "tasks whose results are kept": kept_results,
    "2,000 listens to 1,000 resources each": many_listens,
    "calls that speak without end": partial(chatter, reads=True),
    "calls that speak without end to clients that do not read": partial(chatter, reads=False),
    "cancellations": cancellations,
    "long capabilities": memory.capabilities,
    "long _meta": memory.metas,
    "listens to long URIs": memory.listens,
    "subscriptions to long URIs": memory.subscriptions,
    "calls that keep long arguments": memory.arguments,
    "long questions": memory.questions,
    "batches of long answers": partial(memory.batches, tool="long"),
}
