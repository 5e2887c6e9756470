"""Which revision a client speaks after its server has said this or that; requirements D-12, D-13, M-16."""

import json

import pytest
import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError, MalformedAnswerError, StatusError
from mcpbus.client.negotiation import negotiate
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.meta import PROTOCOL_VERSION
from mcpbus.protocol.revisions import LATEST, REVISIONS

SILENCE = object()


def error(code, **data):
    return ProtocolError(code, "no", data or None)


def initialized(version):
    return {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}


class Peer:
    """A server that says what it is told to, and the methods that it was sent, with the revision that each request states."""

    def __init__(self, **says):
        self.says = {name: list(each) if isinstance(each, list) else [each] for name, each in says.items()}
        self.heard = []
        self.stated = set()

    def send(self, message, pending):
        self.heard.append(message.method.rpartition("/")[2])
        if not isinstance(message, JsonRpcRequest):
            return
        params = json.loads(bytes(message.params))
        of_meta = params.get("_meta", {}).get(PROTOCOL_VERSION)
        self.stated.add((self.heard[-1], params.get("protocolVersion"), of_meta))
        says = self.says[self.heard[-1]].pop(0)
        if isinstance(says, Exception):
            pending.settle(says)
        elif says is not SILENCE:
            pending.settle(json.dumps(says).encode())
        pending.begun = True

    async def negotiate(self, fixed=None):
        async with trio.open_nursery() as nursery:
            client = Client(fixed or LATEST, self.send, nursery, capabilities={}, on_input_request=None)
            with trio.fail_after(100):
                try:
                    await negotiate(client, fixed, probe_seconds=10)
                except (ClientError, ProtocolError) as failure:
                    return failure
            return client.revision.name


STATED = {("discover", None, "2026-07-28"), ("initialize", "2025-11-25", None)}
"""Each request, the revision that it asks for, and the one that its ``_meta`` claims: none in a handshake."""
MODERN = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
OLD = initialized("2025-11-25")


@pytest.mark.parametrize(
    ("discover", "initialize", "revision", "heard"),
    [
        (MODERN, [], "2026-07-28", ["discover"]),
        ({**MODERN, "supportedVersions": ["2025-11-25"]}, OLD, "2025-11-25", 3),
        ({"tools": []}, OLD, "2025-11-25", 3),
        ({**MODERN, "supportedVersions": "2026-07-28"}, OLD, "2025-11-25", 3),
        (error(-32601), OLD, "2025-11-25", 3),
        (error(-32602), initialized("2024-11-05"), "2024-11-05", 3),
        (error(-32022, supported=["2025-11-25"]), OLD, "2025-11-25", 3),
        (error(-32022), OLD, "2025-11-25", 3),
        # It names what it has refused.
        ([error(-32022, supported=["2026-07-28"]), MODERN], [], "2026-07-28", ["discover"] * 2),
        (
            [error(-32022, supported=["2026-07-28", "2025-11-25"])] * 2,
            OLD,
            "2025-11-25",
            ["discover", "discover", "initialize", "initialized"],
        ),
        # What means nothing is no word of either era (J-16).
        *((error(code), OLD, "2025-11-25", 3) for code in (-32000, -32001, -32002, -32004, -32019)),
        (StatusError(400, "400"), OLD, "2025-11-25", 3),
        (StatusError(404, "404"), OLD, "2025-11-25", 3),
        (MalformedAnswerError("html"), OLD, "2025-11-25", 3),
        (SILENCE, OLD, "2025-11-25", ["discover", "cancelled", "initialize", "initialized"]),
        # It was slow to start, and took the first request for its client's choice after all.
        ([SILENCE, MODERN], error(-32022), "2026-07-28", ["discover", "cancelled", "initialize", "discover"]),
    ],
)
async def test_the_newest_that_both_know_is_spoken(
    discover, initialize, revision, heard, autojump_clock
):  # D-12, D-13, M-16
    peer = Peer(discover=discover, initialize=initialize)
    assert await peer.negotiate() == revision
    assert peer.heard == (["discover", "initialize", "initialized"] if heard == 3 else heard)
    assert peer.stated == {each for each in STATED if each[0] in peer.heard}


@pytest.mark.parametrize(
    ("discover", "initialize", "told"),
    [
        (
            error(-32022, supported=["2031-01-01"]),
            [],
            "the server speaks 2031-01-01, and this client 2024-11-05, ",
        ),
        (error(-32020), [], "no (-32020)"),
        (error(-32021), [], "no (-32021)"),
        (StatusError(401, "it wants a token"), [], "it wants a token"),
        (StatusError(403, "it does not want you"), [], "it does not want you"),
        (StatusError(404, "404"), StatusError(404, "nothing there"), "nothing there"),
        (error(-32601), error(-32601), "no (-32601)"),
        # A server that refuses the revision instead of offering its own leaves it to the user to fix one.
        (
            StatusError(400, "400"),
            StatusError(400, "answered 400 Bad Request"),
            "the server may know only revisions before 2025-11-25: fix an older one, as by revision='2025-06-18'",
        ),
        *(
            (
                error(-32601),
                error(code),
                f"as by revision='2025-06-18' (--revision on the command line) ({code})",
            )
            for code in (-32600, -32602, -32000)
        ),
        (error(-32601), initialized("2031-01-01"), "the server offers revision '2031-01-01'"),
        (error(-32601), initialized("2026-07-28"), "the server offers revision '2026-07-28'"),
        (error(-32601), {}, "the server offers revision None"),
        ([SILENCE, SILENCE], [error(-32022)], None),
    ],
)
async def test_a_server_with_which_nothing_is_in_common_is_told(discover, initialize, told, autojump_clock):
    peer = Peer(discover=discover, initialize=initialize)
    if told is None:  # silence is for whoever waits to end
        with pytest.raises(BaseExceptionGroup) as raised:
            await peer.negotiate()
        assert raised.group_contains(trio.TooSlowError)
    else:
        assert told in str(await peer.negotiate())


@pytest.mark.parametrize(
    ("fixed", "discover", "initialize", "outcome"),
    [
        ("2026-07-28", MODERN, [], "2026-07-28"),
        ("2026-07-28", error(-32601), [], "the server does not speak 2026-07-28"),
        ("2026-07-28", error(-32022, supported=["2025-06-18"]), [], "the server does not speak 2026-07-28"),
        ("2025-06-18", [], initialized("2025-06-18"), "2025-06-18"),
        # A revision that the user has fixed needs no hint.
        ("2025-06-18", [], StatusError(400, "400"), "400"),
        (
            "2025-06-18",
            [],
            initialized("2025-03-26"),
            "the server does not speak 2025-06-18: it offers 2025-03-26",
        ),
    ],
)
async def test_a_revision_that_is_fixed_is_the_only_one(fixed, discover, initialize, outcome):
    peer = Peer(discover=discover, initialize=initialize)
    assert str(await peer.negotiate(REVISIONS[fixed])) == outcome
    asked = ("discover", None, fixed) if fixed == "2026-07-28" else ("initialize", fixed, None)
    assert peer.stated == {asked}
