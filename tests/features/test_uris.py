"""URI templates, forwards and backwards."""

from pathlib import PurePosixPath, PureWindowsPath
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.features.errors import RegistrationError
from mcpbus.features.uri_templates import compile_template
from mcpbus.features.uris import check_uri


def leads_out(text):
    """Whether a directory joined with `text`, or with what it decodes to, is another place on any system."""
    while True:
        paths = PurePosixPath(text), PureWindowsPath(text)
        if "\0" in text or any(path.anchor or ".." in path.parts for path in paths):
            return True
        text, before = unquote(text, errors="strict"), text
        if text == before:
            return False


def is_value(text):
    """Whether a variable may have it: what leads out names nothing, nor does what is half encoded in another charset."""
    try:
        return not leads_out(text)
    except UnicodeDecodeError:
        return False


parts = st.sampled_from([*":/?#[]@!$&'()*+,;=%.\\", "%2F", "%252e", "é", "..", "C:", "41", "\u0301"])
values = st.lists(parts | st.characters(exclude_categories=["Cs"]), min_size=1).map("".join).filter(is_value)


def compiled(text, **options):
    return compile_template(text, "resource", **options)


@pytest.mark.parametrize(
    "text",
    [
        "users://{a}/profile",
        "x://{a}/{b}",
        "x://{a}:{b}.json",
        "x://{a}-v@{b}",
        "x://{a}@host:{b}",
        "x://{a}@v/{b}",
        "x://{a}41/{b}@2F",
        "x://@{a}@{b}@",
        "x://host{/a,b}/end",
        "x://host{/a}:{b}",
        "x://{a}.v1/{b}",
        "x://{a}{/b}",
        "x://{a}?fixed=1{&b}",
        "x://s?a={a}&b={b}",
        "x://s?{a}={b}",
        "x://größe/{a}(1)/{b}",
        "https://{a}.Example.org/{b}",
    ],
)
@given(a=values, b=values)
def test_what_a_template_expands_to_is_read_back(text, a, b):
    template = compiled(text)
    given_values = {name: value for name, value in {"a": a, "b": b}.items() if name in template.variables}
    assert template.match(template.expand(given_values)) == given_values


@pytest.mark.parametrize("text", ["x://{a}/{+rest}", "x://{a}:{+rest}", "x://{a}/{+rest}/0F"])
@given(a=values, rest=values.filter(lambda text: "%" not in text))
def test_a_wide_variable_takes_the_rest(text, a, rest):
    template = compiled(text)
    assert template.match(template.expand({"a": a, "rest": rest})) == {"a": a, "rest": rest}


@given(parts=st.lists(values, min_size=1), a=values)
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


def spelled(text):
    """Every way to write the characters of a URI: as they are, or percent-encoded, here and there."""
    ways = [[character, quote(character, safe=""), quote(character, safe="").lower()] for character in text]
    everywhere = [f"%{byte:02X}" for byte in text.encode()]
    mixed = "".join(way[place % 3] for place, way in enumerate(ways))
    return {text, quote(text, safe=""), quote(text, safe="/").lower(), "".join(everywhere), mixed}


TYPED = {
    "x://{a}": "ann@example.org",
    "x://{a}/end": "o'neil+tag (1)=!*,;:$&[x]",
    "x://a{/a}": "ab:c@d",
    "x://{+a}": "a@b+c'd(e)=f!g*h,i;j:k",
    "x://{a}@example.org": "ann@home",
    "x://s?q={a}": "a/b?c=d",
    "x://s{?a}": "a+b=c@d'e",
    "x://größe/{a}": "größe 日本",
    "x:{/a*}": "a@b",
}
"""A value that people type, for each kind of expression."""


@pytest.mark.parametrize(("text", "value"), TYPED.items())
def test_a_value_is_read_as_people_type_it_and_in_every_spelling(text, value):
    template = compiled(text)
    before, _, rest = text.partition("{")
    behind = rest.partition("}")[2]
    start = {"{?a}": "?a=", "{/a}": "/", "{/a*}": "/"}.get(text[len(before) :].removesuffix(behind), "")
    for before_spelled in (before, quote(before, safe=":/?="), quote(before, safe=":/?=").lower()):
        for value_spelled in spelled(value) - ({value} if "&" in value and "?" in text else set()):
            uri = before_spelled + start + value_spelled + behind
            assert template.match(uri) == {"a": [value] if "*" in text else value}, uri


