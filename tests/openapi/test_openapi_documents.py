"""Documents: where they come from, what they refer to, which of their operations become tools, and what is refused by name."""

import http.server
import logging
import threading
from typing import ClassVar

import pytest

from mcpbus import Server
from mcpbus.openapi import document as openapi_document
from mcpbus.openapi import loading
from mcpbus.openapi.document import ApiReferences, OpenApiError, read_text
from mcpbus.openapi.naming import argument_names, tool_names
from mcpbus.openapi.operations import ApiOperation, ApiParameter, RefusedOperation, read_operations
from mcpbus.server_options import ServerFields

INFO = {"title": "Pets", "version": "2"}
OK = {"responses": {"200": {"description": ""}}}
BASE = {"openapi": "3.0.3", "info": INFO, "servers": [{"url": "https://api.example"}]}


def document(paths, **members):
    return {**BASE, "paths": paths, **members}


def tools(server):
    return server.features.tools.registered()


def names(server):
    return [*tools(server)]


def operations_of(paths, **members):
    references = ApiReferences(document(paths, **members), "", pytest.fail)
    return list(read_operations(references))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"{", "x is no JSON"),
        (b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", "nested more than 200 levels deep"),
        (b"a: [", "x is neither JSON nor YAML"),
        (b"a: \xff", "x is neither JSON nor YAML"),
        (b"a: &a [*a]", "nested more than 200 levels deep"),
        (b"a: !!python/object/apply:os.system [ls]", "x is neither JSON nor YAML"),
    ],
)
def test_what_is_no_document_is_refused(given, said):
    with pytest.raises(OpenApiError, match=said):
        read_text(given, "x")


def test_yaml_is_read_as_1_2():
    text = b"on: yes\ndate: 2026-01-01\n200: 1_0\na: [0.5, 1e3, ~, true, 'true', 7]\nb: &b {c: 1}\nd: *b\n"
    assert read_text(text, "x") == {
        "on": "yes",
        "date": "2026-01-01",
        "200": "1_0",
        "a": [0.5, 1000.0, None, True, "true", 7],
        "b": {"c": 1},
        "d": {"c": 1},
    }


