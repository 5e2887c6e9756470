"""Clients of MCP servers: what any of them does, and the connections over which they do it."""
