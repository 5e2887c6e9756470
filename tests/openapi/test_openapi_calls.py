"""Calls of tools that are operations: their requests, results, errors, limits and cancellation."""

import base64
import logging

import httpx2
import msgspec
import pytest
import trio

from mcpbus import Server
from mcpbus.client import ClientError
from mcpbus.openapi.security import CredentialError
from mcpbus.testing import open_client

PET = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


def document(*operations, **members):
    """Return a document; an operation is its method, path, and members."""
    paths = {}
    for method, path, given in operations:
        paths.setdefault(path, {})[method] = {"responses": {"200": {"description": "ok"}}, **given}
    info = {"title": "Pets", "version": "2"}
    return {
        "openapi": "3.1.0",
        "info": info,
        "servers": [{"url": "https://api.example/v1/"}],
        "paths": paths,
        **members,
    }


def json_of(schema):
    return {"content": {"application/json": {"schema": schema}}}


def parameter(name, place, schema=None, **given):
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "schema": schema or {"type": "string"},
        **given,
    }


class Api:
    """Answers requests in process, and keeps them."""

    def __init__(self, response=None):
        self.requests = []
        self._response = response or (lambda: httpx2.Response(200, json={}))

    def __call__(self, request):
        request.read()
        self.requests.append(request)
        return self._response()

    def client(self, **options):
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self), **options)


async def call(api, described, name, arguments=None, **options):
    server = Server.from_openapi(described, client=api.client(), **options)
    async with open_client(server) as client:
        return await client.call_tool(name, arguments or {})


def text(result):
    [block] = result["content"]
    return block["text"]


async def test_arguments_arrive_where_the_document_has_them(autojump_clock):
    api = Api()
    parameters = [
        parameter("pet/id", "path", {"type": "integer"}),
        parameter("tags", "query", {"type": "array"}),
        parameter("filter", "query", {"type": "object"}, style="deepObject"),
        {"name": "where", "in": "query", "content": {"application/json": {"schema": {}}}},
        parameter("X-Trace", "header"),
        parameter("session", "cookie"),
        parameter("Accept", "header"),
    ]
    described = document(
        (
            "put",
            "/pets/{pet/id}/x y",
            {"operationId": "put pet", "parameters": parameters, "requestBody": json_of(PET)},
        )
    )
    arguments = {
        "pet_id": 5,
        "tags": ["a b", "c"],
        "filter": {"size": 1},
        "where": {"a": [1]},
        "X-Trace": "t",
        "session": "s;1",
        "body": {"name": "Rex"},
    }
    result = await call(api, described, "put_pet", arguments)
    assert not result.get("isError")
    [request] = api.requests
    assert request.method == "PUT"
    assert str(request.url) == (
        "https://api.example/v1/pets/5/x%20y?tags=a%20b&tags=c&filter%5Bsize%5D=1&where=%7B%22a%22%3A%5B1%5D%7D"
    )
    assert request.headers["x-trace"] == "t"
    assert request.headers["cookie"] == "session=s%3B1"
    assert request.headers["content-type"] == "application/json"
    assert request.content == b'{"name":"Rex"}'


async def test_optional_arguments_may_be_left_out(autojump_clock):
    api = Api()
    described = document(("get", "/a", {"parameters": [parameter("q", "query")], "requestBody": json_of({})}))
    await call(api, described, "get_a")
    [request] = api.requests
    assert str(request.url) == "https://api.example/v1/a"
    assert not request.content


async def test_a_query_of_a_path_is_sent_and_a_fragment_is_not(autojump_clock):
    api = Api()
    described = document(
        ("get", "/a?b=c d#e", {"parameters": [parameter("q", "query"), parameter("Host", "header")]})
    )
    await call(api, described, "get_a_b_c_d_e", {"q": "1"})
    assert str(api.requests[0].url) == "https://api.example/v1/a?b=c%20d&q=1"


