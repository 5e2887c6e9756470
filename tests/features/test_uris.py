"""URI templates, forwards and backwards."""

from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.features.errors import RegistrationError
from mcpbus.features.uri_templates import compile_template
from mcpbus.features.uris import check_uri


def texts(without=""):
    """Of what can be printed, which is no line break and no space but the common one."""
    printable = st.just(" ") | st.characters(exclude_categories=["C", "Z"], exclude_characters=without)
    return st.text(printable, min_size=1).filter(lambda text: not leads_out(text))


values, segments = texts(), texts(without="/")


def leads_out(text):
    """Whether a directory joined with `text` is another place, on any system."""
    return any(
        bool(path.anchor) or ".." in path.parts for path in (PurePosixPath(text), PureWindowsPath(text))
    )


def compiled(text, **options):
    return compile_template(text, "resource", **options)


@pytest.mark.parametrize(
    "text",
    [
        "users://{a}/profile",
        "x://{a}/{b}",
        "x://{a}:{b}.json",
        "x://host{/a,b}/end",
        "x://{a}.v1/{b}",
        "x://{a}?fixed=1{&b}",
    ],
)
@given(a=segments, b=segments)
def test_what_a_template_expands_to_is_read_back(text, a, b):
    template = compiled(text)
    given_values = {name: value for name, value in {"a": a, "b": b}.items() if name in template.variables}
    assert template.match(template.expand(given_values)) == given_values


@given(a=segments, rest=values.filter(lambda text: "%" not in text))
def test_a_wide_variable_takes_the_rest(a, rest):
    template = compiled("x://{a}/{+rest}")
    assert template.match(template.expand({"a": a, "rest": rest})) == {"a": a, "rest": rest}


@given(parts=st.lists(segments, min_size=1), a=segments)
def test_a_list_of_segments_is_read_back(parts, a):
    template = compiled("x://files{/parts*}/{a}")
    assert template.match(template.expand({"parts": parts, "a": a})) == {"parts": parts, "a": a}


@given(chosen=st.dictionaries(st.sampled_from(["q", "page", "all"]), values), order=st.randoms())
def test_a_query_is_read_in_any_order_and_with_any_part_of_it(chosen, order):
    template = compiled("x://search{?q,page,all}")
    path, mark, query = template.expand(chosen).partition("?")
    pairs = query.split("&")
    order.shuffle(pairs)
    assert template.match(path + mark + "&".join(pairs)) == chosen


pieces = ["a", "..", ".", "/", "\\", "%2f", "%2e", "%00", "%5c", "%5C", "?a=", "//", "C:", "c%3A", ":", "%25"]
hostile = st.lists(st.sampled_from(pieces)).map("".join)


@given(uri=hostile, text=st.sampled_from(["x://{a}", "x://{+a}", "x:{/a*}", "x:{?a}"]))
def test_no_variable_ever_leads_out_of_a_directory(uri, text):
    found = compiled(text).match(text.partition("{")[0] + uri) or {}
    for value in found.values():
        for segment in [value] if isinstance(value, str) else value:
            assert not leads_out(segment)
            assert "\0" not in segment


WAYS_IN = {
    "{a}": "{}",
    "{+a}": "{}",
    "dir/{+a}": "dir/{}",
    "dir{/a}": "dir/{}",
    "dir{/a*}": "dir/{}",
    "dir{?a}": "dir?a={}",
    "dir?b=1{&a}": "dir?b=1&a={}",
}
"""Every kind of expression, and how a URI gives its value."""


@pytest.mark.parametrize("template", WAYS_IN)
@pytest.mark.parametrize(
    "value",
    [
        "/etc/hostname",
        "//host/share",
        "\\etc",
        "\\\\host\\share",
        "C:",
        "c:etc",
        "C:/etc",
        "C:\\etc",
        "C://etc",
        "..",
        "../etc",
        "..\\etc",
        "a/..",
        "a\\..",
        "a/../etc",
        "a\\..\\etc",
        "a/..\\etc",
        "a\0",
    ],
)
@pytest.mark.parametrize(
    "encode", [quote, lambda value: quote(value, safe=""), lambda value: quote(value, safe="/:\\")]
)
def test_what_leads_out_of_a_directory_is_handed_over_only_where_that_is_asked_for(template, value, encode):
    text, uri = f"x://{template}", f"x://{WAYS_IN[template].format(encode(value))}"
    assert compiled(text).match(uri) is None
    if encode(value) == quote(value, safe=""):
        handed_over = compiled(text, unsafe_paths=True).match(uri)
        assert handed_over == {"a": [value] if "*" in template else value}


