"""URIs that several mounted servers have, of which each is offered under the prefix of its server.

URIs of upstream servers stay as they are above, so that links in texts lead somewhere. A URI that two servers have belongs to neither: it
becomes ``ui://git/page`` and ``ui://hub/page``, in lists, results and the ``_meta`` of tools. So no server can show its page for that of
another one, whichever is there first. A URI that begins with the prefix of a server is that server's, whoever lists it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs
import msgspec

from mcpbus.features.content import PromptMessage, PromptResult, ToolResult
from mcpbus.features.errors import RegistrationError
from mcpbus.protocol import messages as wire
from mcpbus.protocol.uris import canonical_uri, without_path

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(.*)", re.DOTALL)
_INTERFACE: Final = "ui://"
_DEEPEST: Final = 16
"""How deep the ``_meta`` of a tool is searched for URIs."""


class UriClaims:
    """The URIs that the mounted servers of one server have, and the prefixes by which URIs are theirs."""

    def __init__(self) -> None:
        self._claims: dict[str, list[object]] = {}
        self._of: dict[int, frozenset[str]] = {}
        self._prefixes: dict[str, object] = {}

    def reserve(self, prefix: str, owner: object) -> None:
        """Give a server all URIs that begin with its prefix."""
        self._prefixes.setdefault(prefix, owner)

    def update(self, owner: object, uris: Iterable[str]) -> list[object]:
        """Take what a server has now, and return the other servers that have some of what came or went."""
        new, old = frozenset(map(canonical_uri, uris)), self._of.get(id(owner), frozenset())
        self._of[id(owner)] = new
        touched: dict[int, object] = {}
        for uri in old - new:
            left = self._claims[uri] = [each for each in self._claims[uri] if each is not owner]
            touched.update((id(each), each) for each in left)
            if not left:
                del self._claims[uri]
        for uri in new - old:
            claims = self._claims.setdefault(uri, [])
            touched.update((id(each), each) for each in claims)
            claims.append(owner)
        return list(touched.values())

    def release(self, owner: object) -> list[object]:
        """Forget a server that is mounted no more; return as `update` does."""
        touched = self.update(owner, ())
        del self._of[id(owner)]
        self._prefixes = {prefix: each for prefix, each in self._prefixes.items() if each is not owner}
        return touched

    def is_shared(self, uri: str, owner: object) -> bool:
        """Whether another server has a URI too, or owns it by its prefix."""
        reserved = self.owner_of(uri)
        if reserved is not None and reserved is not owner:
            return True
        return any(each is not owner for each in self._claims.get(canonical_uri(uri), ()))

    def owner_of(self, uri: str) -> object | None:
        """Return the server whose prefix a URI begins with, in whatever spelling."""
        parts = _URI.fullmatch(canonical_uri(uri))
        first, slash, _ = ("", "", "") if parts is None else parts[2].partition("/")
        if parts is None or not slash:
            return None
        if first in self._prefixes or not parts[1].startswith("http"):
            return self._prefixes.get(first)
        # In these schemes a prefix stands where the host is, in which case does not matter.
        return next((self._prefixes[each] for each in self._prefixes if each.lower() == first), None)


def with_prefix(uri: str, prefix: str) -> str:
    """Return a URI, or a template, with a prefix.

    Raises:
        RegistrationError: A prefix has no place in it.
    """
    parts = _URI.fullmatch(uri)
    if parts is None:
        raise RegistrationError(
            f"resource {uri!r}: another server has it too, and a prefix goes behind '://', which it has not"
        )
    return f"{parts[1]}{prefix}/{parts[2]}"


def without_prefix(uri: str, prefix: str) -> str:
    """Return the URI that got this prefix."""
    below = without_path(uri, f"{prefix}/")
    return uri if below is None else below


def uris_in(meta: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the URIs of user interfaces that the ``_meta`` of a tool names."""
    return (text for text in _texts(meta, _DEEPEST) if text.startswith(_INTERFACE))


def mentions(meta: Mapping[str, Any] | None, uris: Collection[str]) -> bool:
    """Return whether the ``_meta`` of a tool names one of these canonical URIs."""
    return any(canonical_uri(text) in uris for text in _texts(meta, _DEEPEST))


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth:
        parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        for part in parts:
            yield from _texts(part, depth - 1)


def renamed_in(value: Any, names: Mapping[str, str], depth: int = _DEEPEST) -> Any:
    """Return JSON in which each text that spells one of these canonical URIs is the other one."""
    if isinstance(value, str):
        return names.get(canonical_uri(value), value)
    if depth and isinstance(value, Mapping):
        return {key: renamed_in(part, names, depth - 1) for key, part in value.items()}
    if depth and isinstance(value, list):
        return [renamed_in(part, names, depth - 1) for part in value]
    return value


def renamed_result(result: Any, names: Mapping[str, str]) -> Any:
    """Return what a function of an upstream server returned, with these URIs renamed in what links to them."""
    if isinstance(result, ToolResult):
        content = result.content
        if isinstance(content, list):
            content = [_renamed_block(block, names) for block in content]
        return attrs.evolve(result, content=content, meta=renamed_in(result.meta, names))
    if isinstance(result, PromptResult) and isinstance(result.messages, list):
        messages = [_renamed_message(each, names) for each in result.messages]
        return attrs.evolve(result, messages=messages)
    if isinstance(result, list):
        return [_renamed_block(each, names) for each in result]
    return result


def _renamed_message(message: Any, names: Mapping[str, str]) -> Any:
    if not isinstance(message, PromptMessage):
        return message
    return attrs.evolve(message, content=_renamed_block(message.content, names))


def _renamed_block(block: Any, names: Mapping[str, str]) -> Any:
    if isinstance(block, wire.EmbeddedResource):
        return msgspec.structs.replace(block, resource=_renamed_block(block.resource, names))
    if isinstance(block, _WITH_URI) and (above := names.get(canonical_uri(block.uri))) is not None:
        return msgspec.structs.replace(block, uri=above)
    return block


_WITH_URI: Final = (wire.ResourceLink, wire.TextResourceContents, wire.BlobResourceContents)
