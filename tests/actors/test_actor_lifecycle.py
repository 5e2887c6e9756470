"""The life of an actor, walked through its table."""

import pytest
from mcpbus_actors._states import TRANSITIONS, LifecycleEvent, LifecycleState


@pytest.mark.parametrize(
    "walk",
    [
        [
            (LifecycleEvent.STARTED, LifecycleState.RUNNING),
            (LifecycleEvent.STOP_ASKED, LifecycleState.STOPPING),
            (LifecycleEvent.ENDED, LifecycleState.STOPPED),
        ],
        [
            (LifecycleEvent.STARTED, LifecycleState.RUNNING),
            (LifecycleEvent.RAISED, LifecycleState.SUSPENDED),
            (LifecycleEvent.ENDED, LifecycleState.STOPPED),
        ],
        [
            (LifecycleEvent.STARTED, LifecycleState.RUNNING),
            (LifecycleEvent.RAISED, LifecycleState.SUSPENDED),
            (LifecycleEvent.RESTARTED, LifecycleState.STARTING),
            (LifecycleEvent.STARTED, LifecycleState.RUNNING),
        ],
        [
            (LifecycleEvent.RAISED, LifecycleState.SUSPENDED),
            (LifecycleEvent.RESTARTED, LifecycleState.STARTING),
        ],
        [
            (LifecycleEvent.STOP_ASKED, LifecycleState.STOPPING),
            (LifecycleEvent.STARTED, LifecycleState.STOPPING),
            (LifecycleEvent.RAISED, LifecycleState.STOPPING),
        ],
    ],
)
def test_a_life_walks_through_the_table(walk):
    state = LifecycleState.STARTING
    for event, expected in walk:
        state = TRANSITIONS[state][event]
        assert state is expected


def test_every_state_has_a_row_and_every_living_one_can_end():
    assert set(TRANSITIONS) == set(LifecycleState)
    assert all(
        row[LifecycleEvent.ENDED] is LifecycleState.STOPPED
        for state, row in TRANSITIONS.items()
        if state < LifecycleState.STOPPED
    )


def test_nothing_leaves_stopped():
    assert not TRANSITIONS[LifecycleState.STOPPED]


def test_only_a_suspended_actor_restarts():
    assert [state for state, row in TRANSITIONS.items() if LifecycleEvent.RESTARTED in row] == [
        LifecycleState.SUSPENDED
    ]
