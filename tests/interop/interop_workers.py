"""The server of the other tests, as a program with several processes: ``python -m tests.interop.interop_workers ADDRESS COUNT``."""

import os
import sys

from tests.typescript.asking_server import make_server

server = make_server()


@server.tool
async def where() -> int:
    """Say which process this is."""
    return os.getpid()


if __name__ == "__main__":
    server.run(bind=sys.argv[1], workers=int(sys.argv[2]))
