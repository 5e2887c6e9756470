"""What a client of revision 2026-07-28 over HTTP knows of tools: which of their parameters it repeats in headers."""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from mcpbus.protocol.http.mirrored_headers import repeat_request
from mcpbus.protocol.http.mirrored_parameters import KEY, MirroredParameter, mirrored_parameters
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.meta import read_routing
from mcpbus.protocol.revisions import Revision

_log = logging.getLogger(__name__)


class MirroredTools:
    """The tools whose parameters are repeated in headers, as far as they were listed."""

    def __init__(self) -> None:
        self._mirrored: dict[str, Sequence[MirroredParameter]] = {}
        # What was listed since the last page of a list: what is not, is not there any more.
        self._listed: dict[str, Sequence[MirroredParameter]] = {}

    def headers(self, request: JsonRpcRequest, revision: Revision) -> dict[str, str]:
        """Return the header fields of a request."""
        mirrored: Sequence[MirroredParameter] = ()
        if request.method == "tools/call" and self._mirrored:
            mirrored = self._mirrored.get(read_routing(request.params).name or "", ())
        return repeat_request(request, revision.name, mirrored)

    def learn(self, data: bytes | str) -> bytes | str:
        """Take an answer to ``tools/list``; return it without the tools whose headers would be wrong (rule X-43).

        A page without such a parameter is not decoded.
        """
        try:
            page = msgspec.json.decode(data, type=_ListResponse).result
        except (msgspec.DecodeError, RecursionError):
            return data  # whoever reads the answer tells what is wrong
        if page is None or page.tools is msgspec.UNSET:
            return data
        if (KEY in data) if isinstance(data, str) else (KEY.encode() in data):
            message = msgspec.json.decode(data)
            tools = message["result"]["tools"]
            if isinstance(tools, list):
                message["result"]["tools"] = [tool for tool in tools if self._learn(tool)]
                data = msgspec.json.encode(message)
        self._mirrored |= self._listed
        if page.next_cursor is None:
            self._mirrored, self._listed = self._listed, {}
        return data

    def _learn(self, tool: Any) -> bool:
        try:
            name, schema = msgspec.convert(tool, _Named).name, tool.get("inputSchema")
            self._listed[name] = mirrored_parameters(schema) if isinstance(schema, dict) else ()
        except msgspec.ValidationError:
            return True  # whoever lists the tools tells what is wrong
        except ValueError as fault:
            _log.warning("the tool %r is left out: %s", name, fault)
            return False
        return True


class _Named(msgspec.Struct):
    name: str


class _Page(msgspec.Struct, rename="camel"):
    tools: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    next_cursor: Any = None


class _ListResponse(msgspec.Struct):
    result: _Page | None = None
