"""The life of an actor, walked through its table."""

import pytest
from mcpbus_actors._lifecycle import TRANSITIONS, Event, State


@pytest.mark.parametrize(
    "walk",
    [
        [(Event.STARTED, State.RUNNING), (Event.STOP_ASKED, State.STOPPING), (Event.ENDED, State.STOPPED)],
        [(Event.STARTED, State.RUNNING), (Event.RAISED, State.SUSPENDED), (Event.ENDED, State.STOPPED)],
        [
            (Event.STARTED, State.RUNNING),
            (Event.RAISED, State.SUSPENDED),
            (Event.RESTARTED, State.STARTING),
            (Event.STARTED, State.RUNNING),
        ],
        [(Event.RAISED, State.SUSPENDED), (Event.RESTARTED, State.STARTING)],
        [(Event.STOP_ASKED, State.STOPPING), (Event.STARTED, State.STOPPING), (Event.RAISED, State.STOPPING)],
    ],
)
def test_a_life_walks_through_the_table(walk):
    state = State.STARTING
    for event, expected in walk:
        state = TRANSITIONS[state][event]
        assert state is expected


def test_every_state_has_a_row_and_every_living_one_can_end():
    assert set(TRANSITIONS) == set(State)
    assert all(
        row[Event.ENDED] is State.STOPPED for state, row in TRANSITIONS.items() if state < State.STOPPED
    )


def test_nothing_leaves_stopped():
    assert not TRANSITIONS[State.STOPPED]


def test_only_a_suspended_actor_restarts():
    assert [state for state, row in TRANSITIONS.items() if Event.RESTARTED in row] == [State.SUSPENDED]
