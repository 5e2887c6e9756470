"""The invariants of routing, as properties of random programs of clients of both eras; see `world`."""

import logging

import pytest
from duet import Duet
from happenings import SCRIPTS, steps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from world import World

STEPS, PROGRAMS = 50, 220
thorough = settings(max_examples=PROGRAMS, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def quiet():
    """The handlers of the programs raise on purpose."""
    logger = logging.getLogger("mcpbus")
    disabled, logger.disabled = logger.disabled, True
    yield
    logger.disabled = disabled


@thorough
@given(st.lists(steps(), min_size=STEPS, max_size=STEPS + 10), st.random_module())
def test_whatever_clients_of_both_eras_do_the_invariants_hold(program, _):
    assert World().run(program).faults == []


# Invariant 12: each client's transcript is the same whether the other era is there or not. Steps are settled one by
# one, since no order is promised between requests, and changes of the server's own lists are made in each run.
legacy_steps = st.tuples(st.just("legacy"), st.sampled_from(["call", "get", "subscribe", "say"]), SCRIPTS)
modern_steps = st.tuples(st.just("modern"), st.sampled_from(["call", "listen"]), SCRIPTS)
global_steps = st.tuples(
    st.just("global"), st.sampled_from(["tools", "prompts", "res://a/b", "res://c"]), st.just([])
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(legacy_steps | modern_steps | global_steps, min_size=5, max_size=25),
    st.sampled_from(["2024-11-05", "2025-11-25"]),
    st.booleans(),
    st.random_module(),
)
def test_invariant_12_neither_era_notices_the_other(program, revision, shared, _):
    together = Duet(revision, shared=shared).run(program, {"legacy", "modern"})
    for era in ("legacy", "modern"):
        assert Duet(revision, shared=shared).run(program, {era})[era] == together[era]
