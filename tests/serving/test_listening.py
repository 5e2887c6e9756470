"""Addresses that are listened on, and why one cannot be."""

import errno
import fcntl
import os
import socket
import threading
from contextlib import ExitStack
from functools import partial

import pytest
import trio
from peers import get, hello, serving

import mcpbus.serving.listeners
from mcpbus import Server
from mcpbus.serving import CannotListenError, ServeOptions, serve
from mcpbus.serving.listeners import listening


async def test_an_address_in_use_is_told():
    async with serving(hello) as served:
        bind = served.url.removeprefix("http://")
        with pytest.raises(CannotListenError, match=f"cannot listen on {bind}: Address already in use$"):
            await serve(hello, ServeOptions(bind=["127.0.0.1:0", bind]))


async def test_several_addresses_are_listened_on():
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(serve, hello, ServeOptions(bind=["127.0.0.1:0", "127.0.0.1:0"]))
        for url in urls:
            host, port = url.removeprefix("http://").split(":")
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                assert b"ok" in await get(stream)
        assert len(set(urls)) == 2
        nursery.cancel_scope.cancel()


async def test_a_unix_socket_is_listened_on(tmp_path):
    path = tmp_path / "mcp.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(serve, hello, ServeOptions(bind=f"unix:{path}"))
        assert urls == [f"unix:{path}"]
        async with await trio.open_unix_socket(path) as stream:
            assert b"ok" in await get(stream)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("waiting", [0, 2], ids=["free", "full"])
async def test_a_unix_socket_on_which_another_process_listens_is_not_taken_from_it(waiting, tmp_path):
    path = tmp_path / "mcp.sock"
    with socket.socket(socket.AF_UNIX) as listener, ExitStack() as clients:
        listener.bind(str(path))
        listener.listen(1)
        for _ in range(waiting):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(path))
        with (
            trio.fail_after(60),
            pytest.raises(CannotListenError, match=f"unix:{path}: Address already in use$"),
        ):
            await serve(hello, ServeOptions(bind=f"unix:{path}"))
        for _ in range(waiting):
            listener.accept()[0].close()
        clients.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))


def test_of_two_that_begin_at_once_one_listens_on_a_unix_socket_that_was_left_behind(tmp_path, monkeypatch):
    path = tmp_path / "mcp.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    first, heard, done = threading.current_thread(), threading.Event(), threading.Event()
    refused = []

    def begin():
        try:
            with listening(ServeOptions(bind=f"unix:{path}")):
                heard.set()  # it need not wait
                done.wait(60)
        except CannotListenError as error:
            refused.append(str(error))

    second = threading.Thread(target=begin)

    def is_listened_on(place):
        found = probe(place)
        if threading.current_thread() is first:
            second.start()
            assert heard.wait(60)
        return found

    def flock(*args):
        if threading.current_thread() is second:
            heard.set()
        return lock(*args)

    probe, lock = mcpbus.serving.listeners._is_listened_on, fcntl.flock
    monkeypatch.setattr("mcpbus.serving.listeners._is_listened_on", is_listened_on)
    monkeypatch.setattr("fcntl.flock", flock)
    try:
        with listening(ServeOptions(bind=f"unix:{path}")):
            done.set()
            second.join(60)
    finally:
        done.set()
        second.join(60)
    assert refused == [f"cannot listen on unix:{path}: Address already in use"]
    assert [each.name for each in tmp_path.iterdir()] == ["mcp.sock"]


async def test_a_unix_socket_is_listened_on_in_a_folder_that_somebody_else_has_locked(tmp_path, monkeypatch):
    monkeypatch.setattr("mcpbus.serving.listeners._ALONE_SECONDS", 0.0)
    lock = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with (
            listening(ServeOptions(bind=f"unix:{tmp_path / 'mcp.sock'}")),
            socket.socket(socket.AF_UNIX) as client,
        ):
            client.connect(str(tmp_path / "mcp.sock"))
    finally:
        os.close(lock)


async def test_a_unix_socket_of_which_one_may_not_know_whether_it_is_listened_on_is_left_alone(
    tmp_path, monkeypatch
):
    class Refused(socket.socket):
        def connect(self, _address):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    path = tmp_path / "mcp.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        with monkeypatch.context() as patched, trio.fail_after(60):
            patched.setattr(socket, "socket", Refused)
            with pytest.raises(CannotListenError, match=f"unix:{path}: Permission denied$"):
                await serve(hello, ServeOptions(bind=f"unix:{path}"))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


async def test_a_file_that_is_no_socket_is_not_removed(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("precious")
    with pytest.raises(CannotListenError, match=f"cannot listen on unix:{path}"):
        await serve(hello, ServeOptions(bind=f"unix:{path}"))
    assert path.read_text() == "precious"


async def test_an_inherited_socket_is_listened_on():
    inherited = socket.socket()
    inherited.bind(("127.0.0.1", 0))
    port = inherited.getsockname()[1]
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(serve, hello, ServeOptions(bind=f"fd://{inherited.detach()}"))
        assert urls == [f"http://127.0.0.1:{port}"]
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            assert b"ok" in await get(stream)
        nursery.cancel_scope.cancel()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_ipv6_is_listened_on():
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serve, hello, ServeOptions(bind="[::1]:0"))
        assert url.startswith("http://[::1]:")
        nursery.cancel_scope.cancel()


async def test_a_bus_is_served_at_each_address_that_it_is_told():
    anywhere = "127.0.0.1:0"
    async with Server("house").open() as bus, trio.open_nursery() as nursery:
        for told in ({"bind": [anywhere, anywhere]}, {"options": ServeOptions(bind=[anywhere, anywhere])}):
            urls = await nursery.start(partial(bus.serve, path="/there", **told))
            assert len(set(urls)) == 2
            assert all(url.endswith("/there") for url in urls)
        with pytest.raises(TypeError, match=r"bus\.serve\(\) has no option 'pth'"):
            await bus.serve(pth="/there")
        nursery.cancel_scope.cancel()