@pytest.mark.parametrize("value", ["..", ".", ""])
async def test_no_argument_leads_to_another_path(autojump_clock, value):
    api = Api()
    described = document(("delete", "/pets/{id}", {"parameters": [parameter("id", "path")]}))
    result = await call(api, described, "delete_pets_id", {"id": value})
    assert result["isError"]
    assert "path" in text(result)
    assert api.requests == []
    await call(api, described, "delete_pets_id", {"id": "../users?x#y"})
    assert api.requests[0].url.raw_path == b"/v1/pets/..%2Fusers%3Fx%23y"


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "é", "\0"])
async def test_a_header_takes_no_other_characters(autojump_clock, value):
    api = Api()
    described = document(("get", "/a", {"parameters": [parameter("X-A", "header")]}))
    result = await call(api, described, "get_a", {"X-A": value})
    assert text(result) == "argument 'X-A': a header field holds printable ASCII characters alone"
    assert api.requests == []


BINARY = {"type": "string", "format": "binary"}
FORM = {
    "type": "object",
    "properties": {"file": BINARY, "files": {"type": "array", "items": BINARY}, "note": {}},
}


async def test_bodies_are_of_the_kind_of_their_media_type(autojump_clock):
    forms = {
        "form": ("application/x-www-form-urlencoded", FORM),
        "parts": ("multipart/form-data", {"$ref": "#/components/schemas/Form"}),
        "bytes": ("application/octet-stream", BINARY),
        "text": ("text/csv; header=present", {"type": "string"}),
        "xml": ("application/xml", {}),
    }
    operations = [
        ("post", f"/{name}", {"requestBody": {"required": True, "content": {kind: {"schema": schema}}}})
        for name, (kind, schema) in forms.items()
    ]
    described = document(*operations, components={"schemas": {"Form": FORM}})
    api = Api()
    server = Server.from_openapi(described, client=api.client())
    data = base64.b64encode(b"\xff\r\n").decode()
    async with open_client(server) as client:
        await client.call_tool("post_form", {"body": {"a b": "c&d", "e": [1, 2], "f": {"g": 1}}})
        await client.call_tool(
            "post_parts", {"body": {"file": data, "files": [data], "note": {"a": 1}, "b": ["x", "y"]}}
        )
        await client.call_tool("post_bytes", {"body": data})
        await client.call_tool("post_text", {"body": "a,b"})
        await client.call_tool("post_xml", {"body": "<a/>"})
        wrong = await client.call_tool("post_bytes", {"body": "no base64"})
        tools = {tool["name"]: tool for tool in await client.list_tools()}
    assert text(wrong) == "argument 'body': it is no Base64"
    form, parts, octets, csv, xml = api.requests
    assert form.content == b"a+b=c%26d&e=1&e=2&f=%7B%22g%22%3A1%7D"
    assert form.headers["content-type"] == "application/x-www-form-urlencoded"
    assert octets.content == b"\xff\r\n"
    assert (csv.content, csv.headers["content-type"]) == (b"a,b", "text/csv; header=present")
    assert (xml.content, xml.headers["content-type"]) == (b"<a/>", "application/xml")
    boundary = parts.headers["content-type"].removeprefix("multipart/form-data; boundary=").encode()
    head = b"Content-Disposition: form-data; name="
    assert parts.content.split(b"--" + boundary) == [
        b"",
        b"\r\n"
        + head
        + b'"file"; filename="file"\r\nContent-Type: application/octet-stream\r\n\r\n\xff\r\n\r\n',
        b"\r\n"
        + head
        + b'"files"; filename="files"\r\nContent-Type: application/octet-stream\r\n\r\n\xff\r\n\r\n',
        b"\r\n" + head + b'"note"\r\nContent-Type: application/json\r\n\r\n{"a":1}\r\n',
        b"\r\n" + head + b'"b"\r\n\r\nx\r\n',
        b"\r\n" + head + b'"b"\r\n\r\ny\r\n',
        b"--\r\n",
    ]
    assert tools["post_parts"]["inputSchema"]["properties"]["body"]["properties"]["file"] == {
        "type": "string",
        "contentEncoding": "base64",
    }


