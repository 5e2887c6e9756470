"""The command line at a server behind a login: at a terminal, without one, and started by a desktop client."""

import json
import os
import pty
import re
import select
import shlex
import stat
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest

HERE = Path(__file__).parent
FOLLOW = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1])"
BROWSER = f"{sys.executable} -c {shlex.quote(FOLLOW)} %s"


class Site:
    """What `guarded_site.py` serves."""

    def __init__(self, url, issuer):
        self.url = url
        self.issuer = issuer

    @property
    def pages(self):
        """How many pages were opened."""
        with urllib.request.urlopen(f"{self.issuer}/pages") as answer:
            return int(answer.read())

    def take_back(self):
        urllib.request.urlopen(f"{self.issuer}/take-back").close()


@pytest.fixture
def site():
    with subprocess.Popen(
        [sys.executable, HERE / "guarded_site.py"], stdout=subprocess.PIPE, text=True
    ) as served:
        yield Site(*served.stdout.readline().split())
        served.kill()


@pytest.fixture
def env(tmp_path):
    """An environment with a browser that agrees to everything, and a folder of its own."""
    kept = {name: value for name, value in os.environ.items() if "DISPLAY" not in name}
    return {**kept, "XDG_CONFIG_HOME": str(tmp_path), "BROWSER": BROWSER}


def run(env, *arguments, status=0, **options):
    """Run a command without a terminal; return what it says on standard output, and on standard error."""
    ended = subprocess.run(
        [sys.executable, "-m", "mcpbus", *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
        **options,
    )
    assert ended.returncode == status, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout, ended.stderr


def test_without_a_terminal_it_says_what_to_do_and_then_all_commands_are_logged_in(site, env, tmp_path):
    _, err = run(env, "list", site.url, status=1)
    assert err == (
        f"Error: {site.url} asks for a login, and nobody is here to log in: `mcpbus login {site.url}` does, in a terminal\n"
    )
    assert site.pages == 0
    out, err = run(env, "login", site.url)
    assert re.fullmatch(rf"Logged in to {site.url} at http://127\.0\.0\.1:\d+\.\n", out)
    assert (
        f"{site.url} asks for a login that allows read. Log in at 127.0.0.1, in the browser, or open this page:\nhttp://127.0.0.1"
        in err
    )
    for command in (["list", site.url], ["inspect", site.url], ["call", site.url, "read"]):
        run(env, *command)
    assert run(env, "call", site.url, "read")[0] == "somebody\n"
    assert site.pages == 1
    folder = tmp_path / "mcpbus" / "logins"
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    _, err = run(env, "call", site.url, "write", status=1)
    assert "does not allow that (read write)" in err
    run(env, "login", site.url)
    assert run(env, "call", site.url, "write")[0] == "written\n"


def test_who_logs_out_is_logged_out(site, env):
    run(env, "login", site.url)
    [file] = Path(env["XDG_CONFIG_HOME"], "mcpbus", "logins").glob("*.json")
    token = json.loads(file.read_text())["tokens"]["access"]
    out, _ = run(env, "logout", site.url)
    assert re.fullmatch(
        rf"Logged out of {site.url}; http://127\.0\.0\.1:\d+ has taken the login back\.\n", out
    )
    assert not file.exists()
    with pytest.raises(HTTPError, match="401"):
        urllib.request.urlopen(urllib.request.Request(site.url, b"{}", {"Authorization": f"Bearer {token}"}))
    assert run(env, "logout", site.url)[0] == f"Nobody was logged in to {site.url}.\n"
    run(env, "list", site.url, status=1)


def test_a_key_in_a_url_is_said_nowhere(site, env):
    url = f"{site.url}?key=k3y"
    said = [*run(env, "list", url, status=1), *run(env, "login", url), *run(env, "call", url, "read")]
    said += [*run(env, "logout", url), *run(env, "logout", url)]
    with_password = site.url.replace("://", "://somebody:passw0rd@")
    said += [*run(env, "login", with_password, status=1), *run(env, "logout", with_password)]
    said = "".join(said)
    assert "k3y" not in said
    assert "passw0rd" not in said
    assert f"`mcpbus login {site.url}?...`" in said
    assert f"Logged in to {site.url}?... at" in said
    assert f"Error: {site.url} is sent the name and the password in its URL instead of a login" in said


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["login", "weather.py"], 2, "no URL"),
        (["logout", "weather.py"], 2, "no URL"),
        (["login", "a.example/mcp?key=s3cret"], 2, "'a.example/mcp?...' is no URL"),
        (["login", "https://a.example", "--issuer", "x"], 2, "issuer is 'x'"),
        (["login", "https://a.example", "--client-secret", "s3cret"], 2, "client_secret needs client_id"),
        (["login", "https://a.example", "--redirect", "99999"], 2, "ports go from 1"),
        (
            ["login", "https://a.example", "--redirect", "https://a.example/x"],
            2,
            "an address of this machine",
        ),
        (["login", "https://a.example", "--client-metadata-url", "http://a.example/x"], 2, "must be https"),
        (["login", "http://127.0.0.1:9/mcp"], 1, "cannot connect"),
    ],
)
def test_what_is_said_wrong_is_told_in_a_sentence(arguments, status, told, env):
    _, err = run(env, *arguments, status=status)
    assert told in err
    assert "s3cret" not in err


def test_where_there_is_neither_a_terminal_nor_a_browser(site, env):
    env["BROWSER"] = "false"
    _, err = run(env, "login", site.url, status=1)
    assert f"no browser can be opened here: `mcpbus login {site.url}` logs in, in a terminal" in err
    _, err = run(env, "stdio", site.url, status=1)
    assert f"`mcpbus login {site.url}`" in err


