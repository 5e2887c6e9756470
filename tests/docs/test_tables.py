"""What the tables of the documents say is what the code does."""

import ast
import inspect
import re

import attrs
import pytest
from doc_blocks import ROOT

from mcpbus import HttpOptions, Limits, LogLevel, Reason, ServeOptions, Server
from mcpbus.metrics import OF_A_BUS, OF_A_WATCH, OF_CONNECTIONS
from mcpbus.protocol.revisions import REVISIONS, Era
from mcpbus.protocol.routes import MessageKind, StreamKind, TransportKind, route


def rows(document):
    """The rows of all tables of a document, as lists of cells."""
    text = (ROOT / "docs" / document).read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def documented():
    """The documented defaults, by owner."""
    tables = {}
    for name, default, _ in rows("limits.md"):
        if name.startswith("**"):
            table = tables[name.strip("*`")] = {}
        elif name.startswith("`"):
            table[name.strip("`")] = ast.literal_eval(default.strip("`"))
    return tables


def defaults(options):
    return {
        field.name: field.default.value if isinstance(field.default, LogLevel) else field.default
        for field in attrs.fields(options)
    }


@pytest.mark.parametrize(
    ("owner", "options"), [("Limits", Limits), ("HTTP", HttpOptions), ("ServeOptions", ServeOptions)]
)
def test_every_limit_is_there_with_its_default(owner, options):
    assert documented()[owner] == defaults(options)


def test_every_figure_is_there_with_its_label_and_what_it_means():
    figures = [
        (f"{each.name}{{{each.label}}}" if each.label else each.name, each.meaning)
        for each in (*OF_A_BUS, *OF_CONNECTIONS, *OF_A_WATCH)
    ]
    told = [(name.strip("`"), text) for name, text in rows("metrics.md") if name.startswith("`mcpbus_")]
    assert [(name, re.sub(r"\[(.*?)\]\(.*?\)|`", r"\1", text)) for name, text in told] == figures


def test_defaults_of_the_server_are_its_own():
    parameters = inspect.signature(Server).parameters
    for name, default in documented()["Server"].items():
        assert parameters[name].default == default, name


def test_every_reason_is_there_in_its_own_words():
    told = {name.strip("`"): text for name, *text in rows("delivery.md") if name.strip("`").isupper()}
    assert told == {reason.name: [reason.value] for reason in Reason}


PLACES = {
    "own answer": StreamKind.RESPONSE,
    "GET stream": StreamKind.STANDALONE,
    "each listen": StreamKind.LISTEN,
    "the connection": StreamKind.DUPLEX,
}
COLUMNS = [
    ("Legacy, HTTP", [(Era.LEGACY, TransportKind.HTTP)]),
    ("Legacy, JSON only", [(Era.LEGACY, TransportKind.HTTP_JSON)]),
    ("Legacy, stateless", [(Era.LEGACY, TransportKind.STATELESS)]),
    ("2026-07-28, HTTP", [(Era.MODERN, TransportKind.HTTP)]),
    ("2026-07-28, JSON only", [(Era.MODERN, TransportKind.HTTP_JSON)]),
    (
        "stdio, WebSocket, HTTP+SSE, in process",
        [(Era.LEGACY, TransportKind.DUPLEX), (Era.MODERN, TransportKind.DUPLEX)],
    ),
]


def test_the_table_of_places_is_the_routing_table():
    kinds = {kind.value: kind for kind in MessageKind}
    header, *body = [row for row in rows("delivery.md") if len(row) > 2]
    assert header == ["Message", *(title for title, _ in COLUMNS)]
    told = [row for row in body if row[0] in kinds]
    assert len(told) == 6
    for name, *cells in told:
        for cell, (_, ways) in zip(cells, COLUMNS, strict=True):
            for era, transport in ways:
                way = route(kinds[name], era, transport)
                if cell == "the connection (legacy)":
                    assert isinstance(way, StreamKind) == (era is Era.LEGACY), (name, era, transport)
                else:
                    assert PLACES.get(cell) == (way if isinstance(way, StreamKind) else None), (
                        name,
                        era,
                        transport,
                    )


def test_every_revision_is_named():
    section = re.search(r"## Supported revisions\n(.*?)## ", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    assert set(re.findall(r"`([\d-]+)`", section)) == set(REVISIONS)


@pytest.mark.parametrize("made", [Server.from_openapi, Server.from_asgi])
def test_defaults_of_servers_of_documents_are_their_own(made):
    parameters = inspect.signature(made).parameters
    told = documented()["from_openapi"]
    assert {name: parameters[name].default for name in told} == told
