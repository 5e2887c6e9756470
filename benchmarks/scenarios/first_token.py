"""What it takes to let somebody in whose token was not seen before, beyond the check of its signature."""

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence

import trio
from joserfc.jwk import ECKey
from joserfc.jws import JWSRegistry

from benchmarks.scenarios.scenario import Figures, Inside, Metric
from benchmarks.tokens import make_issuer, make_resource_server, make_token
from mcpbus.auth import ResourceServer
from mcpbus.auth.jws import make_check, read_signed
from mcpbus.protocol.http.bearer import NewToken
from mcpbus.protocol.http.headers import Headers
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.protocol.principals import Peer

SLICE = 20
_PEER = Peer.at("127.0.0.1")


class FirstToken(Inside):
    """Tokens are brought, each for the first time; and the signatures of others are checked, and nothing else."""

    name = "first-token"
    title = "A token that was not seen before"
    what = (
        "A resource server is asked who brings each of many tokens of 1 kB, signed with ES256, of as many users. In turn with it, "
        f"{SLICE} tokens at a time, the signatures of the same tokens are checked, and nothing else. Medians of the slices."
    )
    metrics = (
        Metric("beyond_us", "µs beyond its check", 1),
        Metric("check_us", "µs of the check of a signature", 1, more_is_better=None),
        Metric("whole_us", "µs in all", 1),
    )
    sizes = {0: 3}
    seconds = 0.25

    def turn(self, sizes: Sequence[int], seconds: float) -> Iterator[tuple[int, Figures]]:
        """Measure once."""
        for size in sizes:
            yield size, trio.run(measure, seconds)


async def measure(seconds: float) -> Figures:
    """Bring tokens for a while, and return what one takes."""
    issuer, auth, users = make_issuer(), make_resource_server(), itertools.count()
    # What is made once, such as its keys, is made now.
    await _bring(auth, [_head(make_token(issuer, next(users)))])
    key = ECKey.import_key(issuer.keys[0].as_dict(private=False))
    check = make_check(key, JWSRegistry.algorithms["ES256"])
    assert check is not None  # noqa: S101 - a key that signs tokens is for that
    wholes, checks = [], []
    end = time.perf_counter() + seconds
    while not wholes or time.perf_counter() < end:
        some = [make_token(issuer, next(users)) for _ in range(SLICE)]
        heads = [_head(token) for token in some]
        start = time.process_time()
        await _bring(auth, heads)
        wholes.append((time.process_time() - start) / len(some) * 1e6)
        read = [read_signed(token) for token in some]
        start = time.process_time()
        for token in read:
            check(token.signed, token.signature)
        checks.append((time.process_time() - start) / len(some) * 1e6)
    return {
        "beyond_us": statistics.median(whole - check for whole, check in zip(wholes, checks, strict=True)),
        "check_us": statistics.median(checks),
        "whole_us": statistics.median(wholes),
    }


def _head(token: str) -> RequestHead:
    return RequestHead("POST", "/mcp", Headers([(b"authorization", b"Bearer %b" % token.encode())]))


async def _bring(auth: ResourceServer, heads: Sequence[RequestHead]) -> None:
    """Ask who sends some requests.

    Raises:
        RuntimeError: The token of one is known already, or no good.
    """
    for head in heads:
        new = auth.recall(head, _PEER)
        if not isinstance(new, NewToken) or isinstance(await auth.find(new, _PEER), HttpResponse):
            raise RuntimeError(f"not let in: {head}")  # noqa: TRY004 - it is no argument of anybody's
