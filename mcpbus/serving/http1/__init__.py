"""HTTP/1.1 without ASGI in between."""
