"""The page of the inspector by itself: a browser runs nothing else, asks nobody else, and makes no markup of texts."""

import re

import pytest

from mcpbus.inspector.serving import inspector_app, read_page

PAGE = read_page()


@pytest.mark.parametrize(
    "part",
    [
        *(b"innerHTML", b"outerHTML", b"insertAdjacentHTML", b"document.write", b"DOMParser", b"srcdoc"),
        *(b"eval(", b"new Function", b"setTimeout('", b"onclick=", b"onerror=", b"javascript:"),
        *(b'<link rel="stylesheet', b"<script src", b"@import", b"url("),
    ],
)
def test_nothing_in_it_makes_markup_or_code_of_text(part):
    assert part not in PAGE.data


def test_it_names_no_other_address():
    assert set(re.findall(rb"(?:https?:)?//[\w.]+", re.sub(rb"(?m)^\s*//.*$", b"", PAGE.data))) == {
        b"http://www.w3.org"  # the name of SVG
    }


def test_its_policy_allows_its_own_script_and_style_alone():
    policy = dict(rule.split(" ", 1) for rule in PAGE.policy.decode().split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", policy["script-src"])
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", policy["style-src"])
    assert " style=" not in PAGE.data.decode()  # which the policy would refuse


async def test_it_needs_no_token_and_the_right_host():
    app, sent = inspector_app(None, {"127.0.0.1:1"}, "t"), []

    async def send(event):
        sent.append(event)

    async def ask(host, verb="GET"):
        sent.clear()
        await app({"type": "http", "method": verb, "path": "/", "headers": [(b"host", host)]}, None, send)
        return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]

    status, fields, body = await ask(b"127.0.0.1:1")
    assert (status, body) == (200, PAGE.data)
    assert fields[b"content-security-policy"] == PAGE.policy
    assert fields[b"content-type"] == b"text/html; charset=utf-8"
    assert (await ask(b"evil.example"))[0] == 403
    assert (await ask(b"127.0.0.1:1", "POST"))[0] == 405
