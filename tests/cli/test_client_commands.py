"""`mcpbus inspect`, `list` and `call`, in process, over HTTP and with a child."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mcpbus.cli import input_requests, inspect, main
from mcpbus.client import stdio

TESTS = Path(__file__).parents[1]
WIRE = str(TESTS / "client" / "wire_server.py")
ASKING = str(TESTS / "cli" / "asking_server.py")
CHILD = f"stdio:{sys.executable} {WIRE}"


@pytest.fixture(autouse=True)
def plenty_of_time_to_start(monkeypatch):
    monkeypatch.setattr(stdio, "_PROBE_SECONDS", 60)


@pytest.fixture(scope="module")
def url():
    command = [sys.executable, "-m", "mcpbus", "serve", WIRE, "--bind", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as served:
        for line in served.stderr:
            if found := re.search(r"is served at (\S+)", line):
                yield found[1]
                break
        served.kill()
        served.stderr.read()


@pytest.fixture(params=["file", "url", "child"])
def target(request):
    return (
        request.getfixturevalue("url")
        if request.param == "url"
        else {"file": WIRE, "child": CHILD}[request.param]
    )


def run(*arguments, status=0, **options):
    """Run a command; return what it wrote on standard output, and on standard error."""
    result = CliRunner().invoke(main, arguments, **options)
    assert "Traceback" not in result.output
    assert result.exit_code == status, result.output
    return result.stdout, result.stderr


def test_a_call_prints_the_result_and_what_is_said_meanwhile(target):
    out, err = run("call", target, "forecast", "city=oslo", "days=2")
    assert json.loads(out) == ["rain", "rain"]
    assert err.splitlines()[-3:] == ["[1/2] day 1", "[2/2] day 2", "info: forecast for oslo"]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
def test_a_call_in_a_fixed_revision(revision, url):
    arguments = ["call", url, "forecast", "city=oslo", "--revision", revision, "--log-level", "error"]
    out, err = run(*arguments)
    assert json.loads(out) == ["rain", "rain"]
    assert "info" not in err
    assert run("inspect", url, "--revision", revision)[0].startswith(f"wire 1.2, revision {revision}\n")


def test_a_result_as_it_is(target):
    out, _ = run("call", target, "forecast", "city=oslo", "days:=1", "--json")
    assert json.loads(out)["structuredContent"] == ["rain"]


def test_what_a_tool_says_of_its_failure_is_an_error(target):
    out, err = run("call", target, "fail", status=1)
    assert out == ""
    assert err == "no such city\n"
    out, _ = run("call", target, "fail", "--json", status=1)
    assert json.loads(out)["isError"] is True


def test_text_is_printed_as_text(url):
    assert run("call", url, "mirror", "region=\xe9\xe9n")[0] == "\xe9\xe9n\n"


@pytest.mark.parametrize(
    ("content", "structured", "printed"),
    [
        ("hello", {"content": "hello"}, "hello\n"),
        ("hello", {"result": "hello"}, "hello\n"),
        ("hello", {"content": "other"}, 'hello\n{\n  "content": "other"\n}\n'),
        ("hello", {"content": "hello", "more": 1}, 'hello\n{\n  "content": "hello",\n  "more": 1\n}\n'),
        ('{"content":"hello"}', {"content": "hello"}, '{\n  "content": "hello"\n}\n'),
        ("5", {"degrees": 5}, '5\n{\n  "degrees": 5\n}\n'),
        ("hello", {}, "hello\n{}\n"),
    ],
)
def test_a_text_that_a_server_wraps_is_printed_once(content, structured, printed, tmp_path):
    file = tmp_path / "wrapping.py"
    file.write_text(
        "from mcpbus import Server, ToolResult\nserver = Server('wrapping')\n"
        f"server.tool(name='say')(lambda: ToolResult({content!r}, {structured!r}))\n"
    )
    assert run("call", str(file), "say")[0] == printed


def test_what_a_server_offers_is_shown_with_its_parameters(target):
    out, _ = run("inspect", target)
    assert out.startswith("wire 1.2, revision 2026-07-28\nAsk for the weather.\ncapabilities: ")
    for line in (
        r"tools:",
        r"  forecast +Forecast the weather of a city\.",
        r"    city +string",
        r"    days +integer = 2",
        r"prompts:",
        r"  pack +What to pack\.",
        r"    days +string, optional",
        r"resources:",
        r"  wire://cities +The cities\.",
        r"templates:",
        r"  wire://cities/\{city\}",
    ):
        assert re.search(f"^{line}$", out, re.MULTILINE), line
    offer = json.loads(run("inspect", target, "--json")[0])
    assert (offer["name"], offer["revision"], len(offer["tools"])) == ("wire", "2026-07-28", 7)


def test_names_are_listed_one_a_line(url):
    assert run("list", url)[0].splitlines()[:2] == ["forecast  Forecast the weather of a city.", "fail"]
    assert run("list", url, "prompts")[0] == "pack  What to pack.\n"
    assert run("list", url, "resources")[0] == "wire://cities  The cities.\n"
    assert run("list", url, "templates")[0] == "wire://cities/{city}\n"
    assert run("list", ASKING, "prompts")[0] == ""


ANSWERS = "accept\noslo\nm\ns\n9\n2\nperhaps\ny\nnobody\na@b.example\nskis, broom\nskis, sledge\n\n"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_form_is_asked_in_the_terminal_until_the_answers_fit(revision, monkeypatch):
    monkeypatch.setattr(input_requests, "can_ask", lambda: True)
    out, err = run("call", ASKING, "plan", "--revision", revision, input=ANSWERS)
    data = {
        "city": "oslo",
        "size": "s",
        "days": 2,
        "snow": True,
        "mail": "a@b.example",
        "with": ["skis", "sledge"],
    }
    assert out == f"AcceptedElicitation {data}\n"
    assert "The server asks: Where to?\N{REPLACEMENT CHARACTER}[2J\n" in err
    assert "Where you are." in err
    assert "  s: Small\n" in err
    assert "days (integer) [3]" in err
    for wrong in (
        '"m" is not',
        "9 is greater than the maximum of 7",
        '"perhaps" is not',
        '"nobody" is not',
        '"broom" is not',
    ):
        assert wrong in err


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("typed", "outcome"),
    [
        ("decline\n", "DeclinedElicitation"),
        ("cancel\n", "CancelledElicitation"),
        ("", "CancelledElicitation"),
        ("accept\n", "CancelledElicitation"),
    ],
)
def test_a_question_may_be_declined_or_left(revision, typed, outcome, monkeypatch):
    monkeypatch.setattr(input_requests, "can_ask", lambda: True)
    assert run("call", ASKING, "plan", "--revision", revision, input=typed)[0] == f"{outcome} None\n"


def test_a_page_is_not_opened_but_named(monkeypatch):
    monkeypatch.setattr(input_requests, "can_ask", lambda: True)
    out, err = run("call", ASKING, "pay", input="accept\n")
    assert out == "AcceptedElicitation\n"
    assert "It wants you to open a page of pay.example.com:\nhttps://pay.example.com/42\n" in err


@pytest.mark.parametrize("url", ["https://[", "no page", ""])
def test_a_page_that_has_no_host_is_declined(url):
    result = CliRunner().invoke(
        click.command()(lambda: click.echo(input_requests._ask_url({"url": url})["action"]))
    )
    assert result.stdout == "decline\n"
    assert "which is no URL" in result.stderr


def test_a_page_is_named_by_its_host_and_by_nothing_that_looks_like_one():
    command = click.command()(
        lambda: click.echo(input_requests._ask_url({"url": "https://bank.example@evil.example/"})["action"])
    )
    assert "a page of evil.example:" in CliRunner().invoke(command, input="accept\n").stderr


def at_a_terminal(*arguments, typed):
    """Run a command at a terminal of its own, and type when it asks; return its status and what is on the screen."""
    terminal, its = pty.openpty()
    take = (
        "import fcntl, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored where tests run in the background\n"
        "from mcpbus.cli import main; main()"
    )
    command = [sys.executable, "-c", take, *arguments]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, start_new_session=True) as child:
        os.close(its)
        screen = b""
        with suppress(OSError):  # it has ended
            asked = False
            while True:
                silent = not select.select([terminal], [], [], 2)[0]
                screen += b"" if silent else os.read(terminal, 4096)
                # A signal that comes just before a read begins is noticed after it: so the key is pressed again.
                if b"[accept]: " in screen and (silent or not asked):
                    asked = True
                    os.write(terminal, typed)
        os.close(terminal)
    return child.returncode, screen.decode()


def test_at_a_terminal_a_page_is_asked_for():
    status, screen = at_a_terminal("call", ASKING, "pay", typed=b"decline\n")
    assert (status, screen.splitlines()[-1]) == (0, "DeclinedElicitation")


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_ctrl_c_at_a_question_ends_the_command(revision):
    status, screen = at_a_terminal("call", ASKING, "plan", "--revision", revision, typed=b"\x03")
    assert (status, screen.splitlines()[-1]) == (1, "Aborted!")


def test_without_a_terminal_a_question_is_declined_and_it_is_said_so():
    out, err = run("call", ASKING, "plan")
    assert out == "DeclinedElicitation None\n"
    assert err.endswith("Declined: there is no terminal to ask in.\n")


def test_what_was_not_offered_is_not_asked(url):
    _, err = run("call", url, "sample", status=1)
    assert "declare sampling" in err


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["call", WIRE, "forcast"], 2, "the server has no tool 'forcast': did you mean forecast?"),
        (["call", WIRE, "fo"], 2, "the server has no tool 'fo': did you mean forecast?"),
        (["call", WIRE, "xyz"], 2, f"mcpbus list {WIRE} tells which there are."),
        (
            ["call", f"stdio:{sys.executable} -m mcpbus stdio {WIRE}", "xyz"],
            2,
            f"mcpbus list 'stdio:{sys.executable} -m mcpbus stdio {WIRE}' tells which there are.",
        ),
        (["call", WIRE, "forecast"], 2, 'forecast: "city" is a required property'),
        (
            ["call", WIRE, "forecast", "city=a", "days=b"],
            2,
            'forecast: "b" is not of type "integer" - at `days`',
        ),
        (["call", WIRE, "forecast", "oslo"], 2, "'oslo' is no argument: write key=value, or key:=json"),
        (["inspect", "nothing.py"], 2, "there is no file 'nothing.py'"),
        (["inspect", "http://127.0.0.1:9/mcp"], 1, "Error: cannot connect to http://127.0.0.1:9/mcp"),
        (
            ["inspect", "stdio:no-such-program"],
            1,
            "Error: cannot start 'no-such-program': there is no such program on PATH",
        ),
        (["inspect", "stdio:"], 2, "write the command after stdio:"),
        (["inspect", "stdio:'a"], 2, "cannot be read: No closing quotation"),
        (["inspect", "stdio:false"], 1, "Error: false ended with status 1 before it answered"),
        (
            ["inspect", "stdio:cat"],
            1,
            "Error: the server answered with an error: Method not found: 'initialize' (-32601)",
        ),
        (
            ["inspect", "stdio:sleep 60", "--timeout", "0.2"],
            1,
            "the server said nothing for 0.2 seconds; --timeout",
        ),
        (["call", WIRE, "hang", "--timeout", "0.5"], 1, "the server said nothing for 0.5 seconds; --timeout"),
        (["call", WIRE, "hang", "--max-time", "0.5"], 1, "did not come to an end in 0.5 seconds; --max-time"),
        (["inspect", WIRE, "--header", "A: b"], 2, "--header is for a TARGET that is a URL"),
        (
            ["inspect", "http://a", "--header", "Authorization Bearer x"],
            2,
            "write it as 'Name: value', in ASCII",
        ),
        (["inspect", WIRE, "--timeout", "0"], 2, "--timeout"),
        (["inspect", "http:///"], 1, "'http:///' names no host"),
        (["inspect", "http://localhost:99999/"], 1, "names no port: they go from 1 to 65535"),
        (["inspect", "http://localhost:0/"], 1, "names no port: they go from 1 to 65535"),
        (["inspect", "localhost:8000/mcp"], 2, "a URL begins with http:// or https://"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(arguments, status, told, monkeypatch):
    monkeypatch.setattr(stdio, "_END_SECONDS", 0.2)
    out, err = run(*arguments, status=status)
    assert out == ""
    assert told in err


def test_a_server_without_tls_is_told_from_one_that_does_not_answer():
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _, err = run("inspect", f"https://127.0.0.1:{server.server_port}/mcp", status=1)
        server.shutdown()
    assert "does the server speak plain HTTP, at http://?" in err


@pytest.mark.parametrize(
    ("status", "told", "path"),
    [
        (
            403,
            "answered 403 Forbidden: give credentials in a header field, such as 'Authorization: Bearer TOKEN'",
            "mcp",
        ),
        (401, "; or give its token in a header field, such as 'Authorization: Bearer TOKEN'", "mcp"),
        (404, "answered 404 Not Found: is this the address of an MCP endpoint? Most end in /mcp", ""),
        (405, "answered 405 Method Not Allowed: HTTP+SSE of 2024-11-05 is not spoken; has the server", "sse"),
        (501, "answered 501 Not Implemented: is this the address of an MCP endpoint?", "mcp"),
        (500, "answered 500 Internal Server Error", "mcp"),
    ],
)
def test_a_status_is_told_with_what_to_do(status, told, path):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_error(status)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _, err = run("inspect", f"http://127.0.0.1:{server.server_port}/{path}", status=1)
        server.shutdown()
    assert told in err


def test_a_header_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("MCPBUS_LIST_HEADER", "Authorization: Bearer a b\nX-More: 1")
    read = []
    monkeypatch.setattr(inspect, "converse", lambda given, _: read.append(dict(given.headers)))
    run("list", "http://a.example/mcp")
    assert read == [{"Authorization": "Bearer a b", "X-More": "1"}]


def test_what_a_server_says_of_an_error_does_not_steer_the_terminal(tmp_path):
    (tmp_path / "evil.py").write_text(
        "from mcpbus import ProtocolError, Server\nserver = Server('evil')\n"
        "@server.tool\nasync def a() -> str:\n    raise ProtocolError(5, 'clear\\x1b[2J')\n"
    )
    _, err = run("call", str(tmp_path / "evil.py"), "a", status=1)
    assert err == "Error: the server answered with an error: clear\N{REPLACEMENT CHARACTER}[2J (5)\n"