async def test_a_response_is_structured_by_its_schema(autojump_clock):
    described = document(
        (
            "get",
            "/pet",
            {"summary": "A pet", "tags": ["pets"], "responses": {"200": {"description": "", **json_of(PET)}}},
        ),
        (
            "get",
            "/pets",
            {"responses": {"2XX": {"description": "", **json_of({"type": "array", "items": PET})}}},
        ),
        ("delete", "/pet", {"deprecated": True, "responses": {"204": {"description": ""}}}),
    )
    answers = iter([{"name": "Rex"}, [{"name": "Rex"}], {"name": 5}])
    api = Api(lambda: httpx2.Response(200, json=next(answers)))
    server = Server.from_openapi(described, client=api.client())
    async with open_client(server) as client:
        tools = {tool["name"]: tool for tool in await client.list_tools()}
        assert tools["get_pet"]["outputSchema"] == PET
        assert tools["get_pet"]["title"] == "A pet"
        assert tools["get_pet"]["annotations"] == {"readOnlyHint": True, "idempotentHint": True}
        assert tools["delete_pet"]["annotations"] == {
            "readOnlyHint": False,
            "destructiveHint": True,
            "idempotentHint": True,
        }
        assert tools["delete_pet"]["description"] == "Deprecated.\n\nDELETE /pet"
        assert (await client.call_tool("get_pet"))["structuredContent"] == {"name": "Rex"}
        assert (await client.call_tool("get_pets"))["structuredContent"] == [{"name": "Rex"}]
        wrong = await client.call_tool("get_pet")
    assert wrong["isError"]
    assert text(wrong).startswith(
        "the response to GET /pet is not as its document describes it: 5 is not of type"
    )
    assert '{"name":5}' in text(wrong)


async def test_lists_are_wrapped_for_clients_that_take_objects_alone(autojump_clock):
    described = document(
        ("get", "/a", {"responses": {"200": {"description": "", **json_of({"type": "array"})}}})
    )
    server = Server.from_openapi(described, client=Api(lambda: httpx2.Response(200, json=[1])).client())
    async with open_client(server, revision="2025-06-18") as client:
        [tool] = await client.list_tools()
        assert tool["outputSchema"]["type"] == "object"
        assert (await client.call_tool("get_a"))["structuredContent"] == {"result": [1]}


@pytest.mark.parametrize(
    ("response", "block"),
    [
        (httpx2.Response(204), {"type": "text", "text": "204 No Content"}),
        (httpx2.Response(200, text="é", headers={"content-type": "text/plain; charset=latin-1"}), {"type": "text", "text": "Ã©"}),
        (httpx2.Response(200, content=b"\x89P", headers={"content-type": "image/png"}), {"type": "image", "data": "iVA=", "mimeType": "image/png"}),
        (httpx2.Response(200, content=b"R", headers={"content-type": "audio/wav"}), {"type": "audio", "data": "Ug==", "mimeType": "audio/wav"}),
        (
            httpx2.Response(200, content=b"\xff", headers={"content-type": "application/zip"}),
            {"type": "resource", "resource": {"uri": "response:body", "mimeType": "application/zip", "blob": "/w=="}},
        ),
        (httpx2.Response(200, json=[1]), {"type": "text", "text": "[1]"}),
    ],
)  # fmt: skip
async def test_other_responses_are_content_of_their_kind(autojump_clock, response, block):
    result = await call(Api(lambda: response), document(("get", "/a", {})), "get_a")
    assert result["content"] == [block]


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (httpx2.Response(404, text="no \x1b[2Jsuch pet"), "404 Not Found: no \N{REPLACEMENT CHARACTER}[2Jsuch pet"),
        (httpx2.Response(500), "500 Internal Server Error"),
        (httpx2.Response(599, text="x" * 5000), f"599: {'x' * 2000}..."),
        (
            httpx2.Response(302, headers={"location": "https://user:pw@evil.example/x?token=1"}),
            "GET /a: 302, a redirect to evil.example, which is not followed",
        ),
        (httpx2.Response(200, content=b"{", headers={"content-type": "application/json"}), "the response to GET /a is not JSON, as its document describes it: {"),
        (httpx2.Response(200, content=b"x" * 2000, headers={"content-type": "text/plain"}), "the response to GET /a has more than 1000 bytes"),
    ],
)  # fmt: skip
async def test_an_error_is_for_the_model_to_read(autojump_clock, response, said):
    result = (
        await call(Api(lambda: response), document(("get", "/a", {})), "get_a", max_response_bytes=1000)
        if response.status_code != 599
        else await call(Api(lambda: response), document(("get", "/a", {})), "get_a")
    )
    assert result["isError"]
    assert text(result) == said


