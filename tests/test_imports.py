"""What a server imports: on stdio nothing that it does not need, since a desktop client waits for its start."""

import ast
import gc
import json
import subprocess
import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from mcpbus import testing
from mcpbus.cli.terminal import _import_at_once

PROGRAM = """
import atexit, sys
from mcpbus import Context, Server

server = Server("quick")

@server.tool
async def forecast(city: str, ctx: Context, days: int = 3) -> list[str]:
    await ctx.progress(1)
    return [city] * days

atexit.register(lambda: print(*sys.modules, file=sys.stderr))
if __name__ == "__main__":
    server.run("stdio")
"""

NEEDLESS = {
    *("h2", "h11", "hpack", "httptools", "hypercorn", "wsproto"),  # HTTP
    *("cryptography", "jsonschema_rs", "docstring_parser", "joserfc", "httpx2", "uritemplate"),
    *(
        "anyio",
        "asyncio",
        "click",
        "concurrent.futures",
        "coredis",
        "difflib",
        "http",
        "json",
        "multiprocessing",
        "opentelemetry",
        "sqlite3",
    ),
    *(
        f"mcpbus.{part}"
        for part in (
            "auth",
            "cli",
            "client",
            "cluster",
            "examples",
            "http_keywords",
            "openapi",
            "telemetry",
            "testing",
            "worker",
        )
    ),
    *(f"mcpbus.protocol.http.{part}" for part in ("messages", "origin", "proxies", "sse", "validation")),
    *(f"mcpbus.serving.{part}" for part in ("counters", "http1", "http2", "options", "run", "websocket")),
    *(
        f"mcpbus.transports.{part}"
        for part in (
            "asgi",
            "asgi_websocket",
            "authorizing",
            "endpoint",
            "http_sse",
            "in_process",
            "lifespan",
        )
    ),
}

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "forecast",
        "arguments": {"city": "Oslo"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}

OF_THE_COMMAND = {"click", "mcpbus.cli"}
OF_A_RESULT = {"json"}  # orjson imports it, when the first result is encoded that is data


@pytest.mark.parametrize(("command", "more"), [([], set()), (["-m", "mcpbus", "stdio"], OF_THE_COMMAND)])
def test_a_call_over_stdio_needs_nothing_of_http(tmp_path, command, more):
    file = tmp_path / "quick.py"
    file.write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, *command, file], input=json.dumps(CALL), capture_output=True, text=True, check=True
    )
    assert json.loads(ended.stdout)["result"]["structuredContent"] == ["Oslo"] * 3
    imported = set(ended.stderr.split())
    assert "mcpbus.transports.stdio" in imported
    assert imported & NEEDLESS == more | OF_A_RESULT
    assert imported.isdisjoint(
        f"mcpbus.cli.{part}" for part in ("calling", "connecting", "inspecting", "serving")
    )


class Who(msgspec.Struct):
    name: str


def test_an_issuer_says_what_to_install(monkeypatch):
    for name in [each for each in sys.modules if each.startswith(("mcpbus.auth", "mcpbus.testing.issuer"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "joserfc", None)
    with pytest.raises(ImportError, match=r"'mcpbus-server\[auth\]'$"):
        _ = testing.InMemoryIssuer


@pytest.mark.parametrize(
    "name",
    ["mcpbus", "mcpbus.client", "mcpbus.cluster", "mcpbus.serving", "mcpbus.stores", "mcpbus.tasks"],
)
def test_each_name_is_imported_from_where_type_checkers_see_it(name):
    package = import_module(name)
    [choice] = [
        node for node in ast.parse(Path(package.__file__).read_text()).body if isinstance(node, ast.If)
    ]
    seen = {
        each.module: {alias.name for alias in each.names}
        for each in choice.body
        if isinstance(each, ast.ImportFrom)
    }
    [made] = choice.orelse
    told = ast.literal_eval(made.value.args[1])
    assert {place: set(names) for place, names in told.items()} == seen
    assert set.union(*seen.values()) <= set(package.__all__) <= set(dir(package))
    for place, names in seen.items():
        for each in names:
            assert getattr(package, each) is getattr(sys.modules[place], each)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'Clinet'"):
        _ = package.Clinet


@pytest.mark.parametrize(
    ("program", "needless"),
    [
        ("import mcpbus.cli", {"trio", "msgspec", "mcpbus_actors"}),
        ("from mcpbus import Client", {"mcpbus_actors", "mcpbus.core", "mcpbus.features", "mcpbus.server"}),
        ("from mcpbus import Server\ndef one() -> int: ...\nServer('s').tool(one)", {"orjson"}),
        ("import mcpbus; mcpbus.asking.InputRequestError, mcpbus.server.Server", {"mcpbus.client"}),
    ],
)
def test_who_asks_for_a_part_does_not_wait_for_the_rest(program, needless):
    program = f"{program}; import sys; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert needless.isdisjoint(ended.stdout.split())


AS_A_PROGRAM = """
import sys, trio
from mcpbus import Server
from mcpbus.process.program import serve_until_signalled

server = Server("quick")

async def serve(*, shutdown, task_status):
    before = set(sys.modules)
    shutdown.set()
    await server.serve(bind="127.0.0.1:0", shutdown=shutdown, task_status=task_status)
    print(*set(sys.modules) - before)

trio.run(serve_until_signalled, lambda: "quick", serve)
"""


def test_a_program_is_whole_before_it_is_looked_whether_something_blocks_it():
    ended = subprocess.run([sys.executable, "-c", AS_A_PROGRAM], capture_output=True, text=True, check=True)
    assert {each for each in ended.stdout.split() if each.startswith("mcpbus")} <= {"mcpbus.http_keywords"}


@pytest.mark.parametrize(("collects", "code"), [(True, ""), (False, ""), (True, "raise ImportError")])
def test_while_a_command_is_imported_nobody_looks_for_garbage(tmp_path, monkeypatch, collects, code):
    (tmp_path / "slow_command.py").write_text(f"import gc, sys\nsys.collecting = gc.isenabled()\n{code}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "collecting", None, raising=False)
    try:
        if not collects:
            gc.disable()
        with pytest.raises(ImportError) if code else nullcontext():
            _import_at_once("slow_command")
        assert (sys.collecting, gc.isenabled()) == (False, collects)
    finally:
        gc.enable()
        sys.modules.pop("slow_command", None)


def test_pydantic_comes_with_the_first_tool_and_not_with_mcpbus():
    program = (
        "import sys; from mcpbus import Server; server = Server('none'); before = 'pydantic' in sys.modules; "
        "server.add_tool(lambda: None, name='t'); print(before, 'pydantic' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "True"]


@pytest.mark.parametrize("telemetry", [None, False, True])
def test_opentelemetry_comes_with_telemetry_alone(telemetry):
    program = (
        "import sys, trio; from mcpbus import Server; from mcpbus.testing import open_bus; from mcpbus.watch import Watch\n"
        "async def main():\n"
        f"    async with open_bus(Server('s'), watch=Watch(), telemetry={telemetry}) as bus, bus.connect() as client:\n"
        "        await client.list_tools()\n"
        "trio.run(main); print('opentelemetry' in sys.modules, 'opentelemetry.sdk' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == [str(bool(telemetry)), "False"]