def test_yaml_without_its_extra_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(ImportError, match=r"'mcpbus-server\[openapi\]'"):
        read_text(b"a: 1", "x")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"swagger": "2.0"}, "of Swagger 2.0: convert it"),
        ({}, "'openapi' is 3.0.x or 3.1.x"),
        ({"openapi": "3.2.0"}, "not 3.2.0"),
        ({"openapi": 3.1}, "not 3.1"),
        ({"openapi": "3.1.0"}, "no paths"),
        ({"openapi": "3.1.0", "paths": []}, "is an object in OpenAPI"),
        ({"openapi": "3.1.0", "paths": {}, "components": {"securitySchemes": 5}}, "is an object in OpenAPI"),
        ("nowhere.json", "nowhere.json cannot be read: No such file"),
        ("http://127.0.0.1:9/x?token=s3cret", "^http://127.0.0.1:9/x cannot be read"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused(given, said):
    with pytest.raises(OpenApiError, match=said) as raised:
        Server.from_openapi(given)
    assert "s3cret" not in str(raised.value)


def test_each_operation_is_listed_or_refused_by_name_with_the_reason(caplog):
    paths = {
        "/a": {"get": OK, "post": {"operationId": "bad", "parameters": [{"name": "x", "in": "body"}]}},
        "/{b}": {"get": OK},
        "/c?d={e}": {"get": {"parameters": [{"name": "e", "in": "path"}]}},
        "e": {"get": OK},
        "/f": {"$ref": "#/nowhere"},
        "/g": {"get": {"parameters": [{"name": "q", "in": "query", "schema": {"$ref": "#/nowhere"}}]}},
        "/h": {"get": 5, "put": {"parameters": 5}},
        "/i": {"get": {"parameters": [{"name": "X Y", "in": "header"}]}},
        "/j": {"get": {"parameters": [{"name": "q", "in": "query", "style": "matrix"}]}},
        "/k": {"get": {"parameters": [{"name": "q", "in": "query", "schema": {"type": "nonsense"}}]}},
        "/l": {"get": {"parameters": [{"name": "q", "in": "query", "schema": {"enum": ["\ud800"]}}]}},
        "x-other": {},
    }
    server = Server.from_openapi(document(paths))
    assert names(server) == ["get_a"]
    told = [record.getMessage().removeprefix("openapi Pets: ") for record in caplog.records]
    assert told[0] == "POST /a is no tool: parameter x: 'in' is path, query, header, cookie, not body"
    refused = [line.partition(" is no tool: ")[0] for line in told]
    assert refused[:8] == [
        "POST /a",
        "GET /{b}",
        "GET /c?d={e}",
        "GET e",
        "* /f",
        "GET /h",
        "PUT /h",
        "GET /i",
    ]
    assert refused[8:] == ["GET /j", "GET /g", "2 other operations are no tools"]


def test_a_pattern_of_another_language_is_left_out():
    odd, plain = ({"type": "string", "pattern": pattern, "minLength": 2} for pattern in (r"[\p{all}]*", "a"))
    parameters = [{"name": name, "in": "query", "schema": each} for name, each in (("a", odd), ("b", plain))]
    server = Server.from_openapi(document({"/a": {"get": {"parameters": parameters}}}))
    assert tools(server)["get_a"].arguments.document["properties"]["a"] == {"type": "string", "minLength": 2}


def test_parameters_of_a_path_are_those_of_its_operations():
    item = {
        "parameters": [
            {"name": "id", "in": "path", "schema": {"type": "string"}},
            {"$ref": "#/components/parameters/Q"},
        ],
        "get": {**OK, "parameters": [{"name": "id", "in": "path", "schema": {"type": "integer"}}]},
    }
    components = {"parameters": {"Q": {"name": "q", "in": "query", "required": True}}}
    [operation] = operations_of({"/{id}": item}, components=components)
    assert [(each.name, each.required) for each in operation.parameters] == [("id", True), ("q", True)]
    assert operation.parameters[0].schema.value == {"type": "integer"}


def test_references_to_files_lead_below_the_folder_of_the_document(tmp_path):
    (tmp_path / "api" / "parts").mkdir(parents=True)
    (tmp_path / "api" / "parts" / "item.yaml").write_text(
        "get:\n  operationId: one\n  parameters: [{name: q, in: query, schema: {$ref: 'schemas.json#/Q'}}]\n  responses: {200: {}}\n"
    )
    (tmp_path / "api" / "parts" / "schemas.json").write_text('{"Q": {"type": "integer", "minimum": 5}}')
    (tmp_path / "secret.json").write_text('{"get": {"operationId": "secret"}}')
    file = tmp_path / "api" / "api.yaml"
    head = "openapi: 3.0.0\ninfo: {title: a, version: '1'}\nservers: [{url: https://a.example}]\npaths:\n"
    file.write_text(
        head
        + "  /a: {$ref: parts/item.yaml}\n  /b: {$ref: ../secret.json}\n  /c: {$ref: 'file:///etc/passwd'}\n"
    )
    server = Server.from_openapi(file)
    assert names(server) == ["one"]
    schema = tools(server)["one"].arguments.document
    assert schema["properties"]["q"]["$ref"] == "#/$defs/Q"
    assert schema["$defs"]["Q"] == {"type": "integer", "minimum": 5}
    assert names(Server.from_openapi(file, references=[tmp_path])) == ["one", "secret"]


def test_references_to_hosts_are_not_followed(caplog):
    paths = {"/a": {"$ref": "http://169.254.169.254/latest?token=s"}, "/b": {"get": OK}}
    assert names(Server.from_openapi(document(paths))) == ["get_b"]
    assert (
        "refers to http://169.254.169.254/latest, which it may not: add its folder or address to references="
        in caplog.text
    )


@pytest.fixture
def web():
    """Serves documents by their paths, and notes what is asked for."""

    class Handler(http.server.BaseHTTPRequestHandler):
        pages: ClassVar = {}
        asked: ClassVar = []

        def do_GET(self):
            self.asked.append((self.path, self.headers.get("authorization")))
            status, headers, body = self.pages.get(self.path, (404, {}, b""))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Handler.address = f"http://127.0.0.1:{server.server_port}"
    Handler.pages.clear()
    Handler.asked.clear()
    yield Handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_document_at_an_address_may_refer_to_its_own_origin(web, caplog):
    caplog.set_level(logging.DEBUG)
    web.pages["/v1/openapi.json?t=s3cret"] = (
        200,
        {},
        b'{"openapi": "3.1.0", "paths": {"/a": {"$ref": "/parts.json#/a"}, "/b": {"$ref": "http://127.0.0.1:1/x"}}}',
    )
    web.pages["/parts.json"] = (200, {}, b'{"a": {"get": {}}}')
    address = web.address.replace("http://", "http://ann:pw@")
    server = Server.from_openapi(f"{address}/v1/openapi.json?t=s3cret")
    assert names(server) == ["get_a"]
    assert web.asked[0] == ("/v1/openapi.json?t=s3cret", "Basic YW5uOnB3")
    assert "s3cret" not in caplog.text
    assert "pw@" not in caplog.text


def test_a_document_that_moved_is_not_followed(web):
    web.pages["/a"] = (302, {"Location": "https://other.example/b?secret=1"}, b"")
    with pytest.raises(OpenApiError, match=r"/a answered 302, it leads to https://other.example/b$"):
        Server.from_openapi(f"{web.address}/a")


def test_documents_have_a_size(web, monkeypatch, tmp_path):
    monkeypatch.setattr(loading, "_MOST_BYTES", 100)
    web.pages["/a"] = (200, {}, b" " * 101)
    (tmp_path / "a.json").write_bytes(b" " * 101)
    for document in (f"{web.address}/a", tmp_path / "a.json"):
        with pytest.raises(OpenApiError, match="documents have more than 0 MiB together"):
            Server.from_openapi(document)


def test_a_document_has_few_others(monkeypatch):
    monkeypatch.setattr(openapi_document, "_MOST_DOCUMENTS", 2)
    references = ApiReferences({}, "https://a.example/", lambda _: {"x": 1})
    references.resolve("b#/x", "https://a.example/")
    with pytest.raises(OpenApiError, match="refers to more than 2 others"):
        references.resolve("c#/x", "https://a.example/")


def test_references_that_go_round_are_refused():
    [refused] = operations_of(
        {"/a": {"get": {"parameters": [{"$ref": "#/components/x"}]}}},
        components={"x": {"$ref": "#/components/x"}},
    )
    assert isinstance(refused, RefusedOperation)
    assert "leads from reference to reference, more than 32 times" in refused.reason


SERVERS = [
    {
        "url": "https://{region}.example/{v}",
        "variables": {"region": {"default": "eu", "enum": ["eu", "us"]}, "v": {"default": "1"}},
    }
]


@pytest.mark.parametrize(
    ("options", "servers", "address"),
    [
        ({}, SERVERS, "https://eu.example/1"),
        ({"server_variables": {"region": "us", "v": "2"}}, SERVERS, "https://us.example/2"),
        ({"base_url": "http://localhost:8080/x/"}, SERVERS, "http://localhost:8080/x"),
    ],
)
def test_the_address_is_that_of_the_document_or_the_author(options, servers, address):
    server = Server.from_openapi(document({"/a": {"get": OK}}, servers=servers), **options)
    call = tools(server)["get_a"].function.signature.function
    assert call.__closure__[0].cell_contents.address == address


@pytest.mark.parametrize(
    ("options", "members", "said"),
    [
        ({}, {"servers": []}, "does not name the host of the API, only /: give base_url"),
        ({"server_variables": {"region": "moon"}}, {"servers": SERVERS}, "region is one of eu, us"),
        ({}, {"servers": [{"url": "https://{a}.example"}]}, "needs a value for a: give base_url"),
        ({}, {"servers": [{"url": "ftp://a.example"}]}, "does not name the host of the API"),
    ],
)
def test_a_document_without_an_address_is_refused(options, members, said):
    with pytest.raises(OpenApiError, match=said):
        Server.from_openapi(document({"/a": {"get": OK}}, **members), **options)


def test_an_operation_may_have_a_server_of_its_own(caplog):
    own = {"servers": [{"url": "https://own.example"}]}
    paths = {"/a": {**own, "get": OK}, "/b": {"get": {**OK, "servers": [{"url": "ftp://b.example"}]}}}
    server = Server.from_openapi(document(paths, servers=[]))
    assert names(server) == ["get_a"]
    assert (
        "GET /b is no tool: the document does not name the host of the API, only ftp://b.example"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"base_url": "ftp://ann:pw@x"}, ValueError, "base_url is an address such as"),
        ({"base_url": "https://x/?a=1"}, ValueError, "base_url has a query"),
        ({"base_url": 5}, TypeError, "base_url is a text"),
        ({"include": "a"}, TypeError, "include is a list of patterns"),
        ({"exclude": [5]}, TypeError, "exclude is a list of texts"),
        (
            {"include": ["nothing*"]},
            ValueError,
            r"include: no operation matches 'nothing\*'; there are listPets",
        ),
        (
            {"rename": {"nothing": "a"}},
            ValueError,
            "rename: no chosen operation is 'nothing'; there are listPets",
        ),
        ({"rename": {"listPets": "getPet"}}, ValueError, "would be named 'getPet'"),
        ({"rename": ["a"]}, TypeError, "rename is a dict of texts"),
        ({"credentials": {"key": "X"}}, ValueError, "no security scheme 'key'; there are none"),
        ({"credentials": 5}, TypeError, "credentials is a dict"),
        ({"client": 5}, TypeError, "client is a httpx2.AsyncClient"),
        ({"timeout": 0}, ValueError, "timeout is more than 0"),
        ({"max_response_bytes": "x"}, TypeError, "max_response_bytes is a number"),
        ({"references": "x"}, TypeError, "references is a list"),
        ({"colour": 1}, TypeError, "'colour'"),
        ({"server_variables": {"a": 5}}, TypeError, "server_variables is a dict of texts"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options, error, said):
    paths = {
        "/pets": {"get": {"operationId": "listPets", **OK}},
        "/pets/x": {"get": {"operationId": "getPet", **OK}},
    }
    with pytest.raises(error, match=said) as raised:
        Server.from_openapi(document(paths), **options)
    assert "pw" not in str(raised.value)


