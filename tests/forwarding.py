"""Each request of a server over HTTP, forwarded over a link to the process itself, as if another one had it."""

from collections.abc import Callable

from mcpbus.cluster.affinity import Affinity
from mcpbus.cluster.node import Node
from mcpbus.server import Server
from mcpbus.testing import MemoryDirectory


def forward_all(patch: Callable[[object, str, object], None] = setattr) -> None:
    """Open each server as the only node of a cluster, and forward to itself each request that it receives.

    Args:
        patch: Replaces an attribute. `monkeypatch.setattr` limits this to one test.
    """
    opening = Server.open

    def open_one_of_several(server, *, cluster=None, **options):
        return opening(server, cluster=cluster or MemoryDirectory().cluster(), **options)

    itself = "the process itself, over a link"
    link, reach = Node.link, Node.reach
    patch(Server, "open", open_one_of_several)
    patch(Affinity, "home_of", lambda *_: itself)
    patch(Node, "link", lambda node, home: link(node, node.home if home is itself else home))
    patch(Node, "reach", lambda node, home: reach(node, node.home if home is itself else home))
