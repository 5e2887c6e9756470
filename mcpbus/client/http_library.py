"""The library that speaks HTTP for clients. Other modules of this package take it from here, and few import it at their start."""

import ssl
from functools import cache

import httpx2
import trio

__all__ = ["certificates", "httpx2"]


async def certificates() -> ssl.SSLContext:
    """Return the certificates that are trusted; they are read once, and in a thread.

    To read all of them takes tens of milliseconds, in which the event loop would serve no other client.
    """
    if not _certificates.cache_info().currsize:
        await trio.to_thread.run_sync(_certificates)
    return _certificates()


@cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