PETS = {
    "/pets": {
        "get": {"operationId": "listPets", "tags": ["pets"], **OK},
        "post": {"operationId": "addPet", **OK},
    },
    "/pets/{id}": {
        "parameters": [{"name": "id", "in": "path"}],
        "get": {"operationId": "getPet", "tags": ["pets"], **OK},
        "delete": {"operationId": "killPet", **OK},
    },
}


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({}, ["listPets", "addPet", "getPet", "killPet"]),
        ({"include": ["tag:pets"]}, ["listPets", "getPet"]),
        ({"include": ["GET *", "addPet"]}, ["listPets", "addPet", "getPet"]),
        ({"include": ["* /pets/*"], "exclude": ["DELETE *"]}, ["getPet"]),
        ({"exclude": ["*Pets"]}, ["addPet", "getPet", "killPet"]),
        (
            {"rename": {"listPets": "list", "DELETE /pets/{id}": "remove"}},
            ["list", "addPet", "getPet", "remove"],
        ),
    ],
)
def test_the_author_chooses_and_names(options, chosen):
    assert names(Server.from_openapi(document(PETS), **options)) == chosen


def test_the_log_asks_to_choose_among_many(caplog):
    paths = {f"/p{number}": {"get": OK} for number in range(61)}
    Server.from_openapi(document(paths))
    assert "61 operations are tools now" in caplog.text
    caplog.clear()
    Server.from_openapi(document(paths), include=["*"])
    assert caplog.text == ""


