"""What every result object ends with: nothing in the legacy era; its kind, its server and its caching in the modern one.

Source: rules J-30 (``resultType``), M-7 (``serverInfo``), K-1 (``ttlMs``, ``cacheScope``).
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from mcpbus.protocol.jsonrpc import encode_value
from mcpbus.protocol.messages import Implementation, MetaObject
from mcpbus.protocol.meta import SERVER_INFO
from mcpbus.protocol.revisions import Revision

CacheScope: TypeAlias = Literal["public", "private"]


class Tail(msgspec.Struct, frozen=True):
    """The end of each result of one server under one revision."""

    plain: bytes
    """Closes an object that has at least one member already."""
    _revision: Revision
    _meta: MetaObject

    @property
    def alone(self) -> bytes:
        """A whole result, which says nothing."""
        return b"{" + self.plain.removeprefix(b",")

    def with_meta(self, meta: MetaObject) -> bytes:
        """As `plain`, with a ``_meta`` of the result's own."""
        return self._end(b"", {**self._meta, **meta}) if meta else self.plain

    def whole(self, members: Mapping[str, msgspec.Raw]) -> bytes:
        """A whole result of these members, which may hold a ``_meta``, and a kind of result, of their own (rule B-11)."""
        kind = {"resultType": "complete"} if self._revision.result_type else {}
        meta = {**self._meta, **msgspec.json.decode(members.get("_meta", b"{}"), type=dict[str, msgspec.Raw])}
        return encode_value({**kind, **members, **({"_meta": meta} if meta else {})})

    def cacheable(self, ttl: float, scope: CacheScope) -> bytes:
        """As `plain`, for a result that may be reused for `ttl` seconds."""
        if not self._revision.caching:
            return self.plain
        return self._end(b',"ttlMs":%d,"cacheScope":"%b"' % (round(ttl * 1000), scope.encode()), self._meta)

    @property
    def input_required(self) -> bytes:
        """As `plain`, for a result that asks the client before there is another (rules V-2, K-2)."""
        return self._end(b"", self._meta, b"input_required")

    @property
    def task(self) -> bytes:
        """As `plain`, for the handle of a task (rule TX-2)."""
        return self._end(b"", self._meta, b"task")

    def _end(self, members: bytes, meta: MetaObject, result_type: bytes = b"complete") -> bytes:
        kind = b',"resultType":"%b"' % result_type if self._revision.result_type else b""
        return kind + members + (b',"_meta":%b}' % encode_value(meta) if meta else b"}")


def tail_for(identity: Implementation, revision: Revision) -> Tail:
    """The end of the results of the server `identity` under `revision`."""
    meta = {SERVER_INFO: msgspec.to_builtins(identity)} if revision.server_identity else {}
    bare = Tail(b"", revision, meta)
    return msgspec.structs.replace(bare, plain=bare._end(b"", meta))  # noqa: SLF001  # the same class's own
