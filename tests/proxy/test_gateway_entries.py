"""The fields that clients have in their files: each is used, left to the client with a warning, or refused by its name."""

import logging
import os
import re

import pytest

from mcpbus.gateway import gateway
from mcpbus.gateway.entry import read_entry
from mcpbus.gateway.fields import FIELDS
from mcpbus.gateway.server import read_gateway

PROGRAM, SITE = {"command": "x"}, {"url": "https://a.example/mcp"}


def entry(**fields):
    return read_entry("a", {**(SITE if fields.keys() & {"headers", "login"} else PROGRAM), **fields}, None)


# -- the table ---------------------------------------------------------------------------------------


def test_each_field_has_one_fate():
    for name, field in FIELDS.items():
        fates = [field.kind is not None, bool(field.left), bool(field.refused)]
        assert fates.count(True) == 1, name
        assert field.clients, name
        assert field.meaning, name


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.left])
def test_what_is_left_to_the_client_is_named_in_the_log_with_the_reason(name, caplog):
    gateway({"a": {**PROGRAM, name: "something"}})
    assert f"server 'a': '{name}' has no effect in a gateway: {FIELDS[name].left}" in caplog.text


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.refused])
def test_what_would_have_another_effect_is_refused_by_its_name(name):
    with pytest.raises(ValueError, match=re.escape(f"server 'a': it has '{name}' of {FIELDS[name].clients}")):
        gateway({"a": {**PROGRAM, name: {"b": 1}}})
    for nothing in (None, False, {}):
        gateway({"a": {**PROGRAM, name: nothing}})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("disabledTool", "did you mean 'disabledTools'?"),
        ("exclude_tools", "did you mean 'excludeTools'?"),
        ("allowedTools", "did you mean"),
        ("filter", "take it out, or begin its name with '_'"),
    ],
)
def test_an_unknown_field_is_refused_since_it_may_be_a_filter(name, hint):
    with pytest.raises(
        ValueError, match=re.escape(f"server 'a': it has '{name}', which mcpbus does not know")
    ) as refused:
        gateway({"a": {**PROGRAM, name: ["x"]}})
    assert hint in str(refused.value)


@pytest.mark.parametrize("name", ["_note", "//", "#", "$comment"])
def test_a_comment_is_no_field(name, caplog):
    assert entry(**{name: "anything"}) == entry()
    assert caplog.records == []


# -- which servers there are -------------------------------------------------------------------------


@pytest.mark.parametrize("off", [{"disabled": True}, {"enabled": False}, {"disabled": True, "enabled": True}])
def test_a_server_that_is_off_is_not_looked_at(off):
    for nonsense in (
        {"type": "sse", "url": "https://a/sse"},
        {"command": "${NO_SUCH_VARIABLE}"},
        {"unknown": 1},
    ):
        assert read_gateway({"a": {**nonsense, **off}}) == {}


@pytest.mark.parametrize("fields", [{"disabled": "true"}, {"enabled": 0}, {"disabled": 1}, {"enabled": "no"}])
def test_a_switch_that_is_none_is_refused(fields):
    with pytest.raises(ValueError, match="Expected `bool`"):
        entry(**fields)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"command": "x", "url": "https://a"}, 'it has both "command" and a URL'),
        ({"url": "https://a", "httpUrl": "https://b"}, "it has both 'url' and 'httpUrl'"),
        ({"command": "x", "type": "http"}, "type is 'http', and it has no \"url\""),
        ({"command": "x", "type": "stdio", "transport": "http"}, "it has both 'type' and 'transport'"),
        ({"url": "https://a", "type": "stdio"}, "type is 'stdio': at a URL only Streamable HTTP is spoken"),
        ({"url": "https://a", "transport": "ws"}, "type is 'ws'"),
        ({"command": "x", "headers": {"A": "b"}}, "it has 'headers', which is for a URL"),
        ({"command": "x", "login": "work"}, "it has 'login', which is for a URL"),
        ({"url": "https://a", "env": {"A": "b"}}, "it has 'env', which is for a program"),
        ({"url": "https://a", "envFile": ".env"}, "it has 'envFile', which is for a program"),
        ({"command": "x", "source": "extension"}, "source is 'extension'"),
    ],
)
def test_what_contradicts_itself_is_refused(fields, fault):
    with pytest.raises(ValueError, match=re.escape(fault)):
        read_entry("a", fields, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "https://a", "env": {}, "args": [], "type": "streamable-http"},
        {"httpUrl": "https://a"},
        {"serverUrl": "https://a", "url": "https://a"},
        {"url": "https://a", "cwd": None},
    ],
)
def test_what_is_empty_contradicts_nothing(fields):
    assert read_entry("a", fields, None).url == "https://a"