def operation(key, identity=None):
    method, _, path = key.partition(" ")
    return ApiOperation(method, path, identity, None, None, (), False, (), None, (), None, None, None)


LONG = "a_very_long_operation_name_that_says_everything_about_it_and_more"


def test_names_are_short_stable_and_unique():
    several = [
        operation("GET /items/{item_id}", "read_item_items__item_id__get"),
        operation("GET /a", "repos/list for:org"),
        operation("GET /users"),
        operation("POST /x", "x y"),
        operation("POST /y", "x/y"),
        operation("GET /long", LONG),
        operation("GET /longer", LONG + "_too"),
        operation("GET /odd", "日本"),
    ]
    named = tool_names(several)
    assert named == tool_names(several[::-1])
    assert list(named.values())[:3] == ["read_item", "repos_list_for_org", "get_users"]
    assert len({*named.values()}) == len(several)
    assert all(len(name) <= 48 for name in named.values())
    assert named["POST /x"].startswith("x_y_")
    assert named["GET /odd"] == "call"


def test_arguments_are_told_apart_by_their_places():
    def parameter(name, place):
        return ApiParameter(name, place, False, "form", True, False, False, None, None)

    several = [
        parameter(*each)
        for each in (("id", "path"), ("id", "query"), ("filter[a]", "query"), ("body", "header"))
    ]
    assert [*argument_names(several, ["body"]).values()] == ["id_path", "id_query", "filter_a", "body_header"]


def test_the_options_of_a_server_are_all_there():
    import inspect

    own = {*inspect.signature(Server.__init__).parameters} - {"self", "name", "lifespan", "capabilities"}
    assert {*ServerFields.__annotations__} == own
