"""The small server to which a browser comes back: one redirect, and nothing else."""

import socket
from functools import partial

import pytest
import trio

from mcpbus.client.oauth import redirect as module
from mcpbus.client.oauth.errors import LoginError
from mcpbus.client.oauth.redirect import RedirectResult, open_listener

GOOD = "c0de=1"


def judge(query, *, failure=None):
    return RedirectResult("value", failure) if query == GOOD else None


async def ask(port, target, *, host="127.0.0.1", verb="GET", at="127.0.0.1", raw=None):
    """Ask for something, and return the whole answer."""
    async with await trio.open_tcp_stream(at, port) as stream:
        name = f"{host}:{port}" if host else ""
        await stream.send_all(raw or f"{verb} {target} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        answer = b""
        async for piece in stream:
            answer += piece
    return answer


def port_of(listener):
    return int(listener.redirect.split(":")[2].split("/")[0])


async def receive(redirect, *requests, judge=judge):
    """Have a listener receive some requests, of which the last one is the redirect; return what was said, and the answers."""
    answers = []
    async with open_listener(redirect) as listener, trio.open_nursery() as nursery:
        found = []

        async def listen():
            found.append(await listener.receive(judge))

        nursery.start_soon(listen)
        with trio.fail_after(20):
            for request in requests:
                answer = await request(port_of(listener))
                answers.append(answer)
    return found[0], answers


async def test_the_browser_comes_back_and_is_shown_a_page_with_nothing_of_what_it_brings():
    judged, [answer] = await receive(None, lambda port: ask(port, f"/callback?{GOOD}"))
    assert judged == RedirectResult("value")
    head, _, body = answer.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert f"Content-Length: {len(body)}\r\n" in head
    for field in (
        "Content-Security-Policy: default-src 'none'",
        "Referrer-Policy: no-referrer",
        "Cache-Control: no-store",
        "Connection: close",
    ):
        assert field in head
    assert "You are logged in" in body
    assert "may close this window" in body
    assert "c0de" not in answer.decode()


async def test_a_login_that_is_refused_is_shown_as_such():
    failure = LoginError("<script>no</script>")
    judged, [answer] = await receive(
        None, lambda port: ask(port, f"/callback?{GOOD}"), judge=partial(judge, failure=failure)
    )
    assert judged.failure is failure
    assert b"You are not logged in" in answer
    assert b"script" not in answer


@pytest.mark.parametrize(
    "other",
    [
        lambda port: ask(port, "/"),
        lambda port: ask(port, "/favicon.ico"),
        lambda port: ask(port, "/callback"),
        lambda port: ask(port, "/callback?c0de=2"),
        lambda port: ask(port, f"/callback/?{GOOD}"),
        lambda port: ask(port, f"/other?{GOOD}"),
        lambda port: ask(port, f"/callback?{GOOD}", verb="POST"),
        lambda port: ask(port, f"/callback?{GOOD}", verb="HEAD"),
        lambda port: ask(port, f"/callback?{GOOD}", host="evil.example"),
        lambda port: ask(port, f"/callback?{GOOD}", host=""),
        lambda port: ask(port, "", raw=f"GET /callback?{GOOD} HTTP/1.1\r\n\r\n".encode()),
        lambda port: ask(port, "", raw=f"GET http://127.0.0.1/callback?{GOOD} HTTP/1.1\r\n\r\n".encode()),
        lambda port: ask(port, "", raw=b"\x16\x03\x01\x00\xa5\r\n\r\n"),
        lambda port: ask(port, "", raw=b"x" * 40_000),
    ],
)
async def test_all_else_is_answered_that_there_is_nothing(other):
    judged, [answer, _] = await receive(None, other, lambda port: ask(port, f"/callback?{GOOD}"))
    assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert b"c0de" not in answer
    assert judged == RedirectResult("value")


async def test_who_connects_and_says_nothing_or_leaves_is_no_trouble():
    async def idle(port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        quiet.append(stream)
        return b""

    async def leave(port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"GET /call")
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await stream.aclose()
        return b""

    quiet = []
    judged, _ = await receive(None, *[idle] * 5, leave, lambda port: ask(port, f"/callback?{GOOD}"))
    assert judged == RedirectResult("value")
    for stream in quiet:
        await stream.aclose()


async def test_who_says_nothing_is_not_listened_to_for_ever(monkeypatch):
    monkeypatch.setattr(module, "_HEAD_SECONDS", 0.5)
    monkeypatch.setattr(module, "_MOST_CONNECTIONS", 1)
    quiet = []

    async def idle(port):
        quiet.append(await trio.open_tcp_stream("127.0.0.1", port))
        return b""

    judged, _ = await receive(None, idle, idle, lambda port: ask(port, f"/callback?{GOOD}"))
    assert judged == RedirectResult("value")
    for stream in quiet:
        await stream.aclose()


@pytest.mark.parametrize(
    ("redirect", "begins", "ends"),
    [
        (None, "http://127.0.0.1:", "/callback"),
        ("http://127.0.0.1/back/here", "http://127.0.0.1:", "/back/here"),
        ("http://localhost/callback", "http://localhost:", "/callback"),
        ("http://127.0.0.1", "http://127.0.0.1:", "/"),
    ],
)
async def test_where_it_is(redirect, begins, ends):
    async with open_listener(redirect) as listener:
        assert listener.redirect.startswith(begins)
        assert listener.redirect.endswith(ends)
        assert port_of(listener) > 0
        assert listener.as_localhost() == f"http://localhost:{port_of(listener)}{ends}"


async def test_a_port_of_ones_own():
    async with open_listener(None) as first:
        port = port_of(first)
        with pytest.raises(LoginError, match=f"port {port} of 127.0.0.1 is taken"):
            async with open_listener(port):
                pass
        # One that would be nice to have is done without.
        async with open_listener(None, first.redirect) as other:
            assert port_of(other) != port
    async with open_listener(port) as again:
        assert again.redirect == f"http://127.0.0.1:{port}/callback"
    async with open_listener(None, f"http://localhost:{port}/callback") as again:
        assert again.redirect == f"http://localhost:{port}/callback"


async def test_by_its_name_it_is_reached_at_either_address():
    if not socket.has_ipv6:
        pytest.skip("there is no IPv6")
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("there is no loopback of IPv6")
    judged, _ = await receive(
        "http://localhost/callback", lambda port: ask(port, f"/callback?{GOOD}", host="localhost", at="::1")
    )
    assert judged == RedirectResult("value")


async def test_it_ends_by_itself():
    async with open_listener(None) as listener:
        port = port_of(listener)
    with pytest.raises(OSError, match=r".*"):
        await trio.open_tcp_stream("127.0.0.1", port)


async def test_who_comes_back_and_does_not_stay_for_the_page_has_come_back():
    """A browser that a person closes at once, or an extension that stops it."""
    failure = LoginError("no")
    gone = []

    def validate_alone(query):
        gone[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        gone[0].socket.close()
        return judge(query, failure=failure)

    async def leave(port):
        gone.append(await trio.open_tcp_stream("127.0.0.1", port))
        await gone[0].send_all(f"GET /callback?{GOOD} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        return b""

    with trio.fail_after(5):
        judged, _ = await receive(None, leave, judge=validate_alone)
    assert judged.failure is failure


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:80"])
async def test_a_browser_does_not_say_a_port_that_goes_without_saying(host):
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    raw = f"GET /callback?{GOOD} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(ask, port, "", raw=raw))
            judged = await module.RedirectServer(listeners, "http://127.0.0.1:80/callback").receive(judge)
    assert judged == RedirectResult("value")
