"""What trio can do with an HTTP parser in C and no protocol: ``python -m benchmarks.servers.limit PORT``.

It parses each request with httptools, looks at nothing, and answers with the bytes that mcpbus would answer to a short call.
"""

import sys
from functools import partial

import httptools
import trio

from benchmarks.peers.peer import HOST
from benchmarks.servers.plain import RESULT

_RESPONSE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(RESULT) + RESULT
)


class _Requests:
    def __init__(self) -> None:
        self.complete = 0

    def on_message_complete(self) -> None:
        self.complete += 1


async def _converse(stream: trio.SocketStream) -> None:
    requests = _Requests()
    parser = httptools.HttpRequestParser(requests)
    try:
        while data := await stream.receive_some(65536):
            parser.feed_data(data)
            if requests.complete:
                await stream.send_all(_RESPONSE * requests.complete)
                requests.complete = 0
    except trio.BrokenResourceError:
        pass  # the load has ended
    await trio.aclose_forcefully(stream)


if __name__ == "__main__":
    trio.run(partial(trio.serve_tcp, _converse, int(sys.argv[1]), host=HOST))
