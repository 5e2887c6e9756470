"""Which spellings of a URI name the same resource, and which do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.core.topics import covering
from mcpbus.protocol.uris import RESERVED, UriSet, canonical_uri, normalize_escapes, without_path

SAME = [
    ["config://größe", "config://gr%C3%B6%C3%9Fe", "config://gr%c3%b6ße", "CONFIG://%67r%C3%B6%c3%9fe"],
    ["people://ann@example.org", "people://ann%40example.org", "people://%61nn%40example%2Eorg"],
    ["x://o'neil", "x://o%27neil"],
    ["x://a+b", "x://a%2Bb", "x://a%2bb"],
    ["x://(a)=!*,;:$&[b]", "x://%28a%29%3D%21%2A%2C%3B%3A%24%26%5Bb%5D"],
    ["x://a b", "x://a%20b"],
    ['x://<a>"\\^`{|}', "x://%3Ca%3E%22%5C%5E%60%7B%7C%7D"],
    ["x://100%", "x://100%25"],
    ["x://a~b-c.d_e", "x://a%7Eb%2Dc%2ed%5fe"],
    ["x://s?q=a/b?c:@", "x://s?q=a%2Fb%3Fc%3a%40"],
    ["https://example.org/A?B", "HTTPS://Example.ORG/A?B", "https://ex%41mple.org/A?B"],
    ["x:日本", "x:%E6%97%A5%E6%9C%AC", "X:%E6%97%A5本"],
]
DIFFERENT = [
    ("x://a/b", "x://a%2Fb"),
    ("x://a?b", "x://a%3Fb"),
    ("x://a#b", "x://a%23b"),
    ("x://a%2Fb", "x://a%252Fb"),
    ("x://a%20b", "x://a%2520b"),
    ("x://s?a=1&b=2", "x://s?a=1%26b=2"),
    ("x://s?a=1", "x://s?a%3D1"),
    ("x://s?q=a b", "x://s?q=a+b"),
    ("x://a/../b", "x://b"),
    ("x://a/./b", "x://a/b"),
    ("x://a/b", "x://A/b"),
    ("https://example.org/a", "https://example.org/A"),
    ("https://ann@example.org/", "https://Ann@example.org/"),
    ("x://caf\u00e9", "x://cafe\u0301"),
    ("x://a", "x://a\n"),
    ("x://a", "x://a%00"),
    ("x://a/b", "x://a/b/"),
    ("x://\u00e9", "x://%E9"),
]


@pytest.mark.parametrize("spellings", SAME)
def test_spellings_of_one_uri_share_a_form(spellings):
    assert {canonical_uri(uri) for uri in spellings} == {canonical_uri(spellings[0])}


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_may_be_two_resources_has_two_forms(one, other):
    assert canonical_uri(one) != canonical_uri(other)


pieces = st.lists(
    st.sampled_from(
        ["%", "%4", "%41", "%c3%a9", "é", "%2F", "/", "?", "#", "&", "=", "+", "A", "2", "5", " "]
    )
    | st.characters()
).map("".join)
uris = st.builds("".join, st.tuples(st.sampled_from(["x://", "HTTPS://", "http:", "", "x%3A"]), pieces))


@given(uri=uris)
def test_a_canonical_form_is_its_own(uri):
    assert canonical_uri(canonical_uri(uri)) == canonical_uri(uri)
    assert normalize_escapes(normalize_escapes(uri)) == normalize_escapes(uri)


@given(
    path=st.text(
        st.characters(exclude_categories=["Cs"], min_codepoint=0x20).filter(lambda c: c not in "/?#%")
    )
)
def test_each_character_of_a_path_may_be_escaped_or_not(path):
    escaped = "".join(f"%{byte:02x}" for byte in path.replace("\x7f", "").encode())
    assert canonical_uri("x://" + escaped) == canonical_uri("x://" + path.replace("\x7f", ""))


@given(uri=uris)
def test_what_covers_a_uri_covers_each_spelling_of_it(uri):
    assert list(covering(uri)) == list(covering(canonical_uri(uri)))


@pytest.mark.parametrize(
    ("uri", "added", "below"),
    [
        ("x://a/b", "a/", "x://b"),
        ("X://%61/%62", "a/", "X://%62"),
        ("x://a/b/c/é", "a/b/", "x://c/é"),
        ("x://a/", "a/", "x://"),
        ("x://a", "a/", None),
        ("x://ab/c", "a/", None),
        ("x://A/b", "a/", None),
        ("x://a%2Fb", "a/", None),
        ("x:a/b", "a/", None),
        ("x://b/a/", "a/", None),
        ("y?x://a/b", "a/", None),
    ],
)
def test_a_prefix_is_taken_off_in_whatever_spelling_and_the_rest_left_as_it_is(uri, added, below):
    assert without_path(uri, added) == below


def test_a_set_has_each_uri_once_as_it_was_spelled_first():
    found = UriSet(["x://é", "x://%C3%A9", "x://b"])
    assert (list(found), len(found)) == (["x://é", "x://b"], 2)
    assert "x://%c3%a9" in found
    assert 1 not in found
    assert found - UriSet(["x://%c3%a9"]) == {"x://b"}
    assert (found.take("x://%C3%A9"), found.take("x://%C3%A9")) == ("x://é", None)
    found.discard("x://%62")
    assert not found


def test_reserved_characters_are_those_of_the_standard():
    assert sorted(RESERVED) == sorted(":/?#[]@" + "!$&'()*+,;=")
