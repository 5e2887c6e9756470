"""Who wants to hear of which change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.core.topics import Topics, covering, covers
from tests.at_home import NO_CLIENT

pytestmark = NO_CLIENT


@pytest.mark.parametrize(
    ("subscribed", "uri", "hears"),
    [
        ("file:///a/b", "file:///a/b", True),
        ("file:///a", "file:///a/b", True),
        ("file:///a/", "file:///a/b", True),
        ("file:///a/b/", "file:///a/b", False),  # a subscription below hears nothing of what is above
        ("file:///a/b/c", "file:///a/b", False),
        ("file:///a", "file:///ab", False),  # a segment, not a prefix of letters
        ("file:///", "file:///a", False),  # a scheme alone covers nothing
        ("file://", "file:///a", False),
        ("config://app", "config://app/x/y", True),
        ("config://", "config://app", False),
        ("urn:a", "urn:a", True),
        ("urn:a", "urn:a:b", False),
        ("plain", "plain/x", True),
        ("p", "p/x", True),
    ],
)
def test_a_subscription_covers_its_uri_and_what_lies_below(subscribed, uri, hears):
    assert covers({subscribed}, uri) is hears


uris = st.from_regex(r"[a-z]{1,3}://[ab](/[ab]){0,3}/?", fullmatch=True)


@given(uris)
def test_what_covers_a_uri_is_itself_or_a_path_above_it(uri):
    found = list(covering(uri))
    assert found[0] == uri
    assert len(found) == len(set(found))
    for candidate in found[1:]:
        assert uri.startswith(candidate.rstrip("/") + "/")
        assert not candidate.endswith("://")


def test_nothing_is_kept_of_what_nobody_wants_to_hear_of_any_more():
    index, wanted = Topics(), {"lists": ["tools"], "uris": ["res://a"], "tasks": ["1"]}
    for who in "ab":
        index.add(who, **wanted)
    index.remove("a", **wanted)
    assert (index.in_list("tools"), index.in_uri("res://a/b"), index.in_task("1")) == (["b"],) * 3
    index.remove("b", **wanted)
    assert (index._lists, index._uris, index._tasks, index._owners) == ({}, {}, {}, {})


class Counting(str):
    """An owner that counts how often it is hashed."""

    __slots__ = ()
    hashed = 0

    def __hash__(self):
        Counting.hashed += 1
        return super().__hash__()


@pytest.mark.parametrize("number", [10, 1000])
def test_an_owner_is_hashed_as_often_for_a_thousand_uris_as_for_ten(number):
    index, names, Counting.hashed = Topics(), [f"res://{n}" for n in range(number)], 0
    index.add("a", uris=names, owner=Counting("owner"))
    assert Counting.hashed <= 2
    index.remove("a", uris=names)
    assert Counting.hashed <= 4


steps = st.lists(
    st.tuples(
        st.booleans(), st.integers(0, 3), st.lists(st.sampled_from(["x://a", "X://a", "x://%61", "x://b"]))
    ),
    max_size=30,
)


def _last(uri):
    return uri[-1].replace("1", "a")


@given(steps)
def test_the_first_and_the_last_subscription_of_each_owner_are_noted(program):
    index, held, watched = Topics(), set(), []
    index.on_watched = lambda uri, owner, wanted: watched.append((_last(uri), owner, wanted))
    for adds, who, named in program:
        owner = "even" if who % 2 == 0 else "odd"
        before = {(last, each) for last, _, each in held}
        entries = {(_last(uri), who, owner) for uri in named}
        if adds:
            index.add(who, uris=named, owner=owner)
            held |= entries
        else:
            index.remove(who, uris=named)
            held -= entries
        after = {(last, each) for last, _, each in held}
        assert sorted(watched) == sorted(
            [(*each, True) for each in after - before] + [(*each, False) for each in before - after]
        )
        assert sorted((_last(uri), each) for uri, each in index.subscriptions) == sorted(after)
        watched.clear()


entries = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "remove"]),
        st.integers(0, 2),
        st.lists(st.sampled_from("tp"), max_size=2),
        st.lists(uris, max_size=2),
    ),
    max_size=30,
)


@given(entries, uris)
def test_the_index_says_what_a_plain_list_would_say(program, uri):
    index, plain = Topics(), set()
    for verb, who, lists, some in program:
        pairs = {(who, "list", kind) for kind in lists} | {(who, "uri", one) for one in some}
        if verb == "add":
            index.add(who, lists=lists, uris=some)
            plain |= pairs
        else:
            index.remove(who, lists=lists, uris=some)
            plain -= pairs
    assert len(index) == len(plain)
    assert {*index._lists, *index._uris} == {what for _, _, what in plain}, "kept for nobody"
    for kind in "tp":
        assert sorted(index.in_list(kind)) == sorted(
            who for who, sort, what in plain if (sort, what) == ("list", kind)
        )
    heard = index.in_uri(uri)
    assert sorted(heard) == sorted(
        {who for who, sort, what in plain if sort == "uri" and what in set(covering(uri))}
    )