class Terminal:
    """A command in a terminal, and what it shows."""

    def __init__(self, process, screen):
        self.process = process
        self._screen = screen
        self.shown = ""

    def until(self, pattern):
        """Read until something is shown, and return the match."""
        deadline = time.monotonic() + 60
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < deadline, self.shown
            if select.select([self._screen], [], [], 1)[0]:
                try:
                    self.shown += os.read(self._screen, 65536).decode().replace("\r\n", "\n")
                except OSError:  # it has ended
                    assert re.search(pattern, self.shown), self.shown
        return found

    def type(self, text):
        os.write(self._screen, f"{text}\n".encode())


@contextmanager
def terminal(env, *arguments):
    screen, end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "mcpbus", *arguments], env=env, stdin=end, stdout=end, stderr=end
    ) as process:
        os.close(end)
        yield Terminal(process, screen)
        process.kill()
    os.close(screen)


def test_at_a_terminal_a_command_logs_in_by_itself(site, env):
    with terminal(env, "call", site.url, "write") as shown:
        shown.until("written\n")
        assert shown.process.wait(30) == 0
    assert shown.shown.count("asks for a login") == 2
    assert site.pages == 2


@pytest.mark.parametrize("behind", ["", " &"], ids=["before", "behind"])
def test_a_person_takes_longer_than_a_server_may(behind, site, env):
    env["BROWSER"] = f"{sys.executable} -c {shlex.quote('import time; time.sleep(8); ' + FOLLOW)} %s{behind}"
    with terminal(env, "list", site.url, "--timeout", "6") as shown:
        shown.until(r"write.*\n")
        assert shown.process.wait(30) == 0


def test_where_the_browser_is_on_another_machine_the_address_is_pasted(site, env):
    env["BROWSER"] = "false"
    with terminal(env, "login", site.url) as shown:
        page = shown.until(r"open this page:\s+(http://\S+)\n")[1]
        shown.until("paste here the address")
        opener = urllib.request.build_opener(_Still)
        with pytest.raises(HTTPError) as moved:
            opener.open(page)
        shown.type("")
        shown.type(f"  {moved.value.headers['location']} ")
        moved.value.close()
        shown.until("Logged in to")
        assert shown.process.wait(30) == 0
    run(env, "list", site.url)


class _Still(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "desktop", "version": "1"},
}


@contextmanager
def desktop(env, *arguments):
    """A program as a desktop client starts it; yields a function that asks it something."""
    with subprocess.Popen(
        [sys.executable, "-m", "mcpbus", *arguments],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:

        def ask(method, params, number=1):
            said = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(f"{json.dumps(said)}\n")
            process.stdin.flush()
            for line in process.stdout:
                message = json.loads(line)
                if message.get("id") == number:
                    return message["result"]
            raise AssertionError(process.stderr.read())

        yield ask
        process.kill()


def test_what_a_desktop_client_starts_opens_the_browser_and_is_logged_in_at_the_first_try(site, env):
    for _ in range(2):
        with desktop(env, "stdio", site.url) as ask:
            assert ask("initialize", INITIALIZE)["serverInfo"]["name"] == "vault"
            assert [tool["name"] for tool in ask("tools/list", {}, 2)["tools"]] == ["read", "write"]
            called = ask("tools/call", {"name": "read", "arguments": {}}, 3)
            assert called["content"][0]["text"] == "somebody"
    assert site.pages == 1


def test_two_that_are_started_at_once_open_one_page_and_renew_nothing_twice(site, env):
    env["BROWSER"] = f"{sys.executable} -c {shlex.quote('import time; time.sleep(1); ' + FOLLOW)} %s &"
    with desktop(env, "stdio", site.url) as one, desktop(env, "stdio", site.url) as other:
        for ask in (one, other):
            ask("initialize", INITIALIZE)
            ask("tools/call", {"name": "read", "arguments": {}}, 2)
        assert site.pages == 1
        site.take_back()
        for ask in (one, other):
            called = ask("tools/call", {"name": "read", "arguments": {}}, 3)
            assert called["content"][0]["text"] == "somebody"
    assert site.pages == 2


def test_a_server_of_a_file_uses_what_was_logged_in_to(site, env, tmp_path):
    file = tmp_path / "desk.json"
    file.write_text(json.dumps({"mcpServers": {"vault": {"url": site.url}}}))
    run(env, "login", site.url)
    assert run(env, "call", str(file), "vault_read")[0] == "somebody\n"


def test_two_accounts_at_one_server(site, env, tmp_path):
    for account in ("work", "home"):
        out, _ = run(env, "login", site.url, "--as", account)
        assert out.startswith(f"Logged in to {site.url} as {account} at ")
    assert site.pages == 2
    _, err = run(env, "call", site.url, "read", status=1)
    assert f"`mcpbus login {site.url}` does" in err
    assert run(env, "call", site.url, "read", "--as", "work")[0] == "somebody\n"
    file = tmp_path / "desk.json"
    file.write_text(json.dumps({"mcpServers": {"vault": {"url": site.url, "login": "home"}}}))
    assert run(env, "call", str(file), "vault_read")[0] == "somebody\n"
    out, _ = run(env, "logout", site.url, "--as", "work")
    assert out.startswith(f"Logged out of {site.url} as work; ")
    _, err = run(env, "call", site.url, "read", "--as", "work", status=1)
    assert f"`mcpbus login {site.url} --as work` does, in a terminal" in err
    assert run(env, "call", str(file), "vault_read")[0] == "somebody\n"
    _, err = run(env, "call", str(file), "vault_read", "--as", "home", status=2)
    assert "--as is for a TARGET that is a URL" in err
    _, err = run(env, "login", site.url, "--as", " ", status=2)
    assert "account is a name of 1 to 100 letters" in err
