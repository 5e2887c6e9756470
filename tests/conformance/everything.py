"""A server with all that the official conformance suite looks for: ``python -m tests.conformance.everything --port 3000``.

The names, arguments and texts of what it offers are the suite's.
"""

import click

from mcpbus import Server
from mcpbus.stores import MemoryEventStore
from tests.conformance.asking import add_asking
from tests.conformance.content import add_content
from tests.conformance.diagnostics import add_diagnostics
from tests.conformance.jobs import add_jobs
from tests.conformance.readables import add_readables


def make_server() -> Server:
    """Return a new server with all fixtures."""
    server = Server("everything", version="1.0.0", title="Everything", instructions="For conformance tests.")
    add_content(server)
    add_diagnostics(server)
    add_readables(server)
    add_asking(server)
    add_jobs(server)
    return server


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=3000, show_default=True, help="0 takes any free one.")
def main(host: str, port: int) -> None:
    """Serve every fixture at /mcp."""
    make_server().run(bind=f"{host}:{port}", event_store=MemoryEventStore())


if __name__ == "__main__":
    main()