@pytest.mark.parametrize(
    ("text", "uri", "value"),
    [
        ("x://{+a}", "x://etc/hostname", "etc/hostname"),
        ("x://{+a}", "x://https://example.org/a?b=c", "https://example.org/a?b=c"),
        ("x://{+a}", "x://file:///etc/hostname", "file:///etc/hostname"),
        ("x://{?a}", "x://?a=https%3A%2F%2Fexample.org%2Fa", "https://example.org/a"),
        ("x://{?a}", "x://?a=12%3A30", "12:30"),
        ("x://{a}", "x://%252Fetc%252Fhostname", "%2Fetc%2Fhostname"),
        ("x://{a}", "x://main..topic", "main..topic"),
        ("x://{a}", "x://...", "..."),
        ("x://{a}", "x://.hidden", ".hidden"),
        ("x://{a}", "x://urn%3Aisbn%3A1", "urn:isbn:1"),
        ("x://{a}", "x://a%5Cb", "a\\b"),
    ],
)
def test_what_stays_below_a_directory_is_a_value_like_any_other(text, uri, value):
    assert compiled(text).match(uri) == {"a": value}


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("users://{id}/profile", "users://a/b/profile"),
        ("users://{id}/profile", "users:///profile"),
        ("users://{id}/profile", "users://a%2Fb/profile"),
        ("users://{id}/profile", "users://../profile"),
        ("users://{id}/profile", "users://%2e%2E/profile"),
        ("users://{id}/profile", "users://a%00/profile"),
        ("users://{id}/profile", "users://a%FF/profile"),
        ("users://{id}/profile", "users://a%/profile"),
        ("users://{id}/profile", "users://a?b/profile"),
        ("users://{id}/profile", "users://a/profile\n"),
        ("files:///{+path}", "files:///a/../b"),
        ("files:///{+path}", "files:///a/%2e%2e/b"),
        ("files:///{+path}", "files:///a%2F..%2Fb"),
        ("files:///{+path}", "files:///"),
        ("x://s{?q}", "x://s?other=1"),
        ("x://s{?q}", "x://s?q=1&q=2"),
        ("x://s{?q}", "x://s?q"),
        ("x://s{?q}", "x://s?"),
        ("a.b://{x}", "aXb://1"),
    ],
)
def test_what_does_not_match_does_not_match(text, uri):
    assert compiled(text).match(uri) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x://{a}{b}", "reserved character"),
        ("x://{a}-{b}", "reserved character"),
        ("x://{a}{+b}", "reserved character"),
        ("x://{+a}/{b}", "put {\\+a} last"),
        ("x://{+a}{?q}", "put {\\+a} last"),
        ("x:{/a*}{/b*}", "another list"),
        ("x:{/a*}/{+b}", "a list of any length"),
        ("x://{a,b}", "commas"),
        ("x://{a*}", "segments"),
        ("x://{a:3}", "prefixes"),
        ("x://{.a}", "operator"),
        ("x://{;a}", "operator"),
        ("x://{#a}", "operator"),
        ("x://{a}/{a}", "twice"),
        ("x://{?q}{b}", "put {\\?q} last"),
        ("x://{?q}/b", "follows the query"),
        ("x://{&q}", "no '\\?' began"),
        ("x://{?q*}", "repeats"),
        ("x://{}", "not an expression"),
        ("x://{a", "cannot; percent-encode"),
        ("x://{a b}", "not an expression"),
        ("x://{0a}", "name of a parameter"),
        ("{scheme}://a", "not an absolute URI"),
        ("users/{id}", "not an absolute URI"),
    ],
)
def test_what_cannot_be_inverted_is_refused_with_the_reason(text, reason):
    with pytest.raises(RegistrationError, match=reason):
        compiled(text)


@pytest.mark.parametrize("uri", ["config", "/a", "x://a b", "x://a%zz", "x://<a>", ""])
def test_a_fixed_uri_is_absolute_and_valid(uri):
    with pytest.raises(RegistrationError):
        check_uri(uri, "resource")


@pytest.mark.parametrize("uri", ["config:", "x://[::1]:80/a%20b?c=d#e", "x://a/-._~!$&'()*+,;=:@"])
def test_a_fixed_uri_has_any_character_that_uris_have(uri):
    check_uri(uri, "resource")


def test_a_variable_may_be_called_query():
    assert compiled("x://{query}{?q}").match("x://a?q=b") == {"query": "a", "q": "b"}
