"""Applications of others have no WebSockets here: the client gets the reason, and the application is not called."""

from lanes import get, open_lane

UPGRADE = (
    b"connection: upgrade",
    b"upgrade: websocket",
    b"sec-websocket-version: 13",
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)


async def unasked(scope, _receive, _send):
    """Stand for an application that is not asked for a WebSocket."""
    raise AssertionError(scope["type"])


async def test_a_client_that_asks_for_one_learns_why_there_is_none(autojump_clock):
    async with open_lane(app=unasked) as house:
        client = await house.connect()
        await client.say(get("/ws", *UPGRADE))
        status, fields, body = await client.answer()
        assert (status, fields["connection"]) == (501, "close")
        assert b"`--server hypercorn` opens others" in body
