"""The layer rule: a module imports from its own room or from one below, and never in a circle; third parties come in by one door each.

An import for annotations alone counts like any other, and so does one inside a function: it says who knows whom.
"""

import ast
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

HERE = Path(__file__).parent

BELOW = {
    "protocol": [],
    "auth": ["protocol"],
    "actors": [],
    "client": ["protocol"],
    "features": ["protocol"],
    "core": ["actors", "features", "protocol"],
    "dispatch": ["actors", "core", "features", "protocol"],
    "hosting": ["core", "dispatch", "features", "protocol"],
    "middleware": ["actors", "core", "dispatch", "features", "protocol"],
    "transports": ["actors", "client", "core", "dispatch", "protocol"],
    "cluster": ["actors", "core", "dispatch", "protocol", "transports"],
    "serving": ["actors", "core", "dispatch", "protocol", "transports"],
    "upstream": ["client", "core", "features", "protocol", "serving"],
    "openapi": ["client", "core", "features", "protocol"],
    "watch": ["actors", "core", "features", "protocol"],
    "telemetry": ["client", "core", "features", "protocol", "watch"],
    "roof": [
        "actors",
        "auth",
        "client",
        "cluster",
        "core",
        "dispatch",
        "features",
        "hosting",
        "openapi",
        "protocol",
        "serving",
        "telemetry",
        "transports",
        "upstream",
        "watch",
    ],
}
"""The rooms, and from which others each may import."""

OF_FEATURES = ["input_requests", "schemas", "handler_context", "session_features"]
"""What the core knows of the features: what clients are asked, and how a signature knows a context. It names none of them."""

ROOF = "mcpbus asking asyncio* __main__ bus called_app cli cli.* demo gateway gateway.* hosted http_keywords inspector inspector.* metrics proxy server stores tasks testing* bus_set process process.* server_base server_options workers workers.*"
"""What may know everything: the public faces, and what makes a program of it all."""

DOORS = {
    "annotated_types": ["mcpbus.features.schemas.*"],
    "anyio": ["mcpbus.called_app", "mcpbus.core.stores.redis.commands", "mcpbus.hosting.*"],
    "asyncio": ["mcpbus.asyncio.*"],
    "attrs": ["*"],
    "click": ["mcpbus.cli", "mcpbus.cli.*"],
    "coredis": ["mcpbus.core.stores.redis.commands"],
    "cryptography": ["mcpbus.auth.jws", "mcpbus.protocol.cipher"],
    "docstring_parser": ["mcpbus.features.docstrings"],
    "fastmcp": ["mcpbus.hosting.*"],
    "h2": ["mcpbus.testing.over_http2"],
    "httpx2": [
        "mcpbus.auth",
        "mcpbus.auth.issuer_http",
        "mcpbus.client.http_library",
    ],
    "hpack": [
        "mcpbus.serving.http2.hpack_decoder",
        "mcpbus.serving.http2.hpack_encoder",
    ],
    "httptools": ["serving", "mcpbus.testing.over_http1"],
    "hypercorn": ["mcpbus.serving.hypercorn"],
    "joserfc": [
        "mcpbus.auth",
        "mcpbus.auth.jwt",
        "mcpbus.auth.keys",
        "mcpbus.auth.jws",
        "mcpbus.testing.issuer",
    ],
    "jsonschema_rs": ["mcpbus.features.schemas.json_schema"],
    "mcp": ["mcpbus.hosting.*"],
    "mcp_types": ["mcpbus.hosting.*"],
    "msgspec": ["*"],
    "opentelemetry": ["telemetry"],
    "orjson": ["mcpbus.features.schemas.python_types"],
    "pydantic": ["mcpbus.features.schemas.*"],
    "pydantic_core": ["mcpbus.features.schemas.*", "mcpbus.hosting.*"],
    "starlette": ["mcpbus.hosting.*"],
    "sniffio": ["mcpbus.core.worker_threads", "mcpbus.process.program"],
    "trio": [
        "actors",
        "auth",
        "client",
        "core",
        "dispatch",
        "hosting",
        "middleware",
        "openapi",
        "transports",
        "serving",
        "cluster",
        "upstream",
        "telemetry",
        "watch",
        "roof",
    ],
    "typing_extensions": ["mcpbus.core.state", "mcpbus.features.schemas.records"],
    "uritemplate": ["mcpbus.features.uri_templates"],
    "yaml": ["mcpbus.openapi.document"],
    "watchfiles": ["mcpbus.cli.reload"],
    "wsproto": ["mcpbus.serving.websocket.codec"],
}
"""Which rooms and modules may import what others wrote; and asyncio, since all else runs on trio."""

PURE = [
    *[f"mcpbus.cluster.{part}" for part in ("messages", "signed_ids")],
    *[f"mcpbus.serving.{part}" for part in ("head_limits", "request_error")],
    *[f"mcpbus.serving.http1.{part}" for part in ("body", "encoder", "head", "parser")],
    *[
        f"mcpbus.serving.http2.{part}"
        for part in (
            "errors",
            "events",
            "frames",
            "head",
            "head_cache",
            "hpack_decoder",
            "hpack_encoder",
            "protocol",
            "sender",
            "streams",
        )
    ],
    *[f"mcpbus.serving.websocket.{part}" for part in ("codec", "handshake")],
]
"""What reads and writes HTTP/1.1, and the frames of HTTP/2 and WebSocket, does not wait either."""


