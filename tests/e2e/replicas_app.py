"""A replica that finds the others in a Redis."""

import sys

from mcpbus import Server
from mcpbus.cluster import Redis

server = Server("replicas")


@server.tool
async def echo(text: str) -> str:
    """Say the same."""
    return text


if __name__ == "__main__":
    server.run(bind="127.0.0.1:0", cluster=Redis(sys.argv[1], link="127.0.0.1:0", lease=1.0))
