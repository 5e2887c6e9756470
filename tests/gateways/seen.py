"""What each client sees of each upstream server: directly, and through gateways."""

import json
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from mcpbus.client import connect_http
from tests.gateways import plans, python_client
from tests.gateways.upstreams import HERE, Upstream, awkward, gateway, hanging, upstreams, write_file
from tests.npm import NODE, install

CLIENTS: Final = {
    "python-legacy": "192.0.2.1",
    "python-modern": "192.0.2.2",
    "typescript-legacy": "192.0.2.3",
    "typescript-modern": "192.0.2.4",
}
"""The clients, and the address that each has behind a proxy: anonymous clients at one address would share their upstream sessions."""
SINGLE: Final = ("everything", "remote", "replicas")
SECONDS: Final = 500
"""For one client to look at all."""

Seen = dict[str, Any]
Job = tuple[dict[str, Any], list[plans.Step]]
"""A target, and what to do there."""


@attrs.frozen
class AllSeen:
    """All that was seen, by the name of the client and that of the upstream server."""

    direct: dict[str, dict[str, Seen]]
    file: dict[str, dict[str, Seen]]
    single: dict[str, dict[str, Seen]]


async def look(folder: Path) -> AllSeen:
    """Have each client look at each server, directly, and together with the others through gateways."""
    files = folder / "files"
    files.mkdir()
    (files / "a.txt").write_text("hello\n")
    (files / "a.png").write_bytes(b"\x89PNG")
    root = files.as_uri()
    async with upstreams(files) as servers:
        direct = await _all({name: (each.direct, each.plan) for name, each in servers.items()}, root)
        file = await _through_file(servers, folder / "desk.json", root)
        single: dict[str, dict[str, Seen]] = {client: {} for client in CLIENTS}
        for name in SINGLE:
            async with gateway(servers[name].argument) as running:
                found = await _all({name: ({"url": running.url}, servers[name].plan)}, root)
            for client, seen in found.items():
                single[client] |= seen
    return AllSeen(direct, file, single)


async def _through_file(servers: dict[str, Upstream], file: Path, root: str) -> dict[str, dict[str, Seen]]:
    """Look at all servers over one connection to the gateway of all, some of which never answer."""
    has = [f"{name}_{tool}" for name, tools in plans.CONDITIONAL.items() for tool in tools]
    plan = [each | {"key": f" {each['key']}"} for each in (plans.TOOLS | {"has": has}, *plans.LISTS)]
    for name, each in servers.items():
        plan += [
            plans.through_gateway(name, step) | {"key": f"{name} {step['key']}"}
            for step in each.plan
            if step["do"] not in {"about", "list"}
        ]
    with hanging() as nowhere:
        entries = {name: each.target for name, each in servers.items()}
        broken = {"hangs": {"url": nowhere}, "silent": awkward("silent")}
        async with gateway(write_file(file, entries | broken)) as running:
            await all_listed(running.url, list(entries))
            found = await _all({"": ({"url": running.url}, plan)}, root)
    return {client: {name: _part(name, seen[""]) for name in servers} for client, seen in found.items()}


async def all_listed(url: str, servers: list[str]) -> None:
    """Wait until a gateway lists tools of all servers."""
    with trio.fail_after(SECONDS):
        async with connect_http(url) as client, client.listen(tools=True) as changes:
            while True:
                names = [tool["name"] for tool in await client.list_tools()]
                if all(any(name.startswith(f"{server}_") for name in names) for server in servers):
                    return
                await anext(changes)


def _part(server: str, seen: Seen) -> Seen:
    """Return what was seen of one server."""
    part = {
        key.removeprefix(f"{server} "): value for key, value in seen.items() if key.startswith(f"{server} ")
    }
    for kind in (plans.TOOLS, *plans.LISTS):
        listed = seen[f" {kind['key']}"]
        items = {
            name: item
            for key, item in listed.get("items", {}).items()
            if (name := plans.name_at(server, key))
        }
        part[kind["key"]] = listed | {"items": items}
    return part


async def _all(jobs: dict[str, Job], root: str) -> dict[str, dict[str, Seen]]:
    """Run all clients at once."""
    found: dict[str, dict[str, Seen]] = {}

    async def run(client: str) -> None:
        language, era = client.split("-")
        mine = {name: (target, plans.for_client(client, plan)) for name, (target, plan) in jobs.items()}
        found[client] = await (_python if language == "python" else _typescript)(
            mine, era, CLIENTS[client], root
        )

    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            for client in CLIENTS:
                nursery.start_soon(run, client)
    return found


async def _python(jobs: dict[str, Job], era: str, address: str, root: str) -> dict[str, Seen]:
    return {
        name: await python_client.observe(target, plan, era, address, root)
        for name, (target, plan) in jobs.items()
    }


async def _typescript(jobs: dict[str, Job], era: str, address: str, root: str) -> dict[str, Seen]:
    listed = [{"target": target, "plan": plan} for target, plan in jobs.values()]
    given = json.dumps({"era": era, "address": address, "root": root, "jobs": listed})
    ended = await trio.run_process(
        [NODE, install(HERE) / "typescript_client.mjs"], stdin=given.encode(), capture_stdout=True
    )
    seen = [json.loads(line) for line in ended.stdout.splitlines()]
    for each in seen:
        if "fault" in each:
            raise RuntimeError(each["fault"])
    return dict(zip(jobs, seen, strict=True))
