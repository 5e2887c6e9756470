"""The least that an ASGI server can be asked: ``python -m benchmarks.servers.plain hypercorn|uvicorn PORT``.

The application reads a request and answers with fixed bytes, those that mcpbus would answer to a short call. It looks at nothing.
"""

import sys
from typing import Any

import msgspec
import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from benchmarks.answers import FIRST_NUMBER, words

RESULT: bytes = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": FIRST_NUMBER,
        "result": {
            "content": [{"type": "text", "text": words(FIRST_NUMBER)}],
            "structuredContent": words(FIRST_NUMBER),
            "resultType": "complete",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "1"}},
        },
    }
)
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(RESULT)).encode())]


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer every request alike."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": RESULT})


async def serve_plain(app: Any, port: int) -> None:
    """Serve an application with hypercorn on trio, and nothing around it."""
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.loglevel = "WARNING"
    config.keep_alive_max_requests = 2**63  # its default closes a connection after 1,000 requests
    await serve(app, config)


def serve_on_uvicorn(app: Any, port: int) -> None:
    """Serve an application with uvicorn on asyncio, in its fastest form, without a log of requests."""
    import uvicorn  # noqa: PLC0415  it may be absent

    uvicorn.run(app, port=port, log_level="warning", loop="uvloop", http="httptools", access_log=False)


if __name__ == "__main__":
    if sys.argv[1] == "hypercorn":
        trio.run(serve_plain, application, int(sys.argv[2]))
    else:
        serve_on_uvicorn(application, int(sys.argv[2]))
