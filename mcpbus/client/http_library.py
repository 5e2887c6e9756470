"""The library that speaks HTTP for clients. Other modules of this package take it from here, and few import it at their start."""

import httpx2

__all__ = ["httpx2"]
