"""Who may read the inspector: a program on this machine that has the token, and no page of a browser but its own."""

import stat

import pytest

from mcpbus.inspector.serving import refusal, token_file, token_kept
from mcpbus.metrics import check_inspect

NAMES = {"127.0.0.1:9474", "localhost:9474"}
GOOD = [(b"host", b"127.0.0.1:9474"), (b"authorization", b"Bearer t")]


def status(verb="GET", path="/ledger", fields=GOOD):
    found = refusal(verb, path, fields, NAMES, "t")
    return None if found is None else found[0].value


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, None),
        ({"verb": "HEAD"}, None),
        ({"verb": "POST"}, 405),
        ({"verb": "DELETE"}, 405),
        ({"fields": GOOD[:1]}, 401),
        ({"fields": [GOOD[0], (b"authorization", b"Bearer u")]}, 401),
        ({"fields": [GOOD[0], (b"authorization", b"Basic t")]}, 401),
        ({"fields": [*GOOD, GOOD[1]]}, 401),
        ({"fields": [GOOD[0], (b"authorization", b"Bearer \xff")]}, 401),
        ({"fields": GOOD[:1], "path": "/"}, None),
        ({"fields": GOOD[1:]}, 403),
        ({"fields": [(b"host", b"evil.example"), GOOD[1]]}, 403),
        ({"fields": [(b"host", b"127.0.0.1"), GOOD[1]]}, 403),
        ({"fields": [*GOOD, GOOD[0]]}, 403),
        ({"fields": [(b"host", b"evil.example")], "path": "/"}, 403),
        ({"fields": [(b"host", b"LOCALHOST:9474"), GOOD[1]]}, None),
        ({"fields": [*GOOD, (b"origin", b"http://127.0.0.1:9474")]}, None),
        ({"fields": [*GOOD, (b"origin", b"http://localhost:9474")]}, 403),
        ({"fields": [*GOOD, (b"origin", b"http://evil.example")]}, 403),
        ({"fields": [*GOOD, (b"origin", b"null")]}, 403),
    ],
)
def test_each_request_is_allowed_or_refused(request_, expected):
    assert status(**request_) == expected


@pytest.mark.parametrize("bind", ["127.0.0.1:9474", "[::1]:0", "localhost:9474", "unix:/tmp/x"])
def test_addresses_of_this_machine_are_taken(bind):
    check_inspect(bind)


@pytest.mark.parametrize(
    "bind", ["0.0.0.0:9474", "10.0.0.1:9474", "[::]:9474", "example.com:1", "x", 5, None]
)
def test_others_are_refused(bind):
    with pytest.raises(ValueError, match=r"^inspect is "):
        check_inspect(bind)


def test_the_token_is_in_a_file_of_the_user_alone_while_it_is_served(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = token_file(9474)
    file.parent.mkdir()
    file.symlink_to(tmp_path / "elsewhere")
    with token_kept("secret", 9474):
        assert file.read_text() == "secret"
        assert not file.is_symlink()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.exists()
    assert [each.name for each in tmp_path.iterdir()] == ["mcpbus"]


def test_without_a_place_for_it_there_is_no_file(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert token_file(9474) is None
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "nothing" / "there"))
    with token_kept("secret", 9474):
        assert not token_file(9474).exists()