@pytest.mark.parametrize("member", ["mcpServers", "servers", "context_servers", "mcp_servers"])
def test_the_servers_are_found_under_the_member_of_each_client(member):
    assert read_gateway({"theme": "dark", member: {"a": PROGRAM}}).keys() == {"a"}


def test_two_members_with_servers_are_refused():
    with pytest.raises(ValueError, match="has servers in mcpServers and in servers"):
        gateway({"mcpServers": {"a": PROGRAM}, "servers": {"b": PROGRAM}})


@pytest.mark.parametrize(
    "beside",
    [
        {"allowMCPServers": []},
        {"excludeMCPServers": ["a"]},
        {"mcp": {"allowed": ["b"]}},
        {"mcp": {"excluded": ["a"]}},
    ],
)
def test_a_filter_of_servers_beside_them_is_refused(beside):
    with pytest.raises(ValueError, match=r'of Gemini CLI: write "disabled": true into each server'):
        gateway({"mcpServers": {"a": PROGRAM}, **beside})


def test_a_file_of_codex_is_toml(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", "t0ken")
    monkeypatch.setenv("GIVEN", "given")
    monkeypatch.delenv("MISSING", raising=False)
    (tmp_path / "config.toml").write_text(
        """
        model = "o3"
        [mcp_servers.docs]
        command = "docs"
        args = ["--all"]
        env_vars = ["GIVEN", "MISSING"]
        enabled_tools = ["search", "read_*"]
        disabled_tools = ["read_secret"]
        tool_timeout_sec = 30
        startup_timeout_sec = 10
        required = true
        [mcp_servers.docs.env]
        A = "b"
        [mcp_servers.site]
        url = "https://a.example/mcp"
        bearer_token_env_var = "TOKEN"
        http_headers = { X-A = "a" }
        env_http_headers = { X-B = "GIVEN" }
        [mcp_servers.site.tools.search]
        approval_mode = "approve"
        [mcp_servers.off]
        command = "off"
        enabled = false
        """
    )
    docs, site = read_gateway(tmp_path / "config.toml").values()
    assert docs.command == ("docs", "--all")
    assert docs.env == {"GIVEN": "given", "A": "b"}
    assert (docs.only, docs.without) == (("search", "read_*"), ("read_secret",))
    assert (docs.timeout, docs.required) == (30, True)
    assert site.headers == {"X-A": "a", "X-B": "given", "Authorization": "Bearer t0ken"}
    assert site.only is None
    assert "t0ken" not in repr(site)


def test_a_file_of_codex_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "config.toml").write_text("[mcp_servers.a\n")
    with pytest.raises(ValueError, match=r"config\.toml cannot be read: "):
        gateway(tmp_path / "config.toml")


# -- which tools -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tools", "includeTools", "enabled_tools"])
def test_a_list_of_tools_to_offer(name):
    assert entry(**{name: ["a", "b_*"]}).only == ("a", "b_*")
    assert entry(**{name: []}).only == ()


@pytest.mark.parametrize("name", ["excludeTools", "disabledTools", "disabled_tools"])
def test_a_list_of_tools_that_are_not_offered(name):
    assert entry(**{name: ["a", "b_*"]}).without == ("a", "b_*")
    # A user may write a tool as the gateway's clients see it.
    assert read_gateway({"git hub": {**PROGRAM, name: ["git_hub_delete"]}})["git_hub"].without == (
        "git_hub_delete",
        "delete",
    )


def test_all_lists_of_tools_that_are_not_offered_hold():
    assert entry(excludeTools=["a"], disabledTools=["b"], disabled_tools=["c"]).without == ("a", "b", "c")


@pytest.mark.parametrize(
    "name", ["tools", "includeTools", "enabled_tools", "excludeTools", "disabledTools", "disabled_tools"]
)
@pytest.mark.parametrize(
    "value",
    [None, "a", True, {"a": False}, ["a", 1], [""], ["  "], ["delete(all)"], {"a": {"enabled": False}}],
)
def test_a_filter_that_is_none_is_refused_and_not_open(name, value):
    with pytest.raises(ValueError, match=f"^{name}: "):
        entry(**{name: value})


def test_two_lists_of_tools_to_offer_are_refused():
    with pytest.raises(ValueError, match="it has both 'tools' and 'includeTools'"):
        entry(tools=["a"], includeTools=["b"])


# -- variables ---------------------------------------------------------------------------------------

