"""A program that serves one call and ends: ``python two_processes.py KEY PARAMS`` prints what it answered."""

import json
import sys

import trio

from mcpbus import Context, ProtocolError, Server


async def ask(ctx: Context) -> str:
    return "".join([(await ctx.elicit("?", str, key=key)).data for key in "abc"])


async def main(key, params):
    server = Server("replica", version="1", secret_keys=[key])
    server.add_tool(ask, replay=True)
    server.add_tool(ask, name="once")
    async with server.open() as bus, bus.connect(capabilities={"elicitation": {}}) as client:
        try:
            answer = {"result": await client.request("tools/call", params)}
        except ProtocolError as error:
            answer = {"error": {"code": error.code, "message": error.message}}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], json.loads(sys.argv[2]))
