"""WebSocket (RFC 6455), from the upgrade to the channel: no ASGI in between. wsproto reads and writes the frames."""
