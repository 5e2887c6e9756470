"""Who may read the inspector: a program on this machine that has the token."""

import hmac
from collections.abc import Collection, Sequence
from http import HTTPStatus

FieldList = Sequence[tuple[bytes, bytes]]

UNGUARDED = "/"
"""The page, in which there is nothing but itself."""


def refusal(
    verb: str, path: str, fields: FieldList, names: Collection[str], token: str
) -> tuple[HTTPStatus, str] | None:
    """Return why a request is refused, with the HTTP status; None if it is not.

    Args:
        verb: Its method.
        path: Its path.
        fields: Its header fields, their names in lower case.
        names: What `Host` may say: the inspector has no other name, so that no name can be made to lead to it (DNS rebinding).
        token: The token.
    """
    hosts, origins = _values(fields, b"host"), _values(fields, b"origin")
    if len(hosts) != 1 or hosts[0].lower() not in names:
        return HTTPStatus.FORBIDDEN, "this Host is not the inspector's"
    if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
        return HTTPStatus.FORBIDDEN, "another page may not read the inspector"
    if verb not in {"GET", "HEAD"}:
        return HTTPStatus.METHOD_NOT_ALLOWED, "the inspector can only be read"
    if path != UNGUARDED and not _has_token(fields, token):
        return (
            HTTPStatus.UNAUTHORIZED,
            "the token is missing or wrong: it is in the address that the log names",
        )
    return None


def _has_token(fields: FieldList, token: str) -> bool:
    given = _values(fields, b"authorization")
    if len(given) != 1:
        return False
    scheme, _, value = given[0].partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(value.strip().encode(), token.encode())


def _values(fields: FieldList, name: bytes) -> list[str]:
    return [value.decode("latin-1") for each, value in fields if each.lower() == name]
