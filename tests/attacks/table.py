"""The table of attacks: all that the kinds of them have."""

from collections.abc import Iterator
from functools import partial

from tests.attacks import by_http1, by_http2, by_messages, by_tokens, by_upstreams, by_websocket, target
from tests.attacks.attacked import Attack

_SERVER = partial(target.server, "attacked_server.py")
_GUARDED = partial(target.server, "guarded_server.py")


def _attacks() -> Iterator[Attack]:
    for kind, attacks in (
        ("messages", by_messages.ATTACKS),
        ("HTTP/1.1", by_http1.ATTACKS),
        ("HTTP/2", by_http2.ATTACKS),
        ("WebSocket", by_websocket.ATTACKS),
    ):
        for name, run in attacks.items():
            yield Attack(f"{kind}: {name}", _SERVER, run)
    for name, run in by_tokens.ATTACKS.items():
        yield Attack(f"tokens: {name}", _GUARDED, run, headers=by_tokens.HONEST)
    for made, upstreams in (
        (by_upstreams.program, by_upstreams.PROGRAMS),
        (by_upstreams.site, by_upstreams.SITES),
    ):
        for name, (hostility, run) in upstreams.items():
            yield Attack(f"upstream: {name}", partial(made, hostility), run, honest="good_echo")


ATTACKS = {attack.name: attack for attack in _attacks()}