def room_of(module):
    """The room of a module: the roof if that names it, or else that of its package."""
    inside = module.removeprefix("mcpbus.")
    package = "actors" if module.split(".")[0] == "mcpbus_actors" else inside.split(".")[0]
    room = "roof" if any(fnmatch(inside, name) for name in ROOF.split()) else package
    assert room in BELOW, f"{module} is in no room"
    return room


def imports(sources):
    """What each module imports: modules of ours by their whole name, those of others by their first."""
    for module, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{module}: an import says the whole name"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                ours = name if name in sources else name.rpartition(".")[0]
                yield module, ours if ours in sources else name.split(".")[0]


_FREE = sys.stdlib_module_names - DOORS.keys()


def violations(sources):
    """What breaks the rule, a line each."""
    edges = {(module, name) for module, name in imports(sources) if name not in {module, *_FREE}}
    targets = {
        module: {name for start, name in edges if start == module and name in sources} for module in sources
    }
    for module, name in edges:
        here = room_of(module)
        if name in sources:
            there = room_of(name)
            if there != here and there not in BELOW[here]:
                yield f"{module} ({here}) imports {name} ({there})"
        elif not any(fnmatch(place, door) for door in DOORS.get(name, []) for place in (here, module)) or (
            name == "trio" and module in PURE
        ):
            yield f"{module} ({here}) imports {name}"
    for module in sources:
        reached, found = set(), targets[module]
        while found:
            reached |= found
            found = set().union(*map(targets.get, found)) - reached
        if module in reached:
            yield f"{module} is in a circle"


def tree():
    modules = {}
    for folder, package in ((HERE.parent / "actors", "mcpbus_actors"), (HERE.parent, "mcpbus")):
        for file in (folder / package).rglob("*.py"):
            name = ".".join(file.relative_to(folder).with_suffix("").parts)
            modules[name.removesuffix(".__init__")] = file.read_text()
    return modules


def test_nothing_breaks_the_rule():
    assert sorted(violations(tree())) == []


def test_the_core_knows_nothing_of_what_an_author_registers():
    known = {
        name
        for module, name in imports(tree())
        if room_of(module) == "core" and name.startswith("mcpbus.features")
    }
    assert {name.split(".")[2] for name in known} == set(OF_FEATURES)


def test_the_tables_name_no_module_that_has_moved():
    modules = tree()
    named = [place for places in DOORS.values() for place in places if "." in place] + PURE
    assert [name for name in named if not any(fnmatch(module, name) for module in modules)] == []


@pytest.mark.parametrize(
    ("sources", "broken"),
    [
        ({"mcpbus.core.a": "from mcpbus.protocol.b import x", "mcpbus.protocol.b": ""}, set()),
        (
            {"mcpbus.protocol.b": "from mcpbus.core import a", "mcpbus.core.a": ""},
            {"mcpbus.protocol.b (protocol) imports mcpbus.core.a (core)"},
        ),
        (
            {"mcpbus.protocol.b": "def f():\n    import mcpbus_actors", "mcpbus_actors": ""},
            {"mcpbus.protocol.b (protocol) imports mcpbus_actors (actors)"},
        ),
        (
            {"mcpbus.core.a": "if TYPE_CHECKING:\n    import mcpbus.bus", "mcpbus.bus": ""},
            {"mcpbus.core.a (core) imports mcpbus.bus (roof)"},
        ),
        (
            {
                "mcpbus_actors.a": "import mcpbus_actors.b",
                "mcpbus_actors.b": "import mcpbus_actors.c",
                "mcpbus_actors.c": "import mcpbus_actors.a",
                "mcpbus_actors.d": "import mcpbus_actors.a",
            },
            {f"mcpbus_actors.{name} is in a circle" for name in "abc"},
        ),
        (
            {"mcpbus.features.a": "import trio\nimport re"},
            {"mcpbus.features.a (features) imports trio"},
        ),
        (
            {"mcpbus.serving.http1.head": "from trio import Event"},
            {"mcpbus.serving.http1.head (serving) imports trio"},
        ),
        ({"mcpbus.core.a": "import h2.events"}, {"mcpbus.core.a (core) imports h2"}),
        ({"mcpbus.core.a": "import asyncio"}, {"mcpbus.core.a (core) imports asyncio"}),
        ({"mcpbus.asyncio.a": "import asyncio.events"}, set()),
        ({"mcpbus.core.a": "import yaml"}, {"mcpbus.core.a (core) imports yaml"}),
        ({"mcpbus.serving.a": "import httptools"}, set()),
    ],
)
def test_what_breaks_the_rule_is_found(sources, broken):
    assert set(violations(sources)) == broken


def test_a_module_has_a_room():
    with pytest.raises(AssertionError, match=r"mcpbus\.new is in no room"):
        room_of("mcpbus.new")
