"""Calls an ASGI application by hand, for what a server does not show: its task, and the messages that it sends."""

import trio


async def exchange(app, headers, body, **scope):
    """Have a task of its own serve one POST, and return the messages of the response.

    Args:
        app: The application.
        headers: The request's fields, as ASGI gives them.
        body: Its body.
        scope: What else is to stand in its scope, or stand there otherwise.
    """
    pieces = [{"type": "http.request", "body": body}]
    sent = []

    async def receive():
        await trio.lowlevel.checkpoint()
        return pieces.pop() if pieces else await trio.sleep_forever()

    async def send(piece):
        await trio.lowlevel.checkpoint()
        sent.append(piece)

    request = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, **scope}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(app, request, receive, send)
    return sent


def encoded(fields):
    """Header fields as ASGI gives them."""
    return [(name.encode(), value.encode()) for name, value in fields.items()]
