"""What a client is told when nothing that it asks for is at the process that it asks."""

from mcpbus.cluster.affinity import Affinity
from mcpbus.cluster.node import Node
from mcpbus.server import Server
from mcpbus.testing import MemoryDirectory


def forward_all() -> None:
    """Have each server be one of several, alone, and forward to itself what it would serve."""
    opening = Server.open

    def open_one_of_several(server, *, cluster=None, **options):
        return opening(server, cluster=cluster or MemoryDirectory().cluster(), **options)

    Server.open = open_one_of_several
    itself = "the process itself, over a link"
    Affinity.home_of = lambda *_: itself
    link, reach = Node.link, Node.reach
    Node.link = lambda node, home: link(node, node.home if home is itself else home)
    Node.reach = lambda node, home: reach(node, node.home if home is itself else home)
