"""Five failures of real MCP servers, each as a small server that cannot fail that way, and a demo of everything.

Run one with ``python -m mcpbus.examples.transports`` (`replicas`, `json_answers`, `register`, `live`): it serves itself on a
free port, runs its client over HTTP, and prints what arrives when. ``python -m mcpbus.examples.demo`` serves the demo.
"""