async def test_a_host_that_cannot_be_reached_is_an_error(autojump_clock):
    def refuse():
        raise httpx2.ConnectError("refused")

    result = await call(Api(refuse), document(("get", "/a", {})), "get_a")
    assert text(result) == "GET /a failed: refused"


class Stalled(httpx2.AsyncBaseTransport):
    """Answers nothing, and notes how a request ends."""

    def __init__(self):
        self.begun = trio.Event()
        self.ends = []

    async def handle_async_request(self, request):
        self.begun.set()
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self.ends.append("cancelled")
            raise


async def test_a_call_has_a_time(autojump_clock):
    stalled = Stalled()
    server = Server.from_openapi(
        document(("get", "/a", {})), client=httpx2.AsyncClient(transport=stalled), timeout=5
    )
    async with open_client(server) as client:
        before = trio.current_time()
        assert text(await client.call_tool("get_a")) == "GET /a was not answered within 5 s"
        assert trio.current_time() - before == pytest.approx(5, abs=0.5)
    assert stalled.ends == ["cancelled"]


async def test_a_cancelled_call_cancels_its_request(autojump_clock):
    stalled = Stalled()
    server = Server.from_openapi(document(("get", "/a", {})), client=httpx2.AsyncClient(transport=stalled))
    async with open_client(server) as client, trio.open_nursery() as nursery:

        async def run():
            with pytest.raises((trio.Cancelled, ClientError)):
                await client.call_tool("get_a")

        nursery.start_soon(client.call_tool, "get_a")
        await stalled.begun.wait()
        nursery.cancel_scope.cancel()
    assert stalled.ends == ["cancelled"]


