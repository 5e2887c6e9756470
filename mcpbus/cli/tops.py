"""`mcpbus top` and `mcpbus tape`: what a server on this machine does, read from its inspector."""

import json
import os
import socket
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import click

from mcpbus.cli.terminal import echo, one_line

_DEFAULT: Final = "http://127.0.0.1:9474"
_SECONDS: Final = 10.0
_ROWS: Final = 20
_MINUTE: Final = 60

_url = click.argument("url", default=_DEFAULT)


@click.command()
@_url
@click.option("--once", is_flag=True, help="Print one screen and end.")
def top(url: str, once: bool) -> None:
    """Show which requests of a server are in flight.

    Oldest first, once a second; the server has to run on this machine, with --inspect.

    URL is that of its inspector, with or without its token. Without, the token is that of MCPBUS_INSPECT_TOKEN, or of the file that a
    server of the same user has written.
    """
    inspector = _Inspector(url)
    before: dict[str, Any] | None = None
    while True:
        ledger, live = inspector.get("/ledger"), inspector.get("/requests", limit=_ROWS)
        if not once:
            click.clear()
        for line in _screen(ledger, live, before):
            echo(line)
        if once:
            return
        before = ledger
        time.sleep(1)


def _screen(ledger: dict[str, Any], live: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    def rate(name: str) -> str:
        if before is None:
            return ""
        return f" ({(ledger[name] - before[name]) / max(0.1, ledger['now'] - before['now']):.1f}/s)"

    pending = sum(ledger["pending"].values())
    state = (
        f"{one_line(ledger['name'])}{' (draining)' if ledger['draining'] else ''}: {ledger['requests']} in flight, "
        f"{ledger['suspended']} suspended, {ledger['sessions']} sessions, {ledger['listens']} listens, {ledger['tasks']} tasks"
    )
    counts = (
        f"calls {ledger['calls']}{rate('calls')}, messages {ledger['emitted']}{rate('emitted')}, {pending} pending, "
        f"balance {ledger['balance']}, held {ledger['held_bytes']} of {ledger['memory_bytes']} bytes"
    )
    lines = [
        state,
        counts,
        "",
        f"{'NUMBER':>8} {'AGE':>8} {'STATE':<9} {'CALL':<32} {'OWNER':<24} WAITS AT",
    ]
    for row in live["requests"]:
        call = row["method"] if row["name"] is None else f"{row['method']} {row['name']}"
        waits = row["question"] or row["where"] or ""
        lines.append(
            f"{row['number']:>8} {_seconds(row['seconds']):>8} {row['state']:<9} {one_line(call)[:32]:<32} "
            f"{one_line(row['owner'])[:24]:<24} {one_line(waits)}"
        )
    if live["more"]:
        lines.append(f"and {live['more']} more")
    return lines


@click.command()
@_url
@click.option("--target", help="Only messages for this session or listen, such as 'session VvtoSnv8'.")
@click.option("--request", type=int, help="Only messages that the request of this number caused.")
@click.option("--tool", help="Only messages that calls of this tool caused.")
@click.option("--method", help="Only messages of this method.")
@click.option("--fate", help="Only messages of this fate, or pending.")
@click.option("--reason", help="Only messages discarded or refused for this reason, such as SUPERSEDED.")
@click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="How many.")
@click.option("--follow", is_flag=True, help="Go on with the messages that come.")
@click.option("--json", "as_json", is_flag=True, help="Print each message as a JSON object.")
def tape(url: str, follow: bool, as_json: bool, **filters: Any) -> None:
    """Print what became of a server's messages.

    The newest messages, oldest first; URL is as for top.
    """
    inspector = _Inspector(url)
    wanted = {name: value for name, value in filters.items() if value is not None}
    since = 0
    while True:
        found = inspector.get("/tape", **wanted, since=since)
        for message in reversed(found["messages"]):
            since = max(since, message["number"])
            echo(json.dumps(message) if as_json else _line(message))
        if not follow:
            return
        time.sleep(1)


def _line(message: dict[str, Any]) -> str:
    made = time.strftime("%H:%M:%S", time.localtime(message["made"]))
    fate = " ".join(filter(None, (message["fate"] or f"pending in {message['location']}", message["reason"])))
    cause = "" if message["request"] is None else f" by {message['tool'] or 'request'} #{message['request']}"
    target = f" to {message['target']}" if message["target"] else ""
    reply = " reply" if message["reply"] else ""
    text = f"{message['number']:>8} {made} {message['method']}{reply}{target}{cause}: {fate} after {_seconds(message['seconds'])}"
    return one_line(text)


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 2 * _MINUTE else f"{seconds / _MINUTE:.0f} min"


class _Inspector:
    """Reads an inspector, whose address people write or copy from the log."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "unix"}:
            raise click.UsageError(f"{one_line(url)} is no http:// or unix: address of an inspector")
        self._url = url
        self._path = parts.path if parts.scheme == "unix" else None
        try:
            self._host, self._port = parts.hostname or "localhost", parts.port or 80
        except ValueError:
            raise click.UsageError(f"{one_line(url)} has no good port") from None
        given = parts.fragment.removeprefix("token=")
        self._token = given or os.environ.get("MCPBUS_INSPECT_TOKEN") or _kept(self._port)

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Ask for one answer.

        Raises:
            click.ClickException: There is none; the message says why.
        """
        connection = HTTPConnection(self._host, self._port, timeout=_SECONDS)
        try:
            if self._path is not None:
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(_SECONDS)
                connection.sock.connect(self._path)
                connection.host = "localhost"
            target = f"{path}?{urlencode(query)}" if query else path
            host = "localhost" if self._path is not None else f"{self._host}:{self._port}"
            fields = {"Authorization": f"Bearer {self._token}", "Host": host}
            connection.request("GET", target, headers=fields)
            response = connection.getresponse()
            body = response.read()
        except (OSError, HTTPException) as error:
            raise click.ClickException(f"no inspector at {one_line(self._url)}: {one_line(error)}") from None
        finally:
            connection.close()
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise click.ClickException(f"what is at {one_line(self._url)} is no inspector")
        if response.status != 200:
            why = one_line(answer.get("error", response.status))
            raise click.ClickException(f"the inspector at {one_line(self._url.split('#')[0])} refuses: {why}")
        return answer


def _kept(port: int) -> str:
    """Return the token that a server of this user has written to its file; empty if there is none."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    try:
        return Path(folder, "mcpbus", str(port)).read_text() if folder else ""
    except OSError:
        return ""
