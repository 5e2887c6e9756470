"""Where trio and asyncio meet: a server in an asyncio program, and asyncio's libraries in a handler.

`asgi` serves a server under uvicorn and any other ASGI host on asyncio. `to_asyncio` awaits, in a handler, what only asyncio can
run; `to_trio` awaits, in a coroutine of asyncio, what only trio can run. Cancelling either side cancels the other.
"""

from mcpbus.asyncio.asgi import AsyncioApp, asgi
from mcpbus.asyncio.crossing import to_asyncio, to_trio

__all__ = ["AsyncioApp", "asgi", "to_asyncio", "to_trio"]
