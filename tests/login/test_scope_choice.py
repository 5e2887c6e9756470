"""What a client asks its issuer to allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.client.oauth.scopes import OFFLINE, choose_scopes, read_scopes

SCOPES = st.lists(st.sampled_from(["a", "b", "c", "d", OFFLINE]), max_size=4)


@pytest.mark.parametrize(
    ("challenged", "listed", "more", "asked"),
    [
        # First what the challenge names, then what the server lists, then nothing.
        (["a"], ["b"], {}, ["a"]),
        ([], ["b", "c"], {}, ["b", "c"]),
        ([], [], {}, []),
        ([], None, {}, []),
        # What the user names is asked for besides a challenge, and instead of a list.
        (["a"], ["b"], {"given": ["x"]}, ["x", "a"]),
        ([], ["b"], {"given": ["x"]}, ["x"]),
        # What was granted is kept.
        (["a"], ["b"], {"before": ["c"]}, ["c", "a"]),
        (["a"], None, {"before": ["a", "c"]}, ["a", "c"]),
        ([], ["b"], {"before": ["c"]}, ["c", "b"]),
        ([], None, {"before": ["c"]}, ["c"]),
        # What outlives the person's presence, where the issuer has it.
        (["a"], None, {"offered": ["a", OFFLINE]}, ["a", OFFLINE]),
        (["a"], None, {"offered": ["a"]}, ["a"]),
        (["a"], None, {"offered": []}, ["a"]),
        ([], None, {"offered": [OFFLINE]}, []),
        (["a"], None, {"before": ["a", OFFLINE], "offered": [OFFLINE]}, ["a", OFFLINE]),
        # A server that asks for it itself, as it should not, gets it.
        ([OFFLINE], None, {}, [OFFLINE]),
    ],
)
def test_what_is_asked_for(challenged, listed, more, asked):
    assert choose_scopes(challenged, listed, **more) == tuple(asked)


@given(SCOPES, st.none() | SCOPES, SCOPES, SCOPES, SCOPES)
def test_what_the_challenge_names_and_what_was_asked_for_is_never_left_out(
    challenged, listed, given, before, offered
):
    asked = choose_scopes(challenged, listed, given=given, before=before, offered=offered)
    assert (
        {*challenged, *given, *before} <= {*asked} <= {*challenged, *given, *before, *(listed or ()), OFFLINE}
    )
    assert len({*asked}) == len(asked)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (None, ()),
        ("", ()),
        ("  a  b a", ("a", "b")),
        ("files:read https://x.example/y.z api://1/2", ("files:read", "https://x.example/y.z", "api://1/2")),
        ('a "b" c\\d \xe9 \x01', ("a",)),
    ],
)
def test_scopes_as_they_are_written(text, read):
    assert read_scopes(text) == read