@pytest.mark.parametrize(
    ("text", "uri", "found"),
    [
        ("x://{a}:{b}", "x://pp:qq:r", {"a": "pp:qq", "b": "r"}),
        ("x://{a}:{b}", "x://pp%3Aq:r", {"a": "pp:q", "b": "r"}),
        ("x://{a}:{b}", "x://p%3Aq", None),
        ("x://{a}:{b}", "x://pp:qq%3Ar", {"a": "pp", "b": "qq:r"}),
        ("x://{a}:{b}@{c}", "x://pp:q@rr:s@t", {"a": "pp:q@rr", "b": "s", "c": "t"}),
        ("x://{a}:{b}:{c}", "x://pp:q:r:s", {"a": "pp:q", "b": "r", "c": "s"}),
        ("x://{a}:{+b}", "x://pp:qq:r", {"a": "pp", "b": "qq:r"}),
        ("x://{a}:{+b}", "x://pp%3Aqq:r", {"a": "pp:qq", "b": "r"}),
        ("x://{a}-v@{b}", "x://p@o-v@q", {"a": "p@o", "b": "q"}),
        ("x://{a}@v/{b}", "x://p@q@v/r@s", {"a": "p@q", "b": "r@s"}),
        ("x://{a}@v/{b}", "x://p%40v/r", {"a": "p", "b": "r"}),
        ("x://{a}%40v/{b}", "x://p@v/r", {"a": "p", "b": "r"}),
        ("x://{a}/{b}", "x://p%2Fq/r", {"a": "p/q", "b": "r"}),
        ("x://{a}/{b}", "x://p/q/r", None),
        ("x://{a}/b", "x://p%2Fb", None),
        ("x://{+a}", "x://p%2Fq", {"a": "p/q"}),
        ("x://{+a}", "x://p%252Fq", {"a": "p%2Fq"}),
        ("x:{/a*}", "x:/p%2Fq/r", {"a": ["p/q", "r"]}),
        ("x://{a}", "x://p%3Fq%23", {"a": "p?q#"}),
        ("x://{a}", "x://p?q", None),
        ("x://{a}", "x://p#q", None),
        ("x://{a}", "x://100%", {"a": "100%"}),
        ("x://{a}", "x://a b", {"a": "a b"}),
        ("x://{a}0F/b", "x://p%0F/b", None),
        ("x://{a}", "X://p", {"a": "p"}),
        ("https://Example.org/{a}", "HTTPS://eXAMPLE.ORG/P", {"a": "P"}),
        ("https://example.org/A/{a}", "https://example.org/a/p", None),
        ("x://Name/{a}", "x://name/p", None),
        ("x://s{?q,r}", "x://s?q=a+b&r=c=d", {"q": "a+b", "r": "c=d"}),
        ("x://s?q={q}&r={r}", "x://s?q=a/b&r=c=d", {"q": "a/b", "r": "c=d"}),
        ("x://s?q={q}", "x://s?q=a&r=b", None),
    ],
)
def test_what_ends_a_value_is_never_a_guess(text, uri, found):
    assert compiled(text).match(uri) == found


@pytest.mark.parametrize("layers", range(1, 12))
@pytest.mark.parametrize("text", ["x://{a}", "x://{+a}", "x:{/a*}", "x://s{?a}", "x://s?a={a}"])
@pytest.mark.parametrize("path", ["../x", "..\\x", "a/../x", "/x", "\\x", "C:x", "a\0"])
def test_a_path_that_leaves_is_refused_however_often_it_is_encoded(path, text, layers):
    encoded = "".join(f"%{ord(character):02x}" for character in path)
    for _ in range(layers - 1):
        encoded = encoded.replace("%", "%25")
    start = {"x://s{?a}": "x://s?a=", "x://s?a={a}": "x://s?a=", "x:{/a*}": "x:/"}.get(text, "x://")
    assert compiled(text).match(start + encoded) is None
    assert compiled(text, unsafe_paths=True).match(start + encoded) is not None


@pytest.mark.parametrize(
    "overlong",
    [
        "%c0%ae%c0%ae%c0%af",
        "%e0%80%ae",
        "%f0%80%80%af",
        "%25c0%25af",
        "%25%63%30%25af",
        "%c1%9c",
        "%2%66x",
        "%%32%66x",
    ],
)
def test_another_form_of_a_dot_or_a_slash_names_nothing(overlong):
    assert compiled("x://{+a}").match(f"x://{overlong}") is None


pieces = [
    "a",
    "..",
    ".",
    "/",
    "\\",
    "%2f",
    "%2e",
    "%00",
    "%5c",
    "%5C",
    "?a=",
    "//",
    "C:",
    "c%3A",
    ":",
    "%25",
    "%",
    "2",
    "e",
    "f",
]
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
        ("x://{a}", "x://100%25", "100%"),
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
        ("users://{id}/profile", "users://../profile"),
        ("users://{id}/profile", "users://%2e%2E/profile"),
        ("users://{id}/profile", "users://a%00/profile"),
        ("users://{id}/profile", "users://a%FF/profile"),
        ("users://{id}/profile", "users://a%252F..%252Fb/profile"),
        ("users://{id}/profile", "users://a\x7f/profile"),
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