WRITTEN = r"""# a comment
export A=plain
B = "two
lines # and \"no\" comment"  # a comment
C='$A \n'
D=
E=with spaces  # a comment

F=`it's`
SECRET.KEY-1=x=y
"""


def test_variables_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("FROM_HERE", "here")
    (tmp_path / ".env").write_text(WRITTEN, "utf-8-sig")
    made = entry(
        envFile=str(tmp_path / ".env"), env={"A": "${FROM_HERE}", "D": None, "N": 8080, "X": 1.5, "E": None}
    )
    assert made.env == {
        "A": "here",
        "B": 'two\nlines # and "no" comment',
        "C": r"$A \n",
        "F": "it's",
        "SECRET.KEY-1": "x=y",
        "N": "8080",
        "X": "1.5",
    }
    assert made.env_file == tmp_path / ".env"
    assert "x=y" not in repr(made)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("A=1\nno assignment", "line 2 is no NAME=value"),
        ("\n\nA='s3cret", "line 3 is no NAME=value"),
        ("1A=s3cret", "line 1 is no NAME=value"),
        ('A="s3cret" B', "line 1 is no NAME=value"),
        ("A=1\nB=s3cret#2", "line 2 has a '#' in its value: write quotation marks around it"),
    ],
)
def test_a_file_of_variables_that_cannot_be_read_is_refused(text, fault, tmp_path):
    (tmp_path / ".env").write_text(text)
    with pytest.raises(ValueError, match=re.escape(fault)) as refused:
        entry(envFile=str(tmp_path / ".env"))
    assert "s3cret" not in str(refused.value)


def test_a_file_of_variables_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"envFile: .*nothing' cannot be read: No such file"):
        entry(envFile=str(tmp_path / "nothing"))


@pytest.mark.parametrize("folder", [".vscode", ".cursor", "."])
def test_the_folders_that_editors_name_are_known(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / ".env").write_text("A=b")
    (tmp_path / folder).mkdir(exist_ok=True)
    file = tmp_path / folder / "mcp.json"
    file.write_text(
        '{"servers": {"a": {"command": "${userHome}/x", "envFile": "${workspaceFolder}/.env", "cwd": "${workspaceFolder}"}}}'
    )
    [made] = read_gateway(file).values()
    assert made.command == (f"{tmp_path}/home/x",)
    assert (made.env, made.cwd) == ({"A": "b"}, str(tmp_path))


def test_the_folder_of_an_editor_is_known_in_a_file_alone():
    with pytest.raises(
        ValueError, match=r"\$\{workspaceFolder\} is known where the servers are in a file alone"
    ):
        entry(cwd="${workspaceFolder}")


def test_a_number_that_is_none_is_refused():
    with pytest.raises(ValueError, match="env: A is no number that JSON has"):
        entry(env={"A": float("inf")})


# -- logins ------------------------------------------------------------------------------------------


def logins(**servers):
    return {each.name: each.login for each in read_gateway(servers).values()}


def test_two_entries_at_one_url_do_not_share_a_login():
    assert logins(a=SITE, b={"url": "https://b.example/mcp"}) == {"a": None, "b": None}
    assert logins(a=SITE, b={"url": "HTTPS://A.example:443/mcp/"}) == {"a": "a", "b": "b"}
    assert logins(a={**SITE, "login": "work"}, b=SITE) == {"a": "work", "b": None}
    # Who writes one name twice has one account.
    assert logins(a={**SITE, "login": "work"}, b={**SITE, "login": "work"}) == {"a": "work", "b": "work"}
    # What says itself who it is needs no login.
    assert logins(a={**SITE, "headers": {"authorization": "Bearer t"}}, b=SITE) == {"a": None, "b": None}
    assert logins(a={**SITE, "disabled": True}, b=SITE) == {"b": None}


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 101])
def test_a_login_whose_name_is_none_is_refused(name):
    with pytest.raises(
        ValueError, match="server 'a': FileTokenStorage: account is a name of 1 to 100 letters"
    ):
        gateway({"a": {**SITE, "login": name}})


def test_the_environment_of_the_gateway_is_not_changed(tmp_path):
    before = dict(os.environ)
    (tmp_path / ".env").write_text("MCPBUS_TEST_ONLY=1")
    entry(envFile=str(tmp_path / ".env"))
    assert dict(os.environ) == before


def test_an_entry_as_most_are_says_nothing(caplog):
    with caplog.at_level(logging.INFO):
        gateway({"a": {**PROGRAM, "args": ["-y"], "env": {"A": "b"}, "type": "stdio", "disabled": False}})
    assert caplog.records == []
