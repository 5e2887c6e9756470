"""The ways in: thin shells that bring requests to the bus over HTTP, WebSocket, stdio and in process, and its messages out."""
