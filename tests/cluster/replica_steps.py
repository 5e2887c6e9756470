"""What may happen to replicas and their clients, as hypothesis draws it; see `replica_world`."""

from hypothesis import strategies as st
from replica_world import CLIENTS, LEASE, REPLICAS

_replicas = st.integers(0, REPLICAS - 1)
_clients = st.integers(0, CLIENTS - 1)
_pairs = st.sampled_from([(one, other) for one in range(REPLICAS) for other in range(one)])
_pauses = st.sampled_from([0.0, 0.01, 0.5, 2.0, LEASE + 1])
_troubles = st.sampled_from([0.5, 3.0, 2 * LEASE])
"""Shorter than a lease, and longer."""


def _step(verb, *arguments):
    return st.tuples(st.just(verb), *arguments, _pauses)


_DEEDS = (
    _step("call", _clients, st.sampled_from(["act", "count", "ask"]), _replicas),
    _step("listen", _clients, _replicas),
    _step("say", _clients, _replicas),
    _step("leave", _clients),
    _step("level", _clients, _replicas, st.sampled_from(["error", "debug"])),
    _step("delete", _clients, _replicas),
)
_TROUBLE = (
    _step("kill", _replicas),
    _step("drain", _replicas),
    _step("isolate", _replicas, _troubles),
    _step("away", _replicas, _troubles),
    _pairs.flatmap(lambda pair: _step("cut", *map(st.just, pair), _troubles)),
    _pairs.flatmap(lambda pair: _step("half_open", *map(st.just, pair), _troubles)),
    _step("redis", st.sampled_from(["down", "slow", "lossy", "deaf"]), _troubles),
    _step("empty"),
    _step("copy"),
    _step("fail_over"),
)
programs = st.lists(st.one_of(*_DEEDS, *_TROUBLE), min_size=1, max_size=30)
