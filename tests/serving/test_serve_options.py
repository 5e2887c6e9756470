import ipaddress

import pytest

from mcpbus.serving import ServeOptions


@pytest.mark.parametrize(
    "bind", ["127.0.0.1:8000", "localhost:0", "[::1]:8000", "0.0.0.0:65535", "unix:/run/mcp.sock", "fd://3"]
)
def test_an_address_is_host_and_port_a_path_or_a_descriptor(bind):
    assert ServeOptions(bind=bind).bind == (bind,)


@pytest.mark.parametrize(
    "bind", ["", "localhost", "localhost:http", "::1:8000", "127.0.0.1:65536", "http://a:80"]
)
def test_what_is_no_address_to_bind_is_refused(bind):
    with pytest.raises(ValueError, match="HOST:PORT"):
        ServeOptions(bind=bind)


def test_nobody_but_this_machine_is_served_unless_that_is_said():  # W-42
    [address] = ServeOptions().bind
    assert ipaddress.ip_address(address.rpartition(":")[0]).is_loopback


def test_several_may_be_bound_but_not_none():
    assert ServeOptions(bind=["a:1", "b:2"]).bind == ("a:1", "b:2")
    with pytest.raises(ValueError, match="at least one"):
        ServeOptions(bind=[])


@pytest.mark.parametrize("files", [{"certfile": "a.pem"}, {"keyfile": "a.pem"}])
def test_tls_needs_both_files(files):
    with pytest.raises(ValueError, match="both certfile and keyfile"):
        ServeOptions(**files)


@pytest.mark.parametrize(
    "option",
    [{"drain_timeout": -1}, {"write_deadline": 0}, {"keep_alive_timeout": 0}, {"backlog": 0}],
)
def test_durations_and_sizes_that_make_no_sense(option):
    with pytest.raises(ValueError, match="must be"):
        ServeOptions(**option)


@pytest.mark.parametrize(
    "option",
    [
        {"write_deadline": 1},
        {"unread_body_bytes": 1},
        {"unread_body_timeout": 1},
        {"head_timeout": 1},
        {"max_connections": 1},
    ],
)
def test_what_only_our_own_server_promises_is_not_asked_of_hypercorn(option):
    assert ServeOptions(server="hypercorn", keep_alive_timeout=1).server == "hypercorn"
    with pytest.raises(ValueError, match=f"{next(iter(option))} is a promise of mcpbus's own server"):
        ServeOptions(server="hypercorn", **option)
