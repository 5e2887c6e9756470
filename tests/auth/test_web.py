"""How issuers are asked over real sockets: short documents, no redirects, and the login where it belongs."""

import base64
import gzip
import json
import threading

import httpx2
import pytest
import trio

from mcpbus import ServeOptions
from mcpbus.auth import VerifierUnavailableError
from mcpbus.auth.issuer_http import LONGEST_DOCUMENT, HttpxIssuerHttp, ask
from mcpbus.serving import serve
from tests.at_home import NO_CLIENT

pytestmark = NO_CLIENT


async def app(scope, receive, send):
    """An issuer that answers by the path."""
    if scope["type"] != "http":
        for phase in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{phase}.complete"})
        return
    body = (await receive())["body"]
    fields = {name.decode(): value.decode() for name, value in scope["headers"]}
    status, headers, answer = 200, [], b"{}"
    match scope["path"]:
        case "/long":
            answer = b" " * (LONGEST_DOCUMENT + 1)
        case "/longest":
            answer = b"{}".ljust(LONGEST_DOCUMENT)
        case "/10-MB":
            answer = b" " * 10_000_000
        case "/packed":
            headers, answer = [(b"content-encoding", b"gzip")], gzip.compress(b"{}")
        case "/elsewhere":
            status, headers = 302, [(b"location", b"http://elsewhere.invalid/said")]
        case "/said":
            said = {"verb": scope["method"], "body": body.decode(), "fields": fields}
            answer = json.dumps(said).encode()
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def asked(path, *arguments, web=None):
    """Ask that issuer."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            options = ServeOptions(bind="127.0.0.1:0")
            [url] = await nursery.start(lambda task_status: serve(app, options, task_status=task_status))
            try:
                return await ask(
                    web or HttpxIssuerHttp(),
                    arguments[0] if arguments else "GET",
                    f"{url}{path}",
                    *arguments[1:],
                )
            finally:
                nursery.cancel_scope.cancel()


async def test_a_document_is_asked_for_as_json_and_without_credentials():
    said = await asked("/said")
    assert (said["verb"], said["fields"]["accept"], "authorization" in said["fields"]) == (
        "GET",
        "application/json",
        False,
    )


async def test_a_document_may_be_as_long_as_that():
    assert await asked("/longest") == {}


async def test_a_question_with_a_login():
    said = await asked("/said", "POST", {"token": "a b"}, ("files", "s3cret"))
    assert (said["verb"], said["body"]) == ("POST", "token=a+b")
    assert said["fields"]["authorization"] == "Basic " + base64.b64encode(b"files:s3cret").decode()


async def test_whom_to_trust_is_read_once_and_beside_everything_else(monkeypatch):
    readers = []

    def read():
        readers.append(threading.get_ident())
        return create_ssl_context()

    create_ssl_context = httpx2.create_ssl_context
    monkeypatch.setattr(httpx2, "create_ssl_context", read)
    web = HttpxIssuerHttp()
    for _ in range(2):
        await asked("/said", web=web)
    [reader] = readers
    assert reader != threading.get_ident()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/long", "is longer than"),
        ("/10-MB", "is longer than"),
        ("/elsewhere", "answered 302"),
        ("/packed", "is not JSON"),
        ("/\x00", "cannot be asked"),
    ],
)
async def test_an_answer_that_is_too_long_elsewhere_packed_or_unaskable_is_unavailable(path, why):
    with pytest.RaisesGroup(pytest.RaisesExc(VerifierUnavailableError, match=why), flatten_subgroups=True):
        await asked(path)


async def test_an_issuer_that_cannot_be_connected_to_is_unavailable():
    with pytest.raises(VerifierUnavailableError, match="cannot be asked"):
        await ask(HttpxIssuerHttp(), "GET", "http://127.0.0.1:1/keys")
