"""What is read of WWW-Authenticate: as RFC 9110 has it, and as servers write it."""

import re
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.protocol.http.bearer import challenge as write
from mcpbus.protocol.http.challenges import Challenge, read_challenges

TOKENS = st.text("!#$%&'*+.^_`|~-" + string.ascii_letters + string.digits, min_size=1, max_size=8)
TEXTS = st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=12)
PARAMETERS = st.dictionaries(TOKENS.map(str.lower), TEXTS, min_size=1, max_size=3)
GAPS = st.sampled_from([", ", ",", " , ", ",,", ",\t"])


def bearer(**parameters):
    return Challenge("bearer", parameters)


@pytest.mark.parametrize(
    ("field", "read"),
    [
        ("Bearer", [bearer()]),
        ("bEaReR", [bearer()]),
        ("", []),
        (" , ,", []),
        ('Bearer realm="a"', [bearer(realm="a")]),
        ("Bearer realm=a", [bearer(realm="a")]),
        ('Bearer REALM = "a" ,scope="b c"', [bearer(realm="a", scope="b c")]),
        (r'Bearer realm="a \"b\" \\ c, Basic d=\"e\""', [bearer(realm='a "b" \\ c, Basic d="e"')]),
        ('Bearer realm=""', [bearer(realm="")]),
        ('Bearer realm="a", realm="b"', [bearer(realm="a")]),
        ('Bearer realm="a", Basic realm="b"', [bearer(realm="a"), Challenge("basic", {"realm": "b"})]),
        (
            'Newauth realm="apps", type=1, title="Login to \\"apps\\"", Basic realm="simple"',
            [
                Challenge("newauth", {"realm": "apps", "type": "1", "title": 'Login to "apps"'}),
                Challenge("basic", {"realm": "simple"}),
            ],
        ),
        ("Negotiate, Bearer", [Challenge("negotiate"), bearer()]),
        ("Negotiate a2V5==, Bearer x=y", [Challenge("negotiate", token="a2V5=="), bearer(x="y")]),
        ("NTLM a/b+c", [Challenge("ntlm", token="a/b+c")]),
        # What breaks the grammar.
        (
            "Bearer resource_metadata=https://a.example/x?y=z, scope=b",
            [bearer(resource_metadata="https://a.example/x?y=z", scope="b")],
        ),
        ('Bearer realm="a" scope="b"', [bearer(realm="a", scope="b")]),
        ('Bearer realm="a, scope="b"', [bearer(realm="a, scope=")]),
        ('Bearer realm="never ends', [bearer(realm="")]),
        ('"a, Basic b=c", Bearer realm="d"', [bearer(realm="d")]),
        ('realm="a", Bearer scope="b"', [bearer(scope="b")]),
        ("Bearer ;;;, scope=b", [bearer(scope="b")]),
        ("@, Bearer", [bearer()]),
    ],
)
def test_a_field(field, read):
    assert read_challenges([field]) == read


@pytest.mark.parametrize("piece", ['\\"', ',\\"', ',"', '"\\,', ',a="\\', "a=,", " ", 'a=" ,\\"'])
@pytest.mark.parametrize("begins", ["Bearer x", 'Bearer a="', "", '"'])
def test_a_long_field_is_read_in_the_time_that_its_length_takes(begins, piece):
    began = time.process_time()
    read_challenges([begins + piece * (100_000 // len(piece))])
    assert (
        time.process_time() - began < 2
    )  # which were a minute where each quotation was looked through to the end


def test_an_answer_with_several_fields():
    assert read_challenges(['Basic realm="a"', "Bearer scope=b"]) == [
        Challenge("basic", {"realm": "a"}),
        bearer(scope="b"),
    ]


def quote(text):
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


@given(st.lists(st.tuples(TOKENS, PARAMETERS), min_size=1, max_size=4), st.data())
def test_what_is_written_as_the_grammar_has_it_is_read(challenges, data):
    words = []
    for scheme, parameters in challenges:
        written = [f"{name}={quote(value)}" for name, value in parameters.items()]
        words += [f"{scheme} {written[0]}", *written[1:]]
    field = words[0] + "".join(data.draw(GAPS) + word for word in words[1:])
    assert read_challenges([field]) == [
        Challenge(scheme.lower(), parameters) for scheme, parameters in challenges
    ]


@given(st.text(st.sampled_from('ab=",\\ \t/~@Bearer'), max_size=40))
def test_whatever_comes_is_read_to_its_end(field):
    """And what follows it in another field is not lost."""
    assert read_challenges([field, "Bearer scope=x"])[-1] == bearer(scope="x")


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"])))
def test_what_our_servers_write_is_read(said):
    field = write("https://a.example/x", ["b", "c"], "invalid_token", said)
    [found] = read_challenges([field])
    assert (found.scheme, found.parameters["scope"]) == ("bearer", "b c")
    assert found.parameters["resource_metadata"] == "https://a.example/x"
    assert len(found.parameters["error_description"]) == len(said)
