"""OpenAPI documents on the command line."""

import json

import pytest
from click.testing import CliRunner

from mcpbus.cli import main
from mcpbus.cli.openapi_options import is_document
from mcpbus.cli.targets import find_server, is_list

DOCUMENT = {
    "openapi": "3.0.0",
    "info": {"title": "Pets"},
    "servers": [{"url": "https://api.example"}],
    "paths": {"/pets": {"get": {"operationId": "list"}, "post": {"operationId": "add"}}},
    "components": {"securitySchemes": {"a=b": {"type": "http", "scheme": "bearer"}}},
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "api.json"
    path.write_text(json.dumps(DOCUMENT))
    return str(path)


def test_a_document_is_told_from_other_targets(tmp_path, file):
    (tmp_path / "desk.json").write_text('{"mcpServers": {}}')
    (tmp_path / "broken.json").write_text('{"openapi": ')
    (tmp_path / "old.json").write_text('{"swagger": "2.0"}')
    assert [each.name for each in sorted(tmp_path.iterdir()) if is_document(str(each))] == [
        "api.json",
        "old.json",
    ]
    assert is_document("https://api.example/v1/openapi.json?x=1")
    assert is_document("api.YAML")
    assert not is_document("https://api.example/mcp")
    assert not is_document("gone.json")
    assert (is_list(file), is_list(str(tmp_path / "desk.json")), is_list("gone.json")) == (False, True, True)


def test_it_is_served_as_it_is_chosen(file, monkeypatch):
    monkeypatch.setenv("PETS_TOKEN", "s")
    api = {"include": ["GET *"], "credentials": {"a=b": "PETS_TOKEN"}, "base_url": "http://localhost"}
    server = find_server(file, api=api)
    assert (server.name, [*server.features.tools.registered()]) == ("Pets", ["list"])


def test_other_commands_take_it(file):
    result = CliRunner().invoke(main, ["list", file])
    assert result.stdout == "add   POST /pets\nlist  GET /pets\n" or result.stdout.split() == [
        *("list", "GET", "/pets"),
        *("add", "POST", "/pets"),
    ]


@pytest.mark.parametrize("command", ["serve", "stdio"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["weather.py", "--base-url", "http://a"], "--base-url is for a TARGET that is an OpenAPI document"),
        (["weather.py", "--credential", "a=B"], "--credential is for a TARGET that is an OpenAPI document"),
        (["FILE", "--credential", "a=b=not-a-name"], "write it as 'SCHEME=VARIABLE'"),
        (
            ["FILE", "--credential", "a=b=NOT_SET"],
            "the environment variable 'NOT_SET', the credential for 'a=b', is not set",
        ),
        (["FILE", "--include", "nothing"], "include: no operation matches 'nothing'"),
        (["FILE", "--base-url", "ftp://x"], "base_url is an address"),
        (["FILE", "--", "x"], "arguments after TARGET are for a program or a function here"),
        (["FILE", "--isolation", "call"], "--isolation is for a TARGET that is a URL, or a command"),
        (["gone.yaml"], "gone.yaml cannot be read"),
        (["https://a.example/api.json", "--header", "A: b"], "--header is for a TARGET that is a URL"),
    ],
)
def test_a_wrong_option_is_refused(file, command, arguments, said):
    result = CliRunner().invoke(main, [command, *(file if each == "FILE" else each for each in arguments)])
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")
