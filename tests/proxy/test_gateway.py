"""One server for all that a client's file names."""

import json
import re
import sys
from contextvars import ContextVar
from pathlib import Path

import pytest
import trio

from mcpbus.gateway import gateway
from mcpbus.proxy import Proxy
from mcpbus.testing import open_client
from mcpbus.upstream import proxy_runtime

HELLO = "from mcpbus import Server; import os; s = Server('hello'); s.add_tool(lambda: os.getenv('WHO', ''), name='who'); s.run('stdio')"
CHILD = {"command": sys.executable, "args": ["-c", HELLO]}


async def test_the_programs_of_a_file_are_offered_under_their_names(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("NAME", "Ada")
    servers = {
        "a": {**CHILD, "env": {"WHO": "${NAME} ${env:NAME} ${MISSING:-Bob}"}, "alwaysAllow": ["who"]},
        "b c": {**CHILD, "cwd": str(tmp_path), "type": "stdio"},
        "off": {"command": "no-such-program", "disabled": True},
        "gone": {"command": "no-such-program"},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers, "other": 1}), "utf-8-sig")
    made = gateway(tmp_path / "mcp.json", name="desk", instructions="All of it.")
    assert sorted(made.features.tools.registered()) == []
    monkeypatch.setattr(proxy_runtime, "START_SECONDS", ContextVar("START_SECONDS", default=60))
    with trio.fail_after(60):
        async with open_client(made) as client:
            described = await client.describe()
            assert (described.name, described.instructions) == ("desk", "All of it.")
            assert sorted(tool["name"] for tool in await client.list_tools()) == ["a_who", "b_c_who"]
            assert (await client.call_tool("a_who"))["content"][0]["text"] == "Ada Ada Bob"
    assert "gone cannot be reached; it is tried again in 1 s: cannot start 'no-such-program'" in caplog.text


def test_a_file_of_vs_code_and_what_it_holds_will_do():
    for given in ({"servers": {"a": CHILD}}, {"mcpServers": {"a": CHILD}}, {"a": CHILD}):
        [proxy] = gateway(given).mounted()
        assert isinstance(proxy, Proxy)
        assert proxy.name == "a"


def test_a_url_has_its_header_fields():
    [proxy] = gateway(
        {"a": {"type": "http", "url": "https://a.example/mcp", "headers": {"X-Key": "k"}}}
    ).mounted()
    assert proxy._upstream.connect.__self__._connect.keywords["headers"] == {"X-Key": "k"}


async def test_two_programs_with_the_same_uri_are_both_read():
    program = str(Path(__file__).with_name("awkward_server.py"))
    servers = {name: {"command": sys.executable, "args": [program, name]} for name in ("git", "git_hub")}
    with trio.fail_after(60):
        async with open_client(gateway(servers)) as client:
            listed = [each["uri"] for each in await client.list_resources()]
            assert sorted(listed) == ["ui://git/w", "ui://git_hub/w"]
            read = [(await client.read_resource(uri))[0] for uri in listed]
            assert {(each["uri"], each["text"]) for each in read} == {
                ("ui://git/w", "git"),
                ("ui://git_hub/w", "git_hub"),
            }
            assert {tool["name"] for tool in await client.list_tools()} >= {"git__put", "git_hub_put"}


def test_a_server_has_its_isolation():
    made = gateway(
        {"a": CHILD, "b": {**CHILD, "isolation": "call"}, "c": {"url": "https://c", "isolation": "none"}}
    )
    assert [proxy._terms.isolation for proxy in made.mounted()] == ["client", "call", "none"]


NESTED: list = []
for _ in range(5_000):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("servers", "fault"),
    [
        ({}, 'names no servers: it has them as {"mcpServers": {"weather": {"command": ...}}}'),
        ({"mcpServers": []}, "names no servers"),
        ({"a": 5}, "what is given, server 'a': Expected `object`, got `int`"),
        ({"a": {}}, 'server \'a\': it has neither "command" nor "url"'),
        ({"a": {"command": "x", "args": "y"}}, "server 'a': args: Expected `array`, got `str`"),
        (
            {"a": {"command": "x", "isolation": "session"}},
            "server 'a': isolation: Invalid enum value 'session'",
        ),
        ({"a": {"command": ""}}, "server 'a': command is empty: it needs at least the program"),
        (
            {"a": {"url": "ftp://user:secret@a"}},
            "server 'a': Proxy: target is a URL that begins with ftp://: write one of http://",
        ),
        ({"a": {"url": "token secret"}}, "server 'a': Proxy: target is a text that is no URL: write one of"),
        ({"a": {"url": "http://a b/?token=secret"}}, "'http://a b/?...' is no URL"),
        (
            {"a": {"command": "x", "args": NESTED}},
            "server 'a': args: Expected `str`, got `array`",
        ),
        ({"a": {"url": "https://"}}, "server 'a': Proxy: 'https://' names no host"),
        (
            {"a": {"url": "https://a/sse", "type": "sse"}},
            "server 'a': type is 'sse': at a URL only Streamable HTTP is spoken, which is called http",
        ),
        (
            {"a": {"url": "https://a", "headers": {"K": "${input:key}"}}},
            "server 'a': ${input:key} is known to some clients alone: write a variable of the environment, ${NAME}",
        ),
        (
            {"a b": {"command": "x"}, "a/b": {"command": "y"}},
            "servers 'a b' and 'a/b' would both have the prefix 'a_b'",
        ),
        (
            {"a": {"command": "x"}, "a_": {"command": "y"}},
            "server 'a_': prefixes 'a' and 'a_': a name could be of either server; give one of them another prefix",
        ),
        (
            {"a": {"url": "https://a", "headers": {"x y": "z"}}},
            "server 'a': header 'x y' has no name of a header",
        ),
        (
            {"a": {"command": "x", "env": {"A": "${NO_SUCH_VARIABLE}"}}},
            "there is no NO_SUCH_VARIABLE in the environment",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_server_and_what_is_wrong(servers, fault):
    with pytest.raises(ValueError, match=re.escape(fault)) as refused:
        gateway(servers)
    assert "secret" not in str(refused.value)


def test_a_file_may_have_comments_as_that_of_vs_code(tmp_path):
    text = r"""
    { // servers
      "servers": {
        "a": {"command": "x", "args": ["http://a/*b*/", "\"// c", ",}"],}, /* and
        no more, */
      },
    }"""
    (tmp_path / "mcp.json").write_text(text)
    [proxy] = gateway(tmp_path / "mcp.json").mounted()
    assert proxy._upstream.connect.args == (["x", "http://a/*b*/", '"// c', ",}"],)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{a: 1}", r"mcp\.json cannot be read: Expecting property name"),
        (
            '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}',
            "read: it has 'a' twice in one place",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(text, fault, tmp_path):
    (tmp_path / "mcp.json").write_text(text)
    with pytest.raises(ValueError, match=fault):
        gateway(tmp_path / "mcp.json")
    with pytest.raises(FileNotFoundError):
        gateway(tmp_path / "none.json")


def test_options_are_those_of_a_server():
    with pytest.raises(TypeError, match="has no option 'titel'; did you mean 'title'"):
        gateway({"a": CHILD}, titel="x")
