import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import httpx
import pytest
from click.testing import CliRunner

from mcpbus import Server
from mcpbus.cli import load_server, main
from mcpbus.protocol.http.origin import HttpOptions
from mcpbus.serving import ServeOptions

WEATHER = """
from mcpbus import Server
print("noise while importing")
server = Server("weather", version="1.0.0")
app = object()

@server.tool
def forecast(city: str) -> str:
    return f"sunny in {city}"
"""


@pytest.fixture
def weather(tmp_path, monkeypatch):
    (tmp_path / "weather.py").write_text(WEATHER)
    (tmp_path / "broken.py").write_text("import a_library_that_is_not_installed")
    (tmp_path / "bare.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    for name in ("weather", "broken", "bare"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, " ".join(result.output.split())


def test_a_target_is_found_in_the_current_directory(weather, capsys):
    assert load_server("weather:server").name == "weather"
    assert "noise" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("weather", "'weather' does not name a server: write MODULE:ATTRIBUTE"),
        (":server", "write MODULE:ATTRIBUTE"),
        ("wether:server", "there is no module 'wether', neither in"),
        ("weather.inner:server", "there is no module 'weather.inner'"),
        ("weather.py:server", "'weather.py' is a file: name the module, 'weather'"),
        ("weather:sever", "weather has no 'sever'; it has weather:server"),
        ("weather:app", "weather:app is of type object, not a mcpbus.Server; it has weather:server"),
        ("bare:server", "bare has no 'server'; make one with: server = mcpbus.Server('name')"),
    ],
)
@pytest.mark.parametrize("command", ["serve", "stdio"])
def test_a_target_that_is_none_is_explained(command, target, message, weather):
    status, output = run(command, target)
    assert status == 2
    assert message in output


def test_what_a_module_lacks_itself_is_not_hidden(weather):
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_not_installed"):
        load_server("broken:server")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bind", "localhost"], "cannot bind to 'localhost': write HOST:PORT"),
        (["--certfile", "cert.pem"], "TLS needs both certfile and keyfile"),
        (["--drain", "-1"], "'drain_seconds' must be >= 0"),
        (["--trusted-proxy", "nginx"], "trusted_proxies: 'nginx' is no address"),
        (["--max-connections", "0"], "'max_connections' must be >= 1"),
        (["--path", "mcp"], "path is 'mcp': write a path that begins with '/', such as '/mcp'"),
        (["--port", "9000"], "there is no --port: write --bind 127.0.0.1:9000"),
        (["--host", "0.0.0.0"], "there is no --host: write --bind 0.0.0.0:8000"),
        (["--sessions", "some"], "'some' is not one of 'sessionful', 'stateless'"),
        (["--response", "xml"], "'xml' is not one of 'auto', 'json', 'sse'"),
    ],
)
def test_an_option_that_cannot_be_right_is_explained(options, message, weather):
    status, output = run("serve", "weather:server", *options)
    assert status == 2
    assert message in output


def test_an_address_that_cannot_be_listened_on_is_told_without_a_traceback(weather):
    status, output = run("serve", "weather:server", "--bind", "unix:weather.py")
    assert status == 1
    assert "Error: cannot listen on unix:weather.py" in output
    assert "Traceback" not in output


def test_what_is_given_is_what_the_server_is_run_with(weather, monkeypatch):
    ran = []
    monkeypatch.setattr(Server, "run", lambda _, **given: ran.append(given))
    proxies = ["--trusted-proxy", "10.0.0.0/8", "--trusted-proxy", "unix"]
    assert run("serve", "weather:server", *proxies, "--max-connections", "500")[0] == 0
    (given,) = ran
    assert given == {
        "bind": ServeOptions().bind,
        "options": ServeOptions(max_connections=500),
        "trusted_proxies": ("10.0.0.0/8", "unix"),
    }


def test_the_defaults_that_help_states_are_those_of_the_options():
    _, output = run("serve", "--help")
    for option in (attrs.fields(ServeOptions).write_deadline_seconds, attrs.fields(HttpOptions).path):
        default = f"{option.default:g}" if isinstance(option.default, float) else option.default
        assert f"[default: {default}]" in output


def test_routes_prints_the_table():
    from mcpbus.protocol.routes import render

    status, output = run("routes")
    assert status == 0
    assert output == " ".join(render().split())


class Process:
    """The command line, running."""

    def __init__(self, *arguments):
        root = Path(__file__).parent.parent
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from mcpbus.cli import main; main()", *arguments],
            env=os.environ | {"PYTHONPATH": str(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def url(self):
        for line in self.process.stderr:
            if found := re.search(r"is served at (\S+)", line):
                return httpx.URL(found[1])
        raise AssertionError(f"it ended with {self.process.wait()}")


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["serve", "weather:server", "--path", "/here", "--response", "json", "--drain", "1"], "/here"),
        (["demo"], "/mcp"),
    ],
)
def test_a_server_is_served_until_it_is_told_to_stop(arguments, path, weather):
    with Process(*arguments, "--bind", "127.0.0.1:0") as cli:
        url = cli.url()
        assert url.path == path
        ping = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
        accept = {"accept": "application/json, text/event-stream"}
        assert httpx.post(url, json=ping, headers=accept).json()["jsonrpc"] == "2.0"
        cli.process.send_signal(signal.SIGTERM)
        assert cli.process.wait(timeout=10) == 0


def test_stdio_serves_until_its_input_ends(weather):
    ping = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    with Process("stdio", "weather:server") as cli:
        out, _ = cli.process.communicate(ping, timeout=10)
        assert cli.process.returncode == 0
    assert '"id":1' in out.replace(" ", "")
    assert "noise" not in out
