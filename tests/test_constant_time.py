"""Secrets are compared in constant time. No behaviour shows it, so the syntax tree does."""

import ast
import re
from pathlib import Path

import pytest

TREE = Path(__file__).parent.parent / "mcpbus"
SECRET = re.compile(r"(?:^|_)(?:secret|token|proof|mac|hmac|password|nonce|signature|state)s?$")
"""Names of values that a stranger tries to guess."""

COMPARED = {
    "client/oauth/redirect.py": 1,  # the state that a browser brings back
    "cluster/link_handshake.py": 1,  # the proof of the other end
    "inspector/serving.py": 1,  # the token of the inspector
    "cluster/signed_ids.py": 1,  # the proof in a name
}
"""Where strangers bring a value that is compared with a secret, and how often."""

OUR_OWN = {
    ("client/oauth/token_manager.py", "self.tokens == last"),
    ("client/oauth/token_manager.py", "self.tokens == login.tokens"),
    ("client/oauth/token_manager.py", "tokens.access != token"),
    ("client/oauth/token_manager.py", "tokens.access != refusal.token"),
    # Progress tokens are ids, not secrets.
    ("hosting/channels.py", "(params or {}).get('progressToken') != self._token"),
    ("hosting/pipes.py", "each.token == token"),
}
"""Comparisons of two secrets that are both this process's own."""


def names(node):
    """The names in an operand: of what it is, and of what a method makes it from."""
    if isinstance(node, ast.Await | ast.Subscript | ast.Starred):
        return names(node.value)
    if isinstance(node, ast.Call):
        return names(node.func)
    if isinstance(node, ast.Attribute):
        return [node.attr, *names(node.value)]
    return [node.id] if isinstance(node, ast.Name) else []


def compared(source):
    """The comparisons of a module by == or != in which a name of a secret stands, and no literal."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare) or not any(
            isinstance(op, ast.Eq | ast.NotEq) for op in node.ops
        ):
            continue
        operands = [node.left, *node.comparators]
        if any(isinstance(operand, ast.Constant) for operand in operands):
            continue
        if any(
            SECRET.search(operand_names[0].lower()) or _is_made_of_one(operand_names)
            for operand_names in map(names, operands)
            if operand_names
        ):
            yield ast.unparse(node)


def _is_made_of_one(operand_names):
    """Whether it is such as ``state.encode()``."""
    return operand_names[0] in {"encode", "digest", "hexdigest"} and any(
        map(SECRET.search, operand_names[1:])
    )


def test_no_secret_is_compared_by_an_operator():
    found = {
        (path.relative_to(TREE).as_posix(), text)
        for path in TREE.rglob("*.py")
        for text in compared(path.read_text())
    }
    assert found == OUR_OWN


def test_what_strangers_bring_is_compared_in_constant_time():
    counts = {}
    for path in TREE.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if number := sum(ast.unparse(call.func) == "hmac.compare_digest" for call in calls):
            counts[path.relative_to(TREE).as_posix()] = number
    assert counts == COMPARED


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("proof == other", True),
        ("states[0].encode() == request.state.encode()", True),
        ("await incoming.expect(Kind.PROOF) != proofs[first]", True),
        ("self._client_secret == given", True),
        ("token == ''", False),
        ("token is other", False),
        ("name == other", False),
        ("stream.state.name == other", False),
    ],
)
def test_the_rule_finds_what_it_should(source, is_found):
    assert bool(list(compared(source))) is is_found
