"""The servers of others, each written for its published package. What they are set to, and why, says README.md beside this."""

from benchmarks.peers.built import GoPeer, NodePeer, PythonPeer, RustPeer
from benchmarks.peers.peer import Ability, Peer

_NOTIFYING = frozenset({Ability.CHATTER, Ability.SESSIONS, Ability.MIX, Ability.GET_STREAMS, Ability.LISTENS})
_WIRES = frozenset({Ability.HTTP2, Ability.HTTP_SSE, Ability.STDIO})

PEERS: tuple[Peer, ...] = (
    PythonPeer(
        name="python-sdk-uvicorn",
        title="official Python SDK, uvicorn",
        package="mcp",
        version="2.3.0",
        source="python-sdk",
        arguments=("uvicorn",),
        abilities=_NOTIFYING | {Ability.HTTP_SSE, Ability.STDIO},
    ),
    PythonPeer(
        name="python-sdk-hypercorn",
        title="official Python SDK, hypercorn on trio",
        package="mcp",
        version="2.3.0",
        source="python-sdk",
        arguments=("hypercorn",),
        abilities=_NOTIFYING | {Ability.HTTP2},
    ),
    PythonPeer(
        name="fastmcp",
        title="FastMCP, uvicorn",
        package="fastmcp",
        version="4.1.2",
        source="fastmcp",
        abilities=frozenset(
            {
                Ability.CHATTER,
                Ability.SESSIONS,
                Ability.MIX,
                Ability.RESUMPTION,
                Ability.HTTP_SSE,
                Ability.STDIO,
                Ability.PROXY,
            }
        ),
    ),
    NodePeer(
        name="typescript-sdk",
        title="official TypeScript SDK",
        package="@modelcontextprotocol/server",
        version="2.4.0",
        source="typescript-sdk",
        abilities=_NOTIFYING | {Ability.STDIO},
    ),
    GoPeer(
        name="mcp-go",
        title="mcp-go",
        package="github.com/mark3labs/mcp-go",
        version="1.2.1",
        source="mcp-go",
        abilities=_NOTIFYING | _WIRES | {Ability.RESUMPTION},
    ),
    GoPeer(
        name="go-sdk",
        title="official Go SDK",
        package="github.com/modelcontextprotocol/go-sdk",
        version="1.8.0",
        source="go-sdk",
        abilities=_NOTIFYING | _WIRES | {Ability.RESUMPTION},
    ),
    RustPeer(
        name="rmcp",
        title="rmcp, the official Rust SDK",
        package="rmcp",
        version="3.9.0",
        source="rmcp",
        abilities=_NOTIFYING | {Ability.STDIO},
    ),
    RustPeer(
        name="rmcp-http2",
        title="rmcp, built with HTTP/2",
        package="rmcp",
        version="3.9.0",
        source="rmcp",
        features=("http2",),
        abilities=frozenset({Ability.HTTP2}),
        in_parts_only=True,
    ),
)
