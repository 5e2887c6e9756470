"""The command line: how servers are named and served, its options, and what it says of mistakes."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import attrs
import click
import httpx
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import mcpbus
from mcpbus import Server
from mcpbus.cli import main
from mcpbus.cli.options import JsonFormatter
from mcpbus.cli.targets import load_server
from mcpbus.cluster import RedisReplicas
from mcpbus.protocol.http.options import HttpOptions
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
    (tmp_path / "several.py").write_text(
        "from mcpbus import Server\nfirst = Server('1')\nsecond = Server('2')"
    )
    (tmp_path / "sub").mkdir()
    for notes in ("notes.txt", "sub/notes.txt"):
        (tmp_path / notes).write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    for name in ("weather", "broken", "bare", "several"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize("target", ["weather:server", "weather", "weather.py", "weather.py:server"])
def test_a_target_is_a_module_or_a_file_with_its_server_named_or_not(target, weather, capsys):
    assert load_server(target).name == "weather"
    assert "noise" not in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["", ":server"])
def test_a_file_is_found_wherever_it_is_and_so_is_what_it_imports_from_beside_it(
    suffix, weather, monkeypatch
):
    (weather / "station.py").write_text("from weather import server")
    monkeypatch.delitem(sys.modules, "station", raising=False)
    monkeypatch.chdir("/")
    assert load_server(f"{weather / 'station.py'}{suffix}").name == "weather"


SHOP = """
from mcpbus import Server
server = Server("shop")

@server.tool
def sell() -> str:
    return "sold"
"""
BUY = """
from {name} import server

@server.tool
def buy() -> str:
    return "bought"