SCHEMES = {
    "header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "api key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "basic": {"type": "http", "scheme": "Basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "oauth": {"type": "oauth2", "flows": {}},
    "mutual": {"type": "mutualTLS"},
}


async def arriving(monkeypatch, described, name="get_a", **options):
    """Return the request that a call sends through the pool of the server."""
    api = Api()
    monkeypatch.setattr(httpx2, "AsyncHTTPTransport", lambda **_: httpx2.MockTransport(api))
    server = Server.from_openapi(described, **options)
    async with open_client(server) as client:
        result = await client.call_tool(name)
    return api.requests[0] if api.requests else result


@pytest.mark.parametrize(
    ("scheme", "place", "value"),
    [
        ("header", "x-key", "s e"),
        ("basic", "authorization", "Basic cyBl"),
        ("bearer", "authorization", "Bearer s e"),
        ("oauth", "authorization", "Bearer s e"),
        ("cookie", "cookie", "sid=s%20e"),
    ],
)
async def test_a_secret_is_where_its_scheme_has_it(autojump_clock, monkeypatch, scheme, place, value):
    monkeypatch.setenv("PETS_SECRET", "s e")
    described = document(("get", "/a", {}), components={"securitySchemes": SCHEMES}, security=[{scheme: []}])
    request = await arriving(monkeypatch, described, credentials={scheme: "PETS_SECRET"})
    assert request.headers[place] == value


async def test_a_secret_in_a_query_is_in_no_log(autojump_clock, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    described = document(("get", "/a", {}), components={"securitySchemes": SCHEMES}, security=[{"query": []}])

    async def secret():
        return "s/e"

    request = await arriving(monkeypatch, described, credentials={"query": secret})
    assert str(request.url) == "https://api.example/v1/a?api+key=s%2Fe"
    assert "s%2Fe" not in caplog.text
    assert "s/e" not in caplog.text


async def test_an_operation_uses_the_alternative_for_which_there_are_secrets(autojump_clock, monkeypatch):
    monkeypatch.setenv("PETS_SECRET", "s")
    described = document(
        ("get", "/a", {"security": [{"mutual": []}, {}, {"header": [], "bearer": []}]}),
        ("get", "/b", {"security": []}),
        components={"securitySchemes": SCHEMES},
        security=[{"cookie": []}],
    )
    credentials = dict.fromkeys(("header", "bearer", "cookie"), "PETS_SECRET")
    request = await arriving(monkeypatch, described, credentials=credentials)
    assert (request.headers["x-key"], request.headers["authorization"]) == ("s", "Bearer s")
    assert "cookie" not in request.headers
    request = await arriving(monkeypatch, described, "get_b", credentials=credentials)
    assert {"x-key", "authorization", "cookie"}.isdisjoint(request.headers)


async def test_a_secret_that_is_not_there_is_named_and_not_shown(autojump_clock, monkeypatch):
    described = document(
        ("get", "/a", {}), components={"securitySchemes": SCHEMES}, security=[{"header": []}]
    )
    server = Server.from_openapi(described, credentials={"header": "NOT_SET"})
    with pytest.RaisesGroup(CredentialError, allow_unwrapped=True, flatten_subgroups=True) as raised:
        async with open_client(server):
            pass
    del raised
    result = await arriving(monkeypatch, described, credentials={"header": lambda: "s\nx"})
    assert text(result) == "GET /a was not sent: it holds characters that a header field cannot hold"


async def test_a_login_in_the_address_is_sent(autojump_clock, monkeypatch):
    described = document(("get", "/a", {}))
    request = await arriving(monkeypatch, described, base_url="https://ann:pw@api.example")
    assert request.headers["authorization"] == "Basic YW5uOnB3"


async def test_cookies_of_one_call_are_not_sent_with_another(autojump_clock, monkeypatch):
    api = Api(lambda: httpx2.Response(200, json={}, headers={"set-cookie": "sid=ann"}))
    monkeypatch.setattr(httpx2, "AsyncHTTPTransport", lambda **_: httpx2.MockTransport(api))
    server = Server.from_openapi(document(("get", "/a", {})))
    async with open_client(server) as client:
        await client.call_tool("get_a")
        await client.call_tool("get_a")
    assert [request.headers.get("cookie") for request in api.requests] == [None, None]


async def test_it_can_be_mounted(autojump_clock):
    api = Api()
    outer = Server("outer")
    outer.mount(Server.from_openapi(document(("get", "/a", {})), client=api.client()), prefix="pets")
    async with open_client(outer) as client:
        await client.call_tool("pets_get_a")
    assert len(api.requests) == 1


def test_the_server_is_presented_by_the_document_or_its_author():
    server = Server.from_openapi(document(("get", "/a", {})))
    assert (server.name, msgspec.to_builtins(server.version)) == ("Pets", "2")
    server = Server.from_openapi(document(("get", "/a", {})), name="mine", version="3", instructions="Ask.")
    assert (server.name, server.version) == ("mine", "3")
