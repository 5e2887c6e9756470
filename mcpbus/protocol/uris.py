"""The identity of a URI: which spellings name the same resource.

Clients send a URI percent-encoded or not, and no two libraries encode the same characters. All that compares URIs
compares their canonical forms. All that shows a URI shows it as it was written.

Source: RFC 3986 section 6.2.2 (case and percent-encoding) and RFC 3987 section 3.1 (characters beyond ASCII). Dot
segments stay: a path that leaves a directory names nothing, and is not repaired. Unicode stays as it was composed.
"""

import re
from collections.abc import Iterable, Iterator, KeysView, Mapping, MutableSet
from string import ascii_letters, digits
from typing import Final
from urllib.parse import quote

RESERVED: Final = ":/?#[]@!$&'()*+,;="
"""The characters that may separate parts of a URI (RFC 3986 section 2.2)."""
PATH_DELIMITERS: Final = "/?#"
"""Those that mean something else percent-encoded in a path. Clients encode the others, or do not."""
QUERY_DELIMITERS: Final = "&=#"
"""The same in a query."""

_UNRESERVED: Final = ascii_letters + digits + "-._~"
_PLAIN: Final = re.compile(rf"[a-z][a-z0-9+.\-]*:[{re.escape(_UNRESERVED + RESERVED)}]*")
# An escape, a lone "%", or characters that a URI cannot hold. Control characters are left: they name nothing.
_UNUSUAL: Final = re.compile(rf"%(?:[0-9A-Fa-f]{{2}})?|[^\x00-\x1f\x7f%{re.escape(_UNRESERVED + RESERVED)}]+")
_ESCAPE: Final = re.compile("%[0-9A-F]{2}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
# Only these schemes have hosts, in which case does not matter. "config://Name" has a name.
_HTTP_HOST: Final = re.compile(r"https?://[^/?#@]*(?=[/?#]|\Z)")
_TAIL: Final = re.compile("[?#]")
_BEHIND_SLASHES: Final = re.compile(r"[^:/?#]+://")


def _escapes(characters: Iterable[str]) -> Mapping[str, str]:
    return {f"%{ord(character):02X}": character for character in characters}


_DECODED: Final = _escapes(_UNRESERVED)
_IN_PATH: Final = _escapes(set(RESERVED).difference(PATH_DELIMITERS))
_IN_QUERY: Final = _escapes(set(RESERVED).difference(QUERY_DELIMITERS))


def normalize_escapes(text: str) -> str:
    """Return part of a URI with each character escaped where it has to be, and nowhere else.

    Reserved characters stay as they came, since an escaped one may be another thing. A lone ``%`` is escaped.
    """
    return _UNUSUAL.sub(_normalized, text)


def _normalized(found: re.Match[str]) -> str:
    text = found[0]
    if text == "%":
        return "%25"
    if text[0] != "%":
        return quote(text, safe="", errors="surrogatepass")
    escape = text.upper()
    return _DECODED.get(escape, escape)


def canonical_uri(uri: str) -> str:
    """Return the form that all spellings of a URI share.

    Reserved characters that separate nothing, such as ``@`` in a path, are the same percent-encoded. ``/``, ``?`` and
    ``#`` in a path, and ``&``, ``=`` and ``#`` in a query, are not.
    """
    if _PLAIN.fullmatch(uri) and not uri.startswith("http"):
        return uri
    text = normalize_escapes(uri)
    tail = _TAIL.search(text)
    end = len(text) if tail is None else tail.start()
    text = _unescaped(text[:end], _IN_PATH) + _unescaped(text[end:], _IN_QUERY)
    if (scheme := _SCHEME.match(text)) is not None:
        text = scheme[0].lower() + text[scheme.end() :]
    if (host := _HTTP_HOST.match(text)) is not None:
        text = normalize_escapes(host[0].lower()) + text[host.end() :]
    return text


def _unescaped(text: str, escapes: Mapping[str, str]) -> str:
    return _ESCAPE.sub(lambda found: escapes.get(found[0], found[0]), text)


def without_path(uri: str, added: str) -> str | None:
    """Return a URI without the segments `added` behind its ``://``, in whatever spelling; None if it has not got them.

    Args:
        uri: The URI.
        added: The segments, each with a ``/`` behind it.
    """
    head = _BEHIND_SLASHES.match(uri)
    if head is None:
        return None
    end = head.end()
    for _ in range(added.count("/")):
        end = uri.find("/", end) + 1
        if not end:
            return None
    if canonical_uri(uri[:end]) != canonical_uri(head[0] + added):
        return None
    return head[0] + uri[end:]


class UriSet(MutableSet[str]):
    """URIs, each once, in the spelling that was added first."""

    __slots__ = ("_spellings",)

    def __init__(self, uris: Iterable[str] = ()) -> None:
        self._spellings: dict[str, str] = {}
        for uri in uris:
            self.add(uri)

    @property
    def canonical(self) -> KeysView[str]:
        """The canonical forms."""
        return self._spellings.keys()

    @property
    def spellings(self) -> Mapping[str, str]:
        """The URIs by their canonical forms."""
        return self._spellings

    def add(self, value: str) -> None:
        """Add a URI, unless it is there in some spelling."""
        self._spellings.setdefault(canonical_uri(value), value)

    def discard(self, value: str) -> None:
        """Remove a URI, if it is there in some spelling."""
        self.take(value)

    def take(self, value: str) -> str | None:
        """Remove a URI, and return the spelling that was there; None if it was not."""
        return self._spellings.pop(canonical_uri(value), None)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and canonical_uri(value) in self._spellings

    def __iter__(self) -> Iterator[str]:
        return iter(self._spellings.values())

    def __len__(self) -> int:
        return len(self._spellings)

    def __repr__(self) -> str:
        return f"UriSet({list(self)!r})"
