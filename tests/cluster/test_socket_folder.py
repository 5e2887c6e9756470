"""Processes of one machine that find each other in a folder."""

import trio

from mcpbus.cluster.socket_folder import SocketFolder


async def echo(stream):
    async with stream:
        async for data in stream:
            await stream.send_all(data)


async def test_who_listens_is_found_until_it_ends(tmp_path):
    folder = SocketFolder(tmp_path)
    (tmp_path / "no socket").touch()
    assert await folder.homes() == []
    assert await folder.dial("home") is None
    async with trio.open_nursery() as nursery:
        await nursery.start(folder.listen, "home", echo)
        assert await folder.homes() == ["home"]
        async with await folder.dial("home") as stream:
            await stream.send_all(b"hello")
            assert await stream.receive_some() == b"hello"
        nursery.cancel_scope.cancel()
    assert await folder.dial("home") is None
