"""GET operations that are resources."""

import httpx2
import pytest

from mcpbus import Server
from mcpbus.client import ClientError
from mcpbus.protocol.errors import ProtocolError
from mcpbus.testing import open_client

TEXT = {"schema": {"type": "string"}}
PATHS = {
    "/pets": {
        "get": {
            "operationId": "list",
            "summary": "List the pets",
            "parameters": [
                {"name": "page-size", "in": "query", "schema": {"type": "integer"}},
                {"name": "kinds", "in": "query", "schema": {"type": "array"}},
            ],
        },
        "post": {"operationId": "add"},
    },
    "/pets/{pet-id}/{class}": {
        "parameters": [{"name": "pet-id", "in": "path", **TEXT}, {"name": "class", "in": "path", **TEXT}],
        "get": {"operationId": "look"},
    },
    "/about": {"get": {"operationId": "about"}},
    "/secret": {
        "get": {"operationId": "secret", "parameters": [{"name": "X", "in": "header", "required": True}]}
    },
}
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "My Pets!"},
    "servers": [{"url": "https://a.example"}],
    "paths": PATHS,
}


def serve(answer, **options):
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return Server.from_openapi(DOCUMENT, client=client, **options)


def echo(request):
    return httpx2.Response(200, json={"url": str(request.url)})


async def test_they_are_read_by_their_paths(autojump_clock):
    async with open_client(serve(echo, resources=["GET /*"], exclude=["secret"])) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["add"]
        [about] = await client.list_resources()
        assert about == {"uri": "my-pets://about", "name": "about", "description": "GET /about"}
        templates = {each["name"]: each for each in await client.list_resource_templates()}
        assert templates["list"]["uriTemplate"] == "my-pets://pets{?page_size}"
        assert templates["list"]["title"] == "List the pets"
        assert templates["look"]["uriTemplate"] == "my-pets://pets/{pet_id}/{path_class}"
        for uri, url in (
            ("my-pets://about", "about"),
            ("my-pets://pets", "pets"),
            ("my-pets://pets?page_size=5", "pets?page-size=5"),
            ("my-pets://pets/a%2Fb/c", "pets/a%2Fb/c"),
        ):
            [contents] = await client.read_resource(uri)
            assert contents["text"] == f'{{"url":"https://a.example/{url}"}}'
            assert contents["mimeType"] == "application/json"


@pytest.mark.parametrize(
    ("response", "contents"),
    [
        (
            httpx2.Response(200, text="a", headers={"content-type": "text/csv"}),
            {"text": "a", "mimeType": "text/csv"},
        ),
        (httpx2.Response(200, content=b"\xff"), {"blob": "/w==", "mimeType": "application/octet-stream"}),
    ],
)
async def test_their_contents_are_of_the_kind_of_the_response(autojump_clock, response, contents):
    async with open_client(serve(lambda _: response, resources=["about"])) as client:
        [read] = await client.read_resource("my-pets://about")
    assert read == {"uri": "my-pets://about", **contents}


@pytest.mark.parametrize(
    ("response", "code", "said"),
    [
        (httpx2.Response(404, text="gone"), -32602, "404 Not Found: gone"),
        (httpx2.Response(500), -32603, "500 Internal Server Error"),
    ],
)
async def test_an_error_says_its_status(autojump_clock, response, code, said):
    async with open_client(serve(lambda _: response, resources=["about"])) as client:
        with pytest.raises((ProtocolError, ClientError)) as raised:
            await client.read_resource("my-pets://about")
    assert said in str(raised.value)
    assert raised.value.code == code


def test_an_operation_that_no_uri_can_call_is_refused(caplog):
    server = serve(echo, resources=["*"])
    assert (
        "GET /secret is no tool: a resource has no place for the header parameter 'X': leave it a tool"
        in caplog.text
    )
    assert [*server.features.tools.registered()] == ["add"]


@pytest.mark.parametrize(
    ("resources", "error", "said"),
    [
        (["add"], ValueError, "resources: no GET operation without a body matches 'add'"),
        ("about", TypeError, "resources is a list of patterns"),
    ],
)
def test_a_wrong_option_for_resources_is_refused(resources, error, said):
    with pytest.raises(error, match=said):
        serve(echo, resources=resources)
