"""One server of a client's file, read from its fields and from the file of environment variables that `envFile` names."""

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

from mcpbus.gateway.fields import FIELDS, check_field, is_comment, is_plain
from mcpbus.upstream.connection_pool import Isolation

_ASSIGNMENT: Final = re.compile(
    r"""\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*
    (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|`(?P<back>[^`]*)`|(?P<plain>[^\r\n'"`][^\r\n]*)?)
    [ \t]*(?:\#[^\r\n]*)?(?=\r?\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_BLANK: Final = re.compile(r"(?:\s*\#[^\r\n]*(?=\r?\n|\Z)|\s+)")
_COMMENT: Final = re.compile(r"\s+#.*")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def read_env_file(file: Path) -> dict[str, str]:
    r"""Read variables. Quotation marks enclose values of several lines and with ``#``; ``\n`` is a new line between double ones.

    Args:
        file: The file, in UTF-8.

    Raises:
        OSError: It cannot be read.
        ValueError: A line is no assignment. The message has its number and nothing of it, as it may be a secret.
    """
    text = file.read_text("utf-8-sig")
    found: dict[str, str] = {}
    place = 0
    while place < len(text):
        if (blank := _BLANK.match(text, place)) is not None:
            place = blank.end()
            continue
        line = text.count("\n", 0, place) + 1
        assignment = _ASSIGNMENT.match(text, place)
        if assignment is None:
            raise ValueError(f"line {line} is no NAME=value")
        found[assignment["name"]] = _read_value(assignment, line)
        place = assignment.end()
    return found


def _read_value(assignment: re.Match[str], line: int) -> str:
    for kind in ("single", "back"):
        if assignment[kind] is not None:
            return assignment[kind]
    if assignment["double"] is not None:
        return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), assignment["double"])
    plain = _COMMENT.sub("", assignment["plain"] or "").rstrip()
    if plain.startswith("#"):
        return ""
    if "#" in plain:  # clients differ on where it ends
        raise ValueError(f"line {line} has a '#' in its value: write quotation marks around it")
    return plain


_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_OTHER_REFERENCE: Final = re.compile(r"\$\{(?!env:)[A-Za-z]+:(?!-)[^}]*\}")
_PLACES: Final = re.compile(r"\$\{(userHome|workspaceFolder)\}")
_HTTP: Final = {"http", "streamable-http", "streamable_http", "streamableHttp"}
_PROGRAM: Final = {"stdio", "local"}
_URLS: Final = ("url", "httpUrl", "serverUrl")
_FOR_URLS: Final = ("headers", "http_headers", "env_http_headers", "bearer_token_env_var", "login")
_FOR_PROGRAMS: Final = ("args", "env", "envFile", "env_vars", "cwd")
_ONLY: Final = ("tools", "includeTools", "enabled_tools")
_WITHOUT: Final = ("excludeTools", "disabledTools", "disabled_tools")
_FILTERS: Final = frozenset((*_ONLY, *_WITHOUT))
_APPROVAL: Final = "approval_mode"
_WITH_ARGUMENTS: Final = re.compile(r".+\(.*\)", re.DOTALL)


@attrs.frozen
class Entry:
    """One server.

    Attributes:
        name: Its name in the file.
        command: The program and its arguments; empty for a URL.
        env: Variables of the program's environment.
        cwd: The folder that it works in.
        url: The endpoint; None for a program.
        server: The file or the module of a server that runs in this process; None for any other.
        headers: Header fields of each request.
        revision: The only revision to speak.
        isolation: The owner of a connection to it.
        login: The name of the login; None for the one without a name.
        required: Whether the gateway needs it to start.
        only: The tools to offer, as patterns; None for all.
        without: The tools that are not offered, likewise.
        timeout: Seconds after which a call fails; None for no limit.
        env_file: The file from which some of the variables are.
        left: The fields that have no effect, by the reason.
    """

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    cwd: str | None = None
    url: str | None = None
    server: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    revision: str | None = None
    isolation: Isolation = "client"
    login: str | None = None
    required: bool = False
    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    timeout: float | None = None
    env_file: Path | None = None
    left: Mapping[str, list[str]] = attrs.field(factory=dict, eq=False)


def read_entry(name: str, written: Any, workspace: Path | None) -> Entry | None:
    """Read an entry; None for one that is disabled.

    Args:
        name: Its name in the file.
        written: The entry as it is in the file.
        workspace: The folder that ``${workspaceFolder}`` stands for, if there is one.

    Raises:
        ValueError: It cannot be used; the message names the field.
    """
    held = {
        field: value for field, value in _as("", written, dict[str, Any]).items() if not is_comment(field)
    }
    if _value(held, "disabled", default=False) or not _value(held, "enabled", default=True):
        return None
    for field, value in held.items():
        check_field(field, value)
    # null stands for a field that is not there, unless it is a filter: that would be open.
    given = {
        field: _value(held, field)
        for field, value in held.items()
        if FIELDS[field].kind is not None and (value is not None or field in _FILTERS)
    }
    return _Reader(given, workspace).entry(name, _left(held))


class _Reader:
    """Makes an entry from the fields that are used.

    Args:
        given: Their values, each of its type.
        workspace: As for `read_entry`.
    """

    def __init__(self, given: dict[str, Any], workspace: Path | None) -> None:
        self._given = given
        self._workspace = workspace

    def entry(self, name: str, left: Mapping[str, list[str]]) -> Entry:
        """Return the entry.

        Raises:
            ValueError: It cannot be used.
        """
        given = self._given
        url, server = self._one(_URLS), self._text("server")
        self._check_kind(url)
        is_program = url is None and server is None
        env_file = self._text("envFile")
        file = None if env_file is None else Path(env_file).expanduser().absolute()
        return Entry(
            name,
            command=(self._expanded(given["command"]), *self._texts("args")) if is_program else (),
            env=self._environment(file) if is_program else {},
            cwd=self._text("cwd"),
            url=url,
            server=server,
            headers={} if url is None else self._headers(),
            revision=given.get("revision"),
            isolation=given.get("isolation", "client"),
            login=given.get("login"),
            required=given.get("required", False),
            only=self._only(),
            without=tuple(pattern for field in _WITHOUT for pattern in self._patterns(field)),
            timeout=given.get("tool_timeout_sec"),
            env_file=file,
            left=left,
        )

    def _check_kind(self, url: str | None) -> None:
        """Refuse what names no server or two, and what has fields for the other kind of server."""
        given = self._given
        if "server" in given:
            self._check_server(url)
            return
        if url is None and "command" not in given:
            raise ValueError('it has neither "command" nor "url"')
        if url is not None and "command" in given:
            raise ValueError('it has both "command" and a URL: leave one of them out')
        if given.get("source", "custom") != "custom":
            raise ValueError(
                f"source is {given['source']!r}: mcpbus runs no extension of an editor, so write command or url"
            )
        kind = self._one(("type", "transport"))
        if url is not None and kind is not None and kind not in _HTTP:
            raise ValueError(
                f"type is {kind!r}: at a URL only Streamable HTTP is spoken, which is called http; has the server an endpoint "
                f'of that, such as /mcp? If not, write "disabled": true'
            )
        if url is None and kind is not None and kind not in _PROGRAM:
            raise ValueError(f'type is {kind!r}, and it has no "url"; the type of a program is stdio')
        for name in _FOR_PROGRAMS if url is not None else _FOR_URLS:
            if not is_plain(given.get(name)):
                raise ValueError(
                    f"it has {name!r}, which is for {'a program' if url is not None else 'a URL'}"
                )

    def _check_server(self, url: str | None) -> None:
        """Refuse a server in this process that has what is for a program or a URL."""
        given = self._given
        if url is not None or "command" in given:
            raise ValueError('it has both "server" and "command" or a URL: leave one of them out')
        for name in (*_FOR_PROGRAMS, *_FOR_URLS, "type", "transport", "revision"):
            if not is_plain(given.get(name)):
                raise ValueError(f"it has {name!r}, which is not for a server in the process of the gateway")

    def _environment(self, file: Path | None) -> dict[str, str]:
        variables: dict[str, str | None] = {}
        if file is not None:
            try:
                variables.update(read_env_file(file))
            except OSError as error:
                raise ValueError(f"envFile: {str(file)!r} cannot be read: {error.strerror}") from None
            except ValueError as fault:
                raise ValueError(f"envFile: {file}: {fault}") from None
        for name in self._given.get("env_vars", ()):
            if name in os.environ:
                variables[name] = os.environ[name]
        for name, value in self._given.get("env", {}).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"env: {name} is no number that JSON has; write it as a text")
            variables[name] = None if value is None else self._expanded(str(value))
        return {name: value for name, value in variables.items() if value is not None}

    def _headers(self) -> dict[str, str]:
        given = self._given
        headers = {**given.get("http_headers", {}), **given.get("headers", {})}
        headers = {name: self._expanded(value) for name, value in headers.items()}
        for name, variable in given.get("env_http_headers", {}).items():
            headers[name] = _variable(variable, None)
        if (token := given.get("bearer_token_env_var")) is not None:
            headers["Authorization"] = f"Bearer {_variable(token, None)}"
        return headers

    def _only(self) -> tuple[str, ...] | None:
        lists = [name for name in _ONLY if name in self._given and not self._is_approvals(name)]
        if len(lists) > 1:
            raise ValueError(
                f"it has both {lists[0]!r} and {lists[1]!r}: write one list of the tools to offer"
            )
        return tuple(self._patterns(lists[0])) if lists else None

    def _is_approvals(self, name: str) -> bool:
        """Whether it is the table of Codex that tells for which tools the user is asked."""
        table = self._given[name]
        if not isinstance(table, dict):
            return False
        if any(set(each) - {_APPROVAL} for each in table.values()):
            raise ValueError(
                f"{name}: of each tool it may have {_APPROVAL!r}; the tools to offer are a list of names"
            )
        return True

    def _patterns(self, name: str) -> list[str]:
        found: list[str] = self._given.get(name, [])
        for pattern in found:
            if not pattern.strip() or _WITH_ARGUMENTS.fullmatch(pattern):
                raise ValueError(
                    f"{name}: {pattern!r} is no name of a tool; * stands for any letters, and arguments cannot be told"
                )
        return found

    def _one(self, names: tuple[str, ...]) -> str | None:
        """Return the value of the only one of some names for the same field; None if there is none."""
        there = [name for name in names if name in self._given]
        if len({self._given[name] for name in there}) > 1:
            raise ValueError(
                f"it has both {there[0]!r} and {there[1]!r}, which are the same: leave one of them out"
            )
        return self._text(there[0]) if there else None

    def _text(self, name: str) -> str | None:
        value = self._given.get(name)
        return None if value is None else self._expanded(value)

    def _texts(self, name: str) -> list[str]:
        return [self._expanded(each) for each in self._given.get(name, ())]

    def _expanded(self, text: str) -> str:
        """Put in the values of variables, and the folders that editors name.

        Raises:
            ValueError: There is no such variable, or it is one of some clients alone.
        """
        if (other := _OTHER_REFERENCE.search(text)) is not None:
            raise ValueError(
                f"{other[0]} is known to some clients alone: write a variable of the environment, ${{NAME}}"
            )
        return _REFERENCE.sub(lambda found: _variable(*found.groups()), _PLACES.sub(self._place, text))

    def _place(self, found: re.Match[str]) -> str:
        if found[1] == "userHome":
            return str(Path.home())
        if self._workspace is None:
            raise ValueError(f"{found[0]} is known where the servers are in a file alone")
        return str(self._workspace)


def _left(held: Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in held.items():
        if FIELDS[name].left and not is_plain(value):
            found.setdefault(FIELDS[name].left, []).append(name)
    return found


def _value(held: Mapping[str, Any], name: str, default: Any = None) -> Any:
    return _as(name, held[name], FIELDS[name].kind) if name in held else default


def _as(name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except RecursionError:
        raise ValueError(f"{name}: it is nested too deeply") from None
    except msgspec.ValidationError as fault:
        raise ValueError(f"{name}: {fault}" if name else str(fault)) from None


def _variable(name: str, otherwise: str | None) -> str:
    value = os.environ.get(name, otherwise)
    if value is None:
        raise ValueError(
            f"there is no {name} in the environment; write ${{{name}:-text}} if it need not be there"
        )
    return value