"""


@pytest.mark.parametrize(
    ("target", "end", "files", "name"),
    [
        ("shop/server.py", "from shop import more", {"__init__.py": ""}, "shop.server"),
        ("shop/server.py", "from . import more", {"__init__.py": ""}, "shop.server"),
        ("shop/server.py", "import more", {"__init__.py": ""}, "shop.server"),
        ("shop/server.py", "import more", {"__init__.py": ""}, "server"),
        ("shop/server.py", "", {"__init__.py": "from shop import more"}, "shop.server"),
        ("shop/server.py", "import shop.more", {}, "shop.server"),
        ("shop/server.py", "from shop.a import b", {"a/b.py": "import shop.more"}, "shop.server"),
        ("shop/server.py", "import more", {}, "server"),
        ("shop/__init__.py", "from shop import more", {}, "shop"),
        (
            "shop/a/server.py",
            "from shop import more",
            {"__init__.py": "", "a/__init__.py": ""},
            "shop.a.server",
        ),
    ],
)
@pytest.mark.parametrize("suffix", ["", ":server"])
def test_a_file_that_another_module_imports_runs_once(  # noqa: PLR0917
    target, end, files, name, suffix, weather, monkeypatch
):
    for place, text in {
        **files,
        target.removeprefix("shop/"): SHOP + end,
        "more.py": BUY.format(name=name),
    }.items():
        file = weather / "shop" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    before = set(sys.modules)
    monkeypatch.syspath_prepend(weather)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    try:
        assert set(load_server(target + suffix).features.tools.registered()) == {"sell", "buy"}
    finally:
        for loaded in set(sys.modules) - before:
            del sys.modules[loaded]


def test_a_package_is_found_from_a_file_in_it_though_it_is_on_no_path(weather, monkeypatch):
    (weather / "shop").mkdir()
    for place, text in {
        "__init__.py": "",
        "server.py": SHOP + "from shop import more",
        "more.py": BUY.format(name="shop.server"),
        "json.py": "raise RuntimeError",
    }.items():
        (weather / "shop" / place).write_text(text)
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    code = "from mcpbus.cli.targets import load_server; print(*load_server('shop/server.py').features.tools.registered())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        cwd=weather,
        env=environment,
        check=True,
    )
    assert done.stdout.split() == ["sell", "buy"]


def test_one_server_of_two_names_is_one(weather):
    (weather / "several.py").write_text("from mcpbus import Server\nfirst = Server('1')\nsecond = first")
    assert load_server("several.py").name == "1"


def test_of_several_servers_the_one_that_has_the_others_within_is_meant(weather):
    (weather / "nested.py").write_text(
        "from mcpbus import Server\nfirst, second, third = (Server(name) for name in '123')\n"
        "second.mount(third, prefix='c')\nfirst.mount(second, prefix='b')"
    )
    assert load_server("nested.py").name == "1"
    assert load_server("nested.py:second").name == "2"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("ftp://localhost/mcp", "'ftp://localhost/mcp' is no URL of a server: one begins with http://"),
        ("npx -y weather", "is neither a file nor a module: a program is written 'stdio:npx -y weather'"),
        (":server", "it names neither a file nor a module: write one, such as weather.py or weather"),
        ("weather:", "'weather:' names no server: write weather, or weather:NAME"),
        ("bare", "bare has no server; make one with: server = mcpbus.Server('name')"),
        ("several.py", "several.py has several servers: name one of several.py:first, several.py:second"),
        ("wether:server", "there is no module 'wether', neither in"),
        ("weather.inner:server", "there is no module 'weather.inner'"),
        ("wether.py", "there is no file 'wether.py'"),
        ("sub/wether.py:server", "there is no file 'sub/wether.py'"),
        ("weather.py:sever", "weather.py has no 'sever'; it has weather.py:server"),
        ("weather:sever", "weather has no 'sever'; it has weather:server"),
        ("weather:app", "weather:app is of type object, not a mcpbus.Server; it has weather:server"),
        ("bare:server", "bare has no 'server'; make one with: server = mcpbus.Server('name')"),
        (".", "'.' is a folder: write a file in it, such as weather.py"),
        ("sub/", "'sub/' is a folder: write a file in it, such as sub/weather.py"),
        ("..weather", "'..weather' is neither a file nor a module: write weather.py or weather"),
        ("notes.txt", "'notes.txt' is no Python file: its name does not end in .py"),
        ("sub/notes.txt", "'sub/notes.txt' is no Python file"),
        ("127.0.0.1:8000", "'127.0.0.1:8000' is neither a file nor a module; a URL begins with http://"),
        (
            "localhost:8000/mcp",
            "'localhost:8000/mcp' is neither a file nor a module; a URL begins with http://",
        ),
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
        (["--drain", "-1"], "'drain_timeout' must be >= 0"),
        (["--trusted-proxy", "nginx"], "trusted_proxies: 'nginx' is no address"),
        (["--max-connections", "0"], "'max_connections' must be >= 1"),
        (["--path", "mcp"], "path is 'mcp': write a path that begins with '/', such as '/mcp'"),
        (["--port", "9000"], "there is no --port: write --bind 127.0.0.1:9000"),
        (["--host", "0.0.0.0"], "there is no --host: write --bind 0.0.0.0:8000"),
        (["--sessions", "some"], "'some' is not one of 'sessionful', 'stateless'"),
        (["--response", "xml"], "'xml' is not one of 'auto', 'json', 'sse'"),
        (["--link", "127.0.0.1:0"], "--link is for replicas, which need --redis"),
        (["--redis", "foo"], "Error: the URL of Redis is redis://HOST:PORT"),
        (
            ["--redis", "redis://r", "--workers", "2", "--link", "[::]:7000"],
            "link is '[::]:7000': each worker listens for the others on a port of its own, so write '[::]:0'",
        ),
        (
            ["--redis", "redis://r", "--workers", "2", "--advertise", "10.0.0.5:7000"],
            "advertise is '10.0.0.5:7000': each worker has a port of its own, so write the host alone, '10.0.0.5'",
        ),
        (
            ["--redis", "redis://r", "--link", "h:99999"],
            "'h:99999' is no place to listen on: write HOST:PORT",
        ),
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


def test_a_replica_that_cannot_be_one_says_why_without_a_traceback(weather):
    status, output = run("serve", "weather:server", "--redis", "redis://127.0.0.1:1")
    assert status == 1
    assert "Error: replicas that listen for each other on 0.0.0.0:0 need a secret" in output
    assert "Traceback" not in output


def test_a_replica_is_told_where_the_others_are(weather, monkeypatch):
    ran = []
    monkeypatch.setattr(Server, "run", lambda _, **given: ran.append(given["cluster"]))
    monkeypatch.setenv("MCPBUS_SERVE_REDIS", "redis://r")
    assert run("serve", "weather:server", "--namespace", "n", "--advertise", "h:1")[0] == 0
    assert ran == [RedisReplicas("redis://r", namespace="n", advertise="h:1")]


def test_what_is_given_is_what_the_server_is_run_with(weather, monkeypatch):
    ran = []
    monkeypatch.setattr(Server, "run", lambda _, **given: ran.append(given))
    proxies = ["--trusted-proxy", "10.0.0.0/8", "--trusted-proxy", "unix"]
    others = ["--max-connections", "500", "--metrics", "127.0.0.1:9464"]
    assert run("serve", "weather:server", *proxies, *others)[0] == 0
    assert run("serve", "weather:server", "--bind", "127.0.0.1:9000")[0] == 0
    assert ran == [
        {
            "options": ServeOptions(max_connections=500),
            "workers": 1,
            "metrics": "127.0.0.1:9464",
            "trusted_proxies": ("10.0.0.0/8", "unix"),
        },
        {
            "bind": ("127.0.0.1:9000",),
            "options": ServeOptions(bind="127.0.0.1:9000"),
            "workers": 1,
        },
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["9464"], "metrics is '9464': write HOST:PORT (127.0.0.1:9464"),
        (["h:65534", "--workers", "2"], "'h:65534', and 2 workers need 3 ports from there on: write a lower"),
        (["fd://3", "--workers", "2"], "'fd://3', one socket, and each worker has figures of its own: write"),
    ],
)
def test_where_figures_are_is_looked_at_before_anything_runs(given, said, weather):
    status, output = run("serve", "weather:server", "--metrics", *given)
    assert status == 2
    assert said in output


def test_options_are_environment_variables_too(weather, monkeypatch):
    ran = []
    monkeypatch.setattr(Server, "run", lambda _, **given: ran.append(given))
    monkeypatch.setenv("MCPBUS_SERVE_BIND", "127.0.0.1:9001")
    monkeypatch.setenv("MCPBUS_SERVE_ALLOWED_HOST", "one.example two.example")
    monkeypatch.setenv("MCPBUS_SERVE_DRAIN", "7")
    assert run("serve", "weather")[0] == 0
    assert ran[0]["bind"] == ("127.0.0.1:9001",)
    assert ran[0]["allowed_hosts"] == ("one.example", "two.example")
    assert ran[0]["options"].drain_timeout == 7


def test_an_environment_variable_is_named_as_its_option():
    names = {
        option.envvar: option.opts
        for command in map(partial(main.get_command, None), main.list_commands(None))
        for option in command.params
        if isinstance(option, click.Option)
    }
    assert None not in names
    assert names["MCPBUS_SERVE_TRUSTED_PROXY"] == ["--trusted-proxy"]


def test_stdio_says_how_long_its_requests_may_go_on(weather, monkeypatch):
    ran = []
    monkeypatch.setattr(Server, "run", lambda _, transport, **given: ran.append((transport, given)))
    assert run("stdio", "weather", "--drain", "2")[0] == run("stdio", "weather")[0] == 0
    assert ran == [("stdio", {"drain_timeout": 2.0}), ("stdio", {})]


def test_the_log_is_of_the_level_and_the_form_that_were_asked_for(weather):
    (weather / "talks.py").write_text(
        "import logging\nfrom mcpbus import Server\nserver = Server('talks')\n"
        "logging.getLogger('mine').debug('said %d', 1)\nlogging.getLogger('mine').debug('not \\n a line')"
    )
    with Process("stdio", "talks", "--log-level", "debug", "--log-format", "json") as cli:
        _, told = cli.process.communicate("", timeout=60)
    lines = [json.loads(line) for line in told.splitlines()]
    mine = [line for line in lines if line["logger"] == "mine"]
    assert [(line["level"], line["message"]) for line in mine] == [
        ("debug", "said 1"),
        ("debug", "not \n a line"),
    ]
    with Process("stdio", "talks") as cli:
        assert cli.process.communicate("", timeout=60)[1] == ""


def test_an_exception_is_one_field_of_its_line():
    try:
        {}["wrong"]
    except KeyError:
        record = logging.LogRecord("mine", logging.ERROR, "", 0, "failed", None, sys.exc_info())
    line = json.loads(JsonFormatter().format(record))
    assert line["exception"].endswith("KeyError: 'wrong'")
    assert datetime.fromisoformat(line["time"]).tzinfo is UTC


def test_the_version_is_told_and_the_module_is_the_command():
    told = subprocess.run(
        [sys.executable, "-m", "mcpbus", "--version"], check=True, capture_output=True, text=True
    )
    assert told.stdout == f"mcpbus, version {mcpbus.__version__}\n"


def test_the_defaults_that_help_states_are_those_of_the_options():
    _, output = run("serve", "--help")
    for option in (attrs.fields(ServeOptions).write_deadline, attrs.fields(HttpOptions).path):
        default = f"{option.default:g}" if isinstance(option.default, float) else option.default
        assert f"[default: {default}]" in output
    for command in ("serve", "stdio"):
        _, output = run(command, "--help")
        assert f"[default: {ServeOptions().drain_timeout:g}]" in output


def test_a_command_that_is_misspelt_is_told_of_those_that_are_not_imported():
    told = subprocess.run(
        [sys.executable, "-m", "mcpbus", "serv"], check=False, capture_output=True, text=True
    )
    assert "Did you mean 'serve'?" in told.stderr


def test_a_command_that_there_is_not_is_told_which_there_are():
    status, output = run("start", "weather:server")
    assert status == 2
    assert (
        "No such command 'start'. There are call, demo, inspect, install, list, login, logout, read, routes, serve, stdio, tape, top, watch."
        in output
    )


def test_what_each_command_does_is_told_in_a_line_of_a_narrow_terminal():
    _, output = run("--help")
    commands = output.partition("Commands:")[2]
    assert "watch Print changes" in commands
    assert "..." not in commands


@pytest.mark.parametrize("arguments", [["-h"], ["serve", "-h"]])
def test_help_has_a_short_name(arguments):
    status, output = run(*arguments)
    assert (status, output.startswith("Usage: ")) == (0, True)


def test_routes_prints_the_table():
    from mcpbus.protocol.routes import render

    status, output = run("routes")
    assert status == 0
    assert output == " ".join(render().split())


class Process:
    """The command line, running; with what it has started it is killed after two minutes, so that nobody waits for it for ever."""

    def __init__(self, *arguments):
        root = Path(__file__).parent.parent
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from mcpbus.cli import main; main()", *arguments],
            env=os.environ | {"PYTHONPATH": str(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._patience = threading.Timer(120, self._kill)

    def _kill(self):
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def __enter__(self):
        self._patience.start()
        return self

    def __exit__(self, *_):
        self._patience.cancel()
        self._kill()
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
        assert httpx.post(url, json=ping, headers=accept, timeout=60).json()["jsonrpc"] == "2.0"
        cli.process.send_signal(signal.SIGTERM)
        assert cli.process.wait(timeout=60) == 0


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_a_log_of_json_has_nothing_else_in_it(workers, weather):
    (weather / "plain.py").write_text("from mcpbus import Server\nserver = Server('plain')\n")
    with Process("serve", "plain.py", "--bind", "127.0.0.1:0", "--log-format", "json", *workers) as cli:
        lines = []
        for line in cli.process.stderr:
            lines.append(line)
            if "is served at" in line:
                break
        cli.process.send_signal(signal.SIGTERM)
        _, rest = cli.process.communicate(timeout=60)
        assert cli.process.returncode == 0
    entries = [json.loads(line) for line in (*lines, *rest.splitlines())]
    [said] = [entry for entry in entries if "is served at http://127.0.0.1:" in entry["message"]]
    assert (said["level"], said["logger"]) == ("info", "mcpbus")


def test_a_server_is_served_anew_when_its_file_has_changed(weather):
    with Process("serve", "weather.py", "--reload", "--bind", "127.0.0.1:0") as cli:
        cli.url()
        seen = threading.Event()

        def change():
            # From when on files are watched nobody says; and whoever changes them too often has nothing served at all.
            seconds = 1
            while not seen.is_set():
                (weather / "weather.py").write_text(WEATHER.replace('"weather"', '"climate"'))
                seconds *= 2
                seen.wait(seconds)

        changes = threading.Thread(target=change)
        changes.start()
        try:
            cli.url()
        finally:
            seen.set()
            changes.join()
        cli.process.send_signal(signal.SIGTERM)
        _, err = cli.process.communicate(timeout=60)
        assert (cli.process.returncode, "KeyboardInterrupt" in err) == (0, False)


def test_a_file_that_is_saved_while_it_is_imported_ends_that_without_a_word(weather, monkeypatch, capfd):
    begun = weather / "begun"
    (weather / "slow.py").write_text("import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(60)\n")

    def watch(*_, stop_event, **__):
        for _ in range(2):
            while not begun.exists():
                time.sleep(0.02)
            begun.unlink()
            yield set()
        signal.raise_signal(signal.SIGINT)  # as for Ctrl-C
        assert stop_event.is_set()

    monkeypatch.setattr("watchfiles.watch", watch)
    monkeypatch.setattr(sys, "argv", ["mcpbus", "serve", "slow.py", "--reload"])
    assert run("serve", "slow.py", "--reload")[0] == 0
    assert capfd.readouterr().err == ""


class EndsAtOnce:
    ended = False

    def terminate(self):
        self.ended = True

    kill = terminate

    def wait(self, _):
        assert self.ended


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("number", [1, 2])
def test_no_process_stays_behind_where_it_is_being_started_when_the_end_is_told(
    weather, monkeypatch, told, number
):
    started = []

    class Started(EndsAtOnce):
        def __init__(self, _):
            started.append(self)
            if len(started) == number:
                signal.raise_signal(told)

    def watch(*_, stop_event, **__):
        while not stop_event.is_set():
            yield set()

    monkeypatch.setattr("subprocess.Popen", Started)
    monkeypatch.setattr("watchfiles.watch", watch)
    assert run("serve", "weather.py", "--reload")[0] == 0
    assert [process.ended for process in started] == [True] * number


def test_no_other_process_is_started_when_the_end_is_told_while_one_ends(weather, monkeypatch):
    started = []

    class Ends(EndsAtOnce):
        def __init__(self, _):
            started.append(self)

        def terminate(self):
            signal.raise_signal(signal.SIGTERM)
            super().terminate()

    monkeypatch.setattr("subprocess.Popen", Ends)
    monkeypatch.setattr("watchfiles.watch", lambda *_, **__: iter([set(), set()]))
    assert run("serve", "weather.py", "--reload")[0] == 0
    assert [process.ended for process in started] == [True]


def test_what_watches_files_is_an_extra(weather, monkeypatch):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    status, output = run("serve", "weather.py", "--reload")
    assert (status, "pip install 'mcpbus-server[reload]'" in output) == (2, True)


@pytest.mark.parametrize("command", ["serve", "stdio", "call", "inspect", "install"])
def test_a_shell_completes_a_target_with_files(command):
    before = ["cursor"] if command == "install" else []
    completion = ShellComplete(main, {}, "mcpbus", "_MCPBUS_COMPLETE")
    assert [item.type for item in completion.get_completions([command, *before], "wea")] == ["file"]


def test_stdio_serves_until_its_input_ends(weather):
    ping = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    with Process("stdio", "weather:server") as cli:
        out, _ = cli.process.communicate(ping, timeout=60)
        assert cli.process.returncode == 0
    assert '"id":1' in out.replace(" ", "")
    assert "noise" not in out
