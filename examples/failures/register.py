"""Tools added while a session registers, and a response that was corrupted.

The system: a gateway on a Go SDK. When a client connects it adds the tools of several upstream servers to that client's session.

What went wrong: each added tool made a list_changed notification. They went into a channel that nobody read any more, piled
up, and came out in the middle of the next HTTP response.

What must hold: a tool that is added while its session registers is simply part of it, and announces nothing. One that is added
later announces itself on the session's GET stream; until that is open the announcement is held, and the next one takes its
place. Nothing is written to a stream that does not exist, and nothing but its own messages ever enters an answer.

Here a gateway adds tools while the client registers, then a thousand more that nobody listens to, and the client goes on
making requests.

The second act, with software of others before and after, is examples/hosted/register.py.
"""

import attrs
import trio

from examples.failures.client import Exchange, HttpClient, Message
from examples.failures.stage import Show, run, serving
from mcpbus import Bus, Location, Reason, Server, Session

UPSTREAM_TOOLS = ("weather.forecast", "weather.alerts", "maps.route")
MORE = 1000


async def relay(query: str) -> str:
    """Ask the upstream server."""
    return f"the answer to {query!r}"


async def register_upstreams(session: Session) -> None:
    """Give a client that is registering the tools of the upstream servers."""
    for name in UPSTREAM_TOOLS:
        await trio.lowlevel.checkpoint()  # here a gateway waits for the upstream server
        session.add_tool(relay, name=name)


server = Server("gateway")
server.on_session(register_upstreams)


@attrs.frozen
class RegisterResult:
    """What the client was sent, and what the server then had in its books.

    Attributes:
        registered: The answer to `initialize`.
        listed: The answer to `tools/list`.
        called: The answer to a `tools/call`, made after a thousand tools were added.
        held: How many messages were held for the GET stream by then.
        superseded: How many had been replaced by a newer one that says the same.
        announced: What came on the GET stream when it was opened, up to an announcement made after that.
    """

    registered: Exchange
    listed: Exchange
    called: Exchange
    held: int
    superseded: int
    announced: list[Message]


async def script(bus: Bus, url: str, show: Show) -> RegisterResult:
    """Be the client of the gateway; add the tools from beside it."""
    client = HttpClient(url)
    registered = await client.initialize()
    show(f"initialize: {len(registered.messages)} message, and pending: {dict(bus.statistics().pending)}")
    listed = await client.request("tools/list")
    show(f"tools/list: {', '.join(tool['name'] for tool in listed.result['tools'])}")
    assert client.session_id is not None
    session = bus.sessions[client.session_id]
    for number in range(MORE):
        session.add_tool(relay, name=f"more.{number}")
    called = await client.call("weather.forecast", {"query": "Oslo"})
    show(f"tools/call, {MORE} tools later: {len(called.messages)} message: {called.text}")
    books = bus.statistics()
    held, superseded = books.pending.get(Location.HELD, 0), books.discarded.get(Reason.SUPERSEDED, 0)
    show(f"held for the GET stream: {held}; replaced by a newer one: {superseded}")
    announced: list[Message] = []
    async with client.get() as stream:
        async for message in stream:
            show(f"GET stream: {message['method']}")
            announced.append(message)
            if len(announced) == 1:
                session.remove_tool("more.0")
            else:
                break
    return RegisterResult(registered, listed, called, held, superseded, announced)


async def demonstrate(show: Show) -> None:
    """Serve, run the script, and show what arrives when."""
    async with serving(server) as (bus, url):
        await script(bus, url, show)


if __name__ == "__main__":
    run(demonstrate)
