"""Five failures of real MCP servers, each as a small server that cannot fail that way.

Run one from the root of a checkout: ``python -m examples.failures.transports`` (`replicas`, `json_answers`, `register`, `live`). The
program serves its server on a free port, runs its client over HTTP, and prints each message as it arrives.
"""
