"""With a watch, an entry of the log in JSON has the number of the request whose handler logs, also from a thread."""

import json
import logging

import pytest

from mcpbus import Server
from mcpbus.cli.options import JsonFormatter
from mcpbus.watch import Watch

_log = logging.getLogger("shop")


@pytest.fixture
def entries():
    found = []

    class Handler(logging.Handler):
        def emit(self, record):
            found.append(json.loads(self.format(record)))

    handler = Handler()
    handler.setFormatter(JsonFormatter())
    _log.addHandler(handler)
    yield found
    _log.removeHandler(handler)


@pytest.mark.parametrize("watch", [pytest.param(None, marks=pytest.mark.unwatched), Watch()])
async def test_an_entry_has_the_number_of_its_request(watch, entries):
    server = Server("shop")

    @server.tool
    async def one() -> None:
        _log.warning("one")

    @server.tool
    def two() -> None:
        _log.warning("two")

    async with server.open(watch=watch) as bus, bus.connect() as client:
        await client.call_tool("one")
        await client.call_tool("two")
        _log.warning("outside")
        numbers = [] if watch is None else [each.number for each in bus.watch.requests(ended=True)[::-1]]
    assert [entry.get("request") for entry in entries] == ([*numbers, None] if numbers else [None] * 3)
