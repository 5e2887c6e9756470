"""What an answer says of the token that came with its request."""

import pytest

from mcpbus.client.oauth.refusal import TokenChallenge, read_refusal

PLACE = "https://mcp.example/meta"


@pytest.mark.parametrize(
    ("status", "fields", "token", "refusal"),
    [
        (200, ["Bearer"], "t", None),
        (404, ["Bearer"], "t", None),
        (400, ['Bearer error="invalid_request"'], "t", None),
        # 401: there is to be another one, or one at all.
        (401, [], None, TokenChallenge(None, too_little=False)),
        (401, [], "t", TokenChallenge("t", too_little=False)),
        (401, ["Bearer"], None, TokenChallenge(None, too_little=False)),
        (
            401,
            [f'Bearer scope="a b", resource_metadata="{PLACE}"'],
            None,
            TokenChallenge(None, too_little=False, place=PLACE, scopes=("a", "b")),
        ),
        (
            401,
            ['Bearer error="invalid_token", error_description="it has expired"'],
            "t",
            TokenChallenge("t", too_little=False, why="it has expired"),
        ),
        (
            401,
            ['Bearer error="invalid_token"'],
            "t",
            TokenChallenge("t", too_little=False, why="invalid_token"),
        ),
        (
            401,
            [f'Basic realm="x", Bearer resource_metadata={PLACE}'],
            None,
            TokenChallenge(None, too_little=False, place=PLACE),
        ),
        (
            401,
            ["Bearer realm=x", f"Bearer resource_metadata={PLACE}"],
            None,
            TokenChallenge(None, too_little=False, place=PLACE),
        ),
        # A server that names another scheme, or the proxy in front of it, may take a token all the same: its metadata tells.
        (401, ['Basic realm="x"'], None, TokenChallenge(None, too_little=False)),
        (401, ["Negotiate", "NTLM"], "t", TokenChallenge("t", too_little=False)),
        # 403: it is to allow more.
        (
            403,
            [f'Bearer error="insufficient_scope", scope="a b", resource_metadata="{PLACE}"'],
            "t",
            TokenChallenge("t", too_little=True, place=PLACE, scopes=("a", "b"), why="insufficient_scope"),
        ),
        (
            403,
            ['Bearer scope="x"', 'Bearer error=insufficient_scope, scope="a"'],
            "t",
            TokenChallenge("t", too_little=True, scopes=("a",), why="insufficient_scope"),
        ),
        # A request that came without a token needs one.
        (
            403,
            ['Bearer error="insufficient_scope", scope="a"'],
            None,
            TokenChallenge(None, too_little=False, scopes=("a",), why="insufficient_scope"),
        ),
        (403, ['Bearer scope="a b"'], None, TokenChallenge(None, too_little=False, scopes=("a", "b"))),
        # A server that names scopes wants them, whether or not it names the error.
        (403, ['Bearer scope="a"'], "t", TokenChallenge("t", too_little=True, scopes=("a",))),
        (403, ["Negotiate", 'Bearer scope="a"'], "t", TokenChallenge("t", too_little=True, scopes=("a",))),
        (403, ['Bearer error="invalid_token", scope="a"'], "t", None),
        (403, ['Bearer error="invalid_token"'], "t", None),
        (403, ['Bearer scope=""'], "t", None),
        (403, ['Bearer realm="x"'], None, None),
        (403, ['Basic realm="x", scope="a"'], "t", None),
        (403, [], "t", None),
    ],
)
def test_what_an_answer_says(status, fields, token, refusal):
    assert read_refusal(status, fields, token) == refusal


def test_no_more_than_the_first_parts_of_long_challenges_are_read():
    """They are read in one piece: a server that writes 48 KB would delay others."""
    named = f'resource_metadata="{PLACE}"'
    long = 'Bearer k="x"' + ', k="x"' * 5_000
    assert read_refusal(401, [f"Bearer {named}", long], None).place == PLACE
    assert read_refusal(401, [f"{long}, {named}"], None).place is None
    assert read_refusal(401, [long, f"Bearer {named}"], None).place is None
