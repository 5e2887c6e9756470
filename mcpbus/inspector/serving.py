"""The inspector at an address of its own: its page, and the guards that let a program on this machine read it with the token."""

import hmac
import logging
import os
import re
import secrets
from base64 import b64encode
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache, partial
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import attrs
import msgspec

from mcpbus.core.concurrency import background
from mcpbus.core.hub import Hub
from mcpbus.inspector.answers import Answers, BadQueryError
from mcpbus.metrics import address_of, addresses_of, naming_the_option
from mcpbus.serving import ServeOptions, serve
from mcpbus.serving.asgi import AsgiApp, Receive, Scope, Send
from mcpbus.watch.watch import Watch

FieldList = Sequence[tuple[bytes, bytes]]

UNGUARDED = "/"
"""The page, in which there is nothing but itself."""


def refusal(
    verb: str, path: str, fields: FieldList, names: Collection[str], token: str
) -> tuple[HTTPStatus, str] | None:
    """Return why a request is refused, with the HTTP status; None if it is not.

    Args:
        verb: Its method.
        path: Its path.
        fields: Its header fields, their names in lower case.
        names: What `Host` may say: the inspector has no other name, so that no name can be made to lead to it (DNS rebinding).
        token: The token.
    """
    hosts, origins = _values(fields, b"host"), _values(fields, b"origin")
    if len(hosts) != 1 or hosts[0].lower() not in names:
        return HTTPStatus.FORBIDDEN, "this Host is not the inspector's"
    if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
        return HTTPStatus.FORBIDDEN, "another page may not read the inspector"
    if verb not in {"GET", "HEAD"}:
        return HTTPStatus.METHOD_NOT_ALLOWED, "the inspector can only be read"
    if path != UNGUARDED and not _has_token(fields, token):
        return (
            HTTPStatus.UNAUTHORIZED,
            "the token is missing or wrong: it is in the address that the log names",
        )
    return None


def _has_token(fields: FieldList, token: str) -> bool:
    given = _values(fields, b"authorization")
    if len(given) != 1:
        return False
    scheme, _, value = given[0].partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(value.strip().encode(), token.encode())


def _values(fields: FieldList, name: bytes) -> list[str]:
    return [value.decode("latin-1") for each, value in fields if each.lower() == name]


@attrs.frozen
class InspectorPage:
    """The page.

    Attributes:
        data: Its HTML.
        policy: The value of `Content-Security-Policy` for it.
    """

    data: bytes
    policy: bytes


@cache
def read_page() -> InspectorPage:
    """Read the page. Its script and its style are known by their digests, and no other ones run."""
    data = (Path(__file__).parent / "page.html").read_bytes()
    script, style = (_digest(data, tag) for tag in (b"script", b"style"))
    policy = (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    return InspectorPage(data, policy.encode())


def _digest(data: bytes, tag: bytes) -> str:
    [text] = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), data, re.DOTALL)
    return f"sha256-{b64encode(sha256(text).digest()).decode()}"


_log = logging.getLogger("mcpbus")

TOKEN_VARIABLE: Final = "MCPBUS_INSPECT_TOKEN"  # noqa: S105 - its name
MOST_READERS: Final = 64
_TOKEN_BYTES: Final = 32
_JSON: Final = b"application/json"
_HTML: Final = b"text/html; charset=utf-8"
FIELDS: Final = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NOTHING: Final = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def inspector_app(answers: Answers, names: set[str], token: str) -> AsgiApp:
    """Return the ASGI application of the inspector. It needs no lifespan.

    Args:
        answers: Answers the questions.
        names: What `Host` may say.
        token: What each request has to bring.
    """

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refused = refusal(scope["method"], scope["path"], scope["headers"], names, token)
        if refused is None and scope["path"] == UNGUARDED:
            page = read_page()
            status, data, policy, kind = HTTPStatus.OK, page.data, page.policy, _HTML
        else:
            if refused is None:
                query = scope.get("query_string", b"").decode("latin-1")
                status, body = _answer(answers, scope["path"], query)
            else:
                status, body = refused[0], {"error": refused[1]}
            data, policy, kind = msgspec.json.encode(body) + b"\n", _NOTHING, _JSON
        fields = [*FIELDS, (b"content-security-policy", policy), (b"content-type", kind)]
        fields.append((b"content-length", b"%d" % len(data)))
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            fields.append((b"allow", b"GET, HEAD"))
        if status == HTTPStatus.UNAUTHORIZED:
            fields.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": status.value, "headers": fields})
        await send({"type": "http.response.body", "body": data})

    return app


def _answer(answers: Answers, path: str, query: str) -> tuple[HTTPStatus, Mapping[str, object]]:
    try:
        found = answers.answer(path, dict(parse_qsl(query, keep_blank_values=True)))
    except BadQueryError as error:
        return HTTPStatus.BAD_REQUEST, {"error": str(error)}
    if found is None:
        return HTTPStatus.NOT_FOUND, {"error": "there is nothing there"}
    return HTTPStatus.OK, found


@asynccontextmanager
async def inspector_served(bus: Hub, watch: Watch, bind: str, number: int) -> AsyncIterator[None]:
    """Have the inspector of a bus at an address of its own while the block lasts, its drain included.

    Args:
        bus: The bus.
        watch: Its watch.
        bind: Where to listen: a loopback address, or ``unix:PATH``.
        number: Which of several workers this is: each has the port above that of the one before it.

    Raises:
        CannotListenError: It cannot be listened on; the message names the option.
        ValueError: It is no such address.
    """
    given = os.environ.get(TOKEN_VARIABLE)
    token = given or secrets.token_urlsafe(_TOKEN_BYTES)
    names: set[str] = set()
    app = inspector_app(Answers(bus, watch), names, token)
    (first,) = addresses_of(bind, option="inspect")
    options = ServeOptions(bind=address_of(first, number), max_connections=MOST_READERS)
    async with background() as nursery:
        with naming_the_option("inspect"):
            [url] = await nursery.start(partial(serve, app, options))
        place = urlsplit(url)
        names |= {"localhost"} if url.startswith("unix:") else {place.netloc, f"localhost:{place.port}"}
        shown = url if url.startswith("unix:") else f"{url}/"
        _log.info("inspector at %s", shown if given or url.startswith("unix:") else f"{shown}#token={token}")
        with token_kept(token, place.port):
            yield
        nursery.cancel_scope.cancel()


def token_file(port: int) -> Path | None:
    """Return the file in which the token of the inspector at a port is, for other programs of the same user; None if there is no place for it."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return Path(folder) / "mcpbus" / str(port) if folder else None


@contextmanager
def token_kept(token: str, port: int | None) -> Iterator[None]:
    """Keep the token in its file while the block lasts, readable for this user alone. Where that cannot be, there is none."""
    file = None if port is None else token_file(port)
    if file is not None:
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            file.unlink(missing_ok=True)
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as written:
                written.write(token)
        except OSError as error:
            _log.info("the token of the inspector is in no file: %s", error)
            file = None
    try:
        yield
    finally:
        if file is not None:
            with suppress(OSError):
                file.unlink()
