"""Each annotation of the table beside the official SDK and FastMCP, whose answers `record_peers.py` recorded."""

import json
from pathlib import Path
from typing import Any

import pydantic
import pytest
from all_rows import ROWS, SERVED, arguments_of
from intended_differences import DIFFERENCES, explained
from schema_walk import missing_keywords
from served import recorded, served
from type_rows import NOTHING, tool_of

from mcpbus import RegistrationError, Server

PEERS = ("sdk", "fastmcp")
RECORD = recorded("peers.json")["rows"]
LISTED = recorded("listed.json")
BOTH_SERVE = [name for name, entry in RECORD.items() if not any("refused" in entry[peer] for peer in PEERS)]
ALL_SERVE = [name for name in BOTH_SERVE if name in SERVED]

pytestmark = pytest.mark.filterwarnings("ignore:The `PaymentCardNumber` class is deprecated")


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch):
    """Paths in the table are relative to the root of the repository."""
    monkeypatch.chdir(Path(__file__).parent.parent.parent)


def test_the_record_is_of_this_table():
    """If this fails, run ``python3 tests/types/record_peers.py``."""
    assert list(RECORD) == list(ROWS)
    for name in BOTH_SERVE:
        entry = RECORD[name]
        tried = {*entry["accepted"], *entry["split"], *entry["rejected"]}
        assert tried == set(map(json.dumps, arguments_of(ROWS[name]))), name


@pytest.mark.parametrize("name", [name for name in ROWS if name not in SERVED])
def test_an_annotation_that_cannot_be_enforced_is_refused(name):
    with pytest.raises(RegistrationError, match=ROWS[name].refused):
        Server("x").tool(tool_of(ROWS[name]))


@pytest.mark.parametrize("name", SERVED)
def test_a_row_is_listed_as_recorded_and_takes_its_valid_values_only(name):
    """If a change of the schema is intended, run ``python tests/types/record_listed.py`` and read its diff."""
    row, mine = ROWS[name], served(name)
    if LISTED["pydantic"] == pydantic.VERSION:
        assert json.dumps(mine.schema) == json.dumps(LISTED["rows"][name])
    else:  # another version of pydantic spells some schemas differently
        assert missing_keywords(LISTED["rows"][name], mine.schema) == []
    answers = {text_of(value): mine.answers[text_of(value)] for value in [*row.valid, *row.invalid]}
    assert [text for text, answer in answers.items() if answer is None] == list(
        dict.fromkeys(map(text_of, row.invalid))
    )
    optional = row.default is not NOTHING
    assert (mine.answers["{}"] is not None, "v" in mine.schema.get("required", ())) == (
        optional,
        not optional,
    )


@pytest.mark.parametrize("name", ALL_SERVE)
def test_no_keyword_of_a_peer_is_missing_and_values_have_the_fate_that_both_give_them(name):
    assert [line for line in [*keywords(name), *fates(name)] if not explained(name, line)] == []


def test_each_intended_difference_exists():
    """A reason that explains nothing is removed."""
    lines = [(name, line) for name in ALL_SERVE for line in [*keywords(name), *fates(name)]]
    unused = [each for each in DIFFERENCES if not any(each.explains(name, line) for name, line in lines)]
    assert [each for each in unused if not each.rows.startswith("results:")] == []


def keywords(name: str) -> list[str]:
    """Return a line for each keyword of a peer that is missing in the schema of a row."""
    return [line for peer in PEERS for line in missing_keywords(RECORD[name][peer], served(name).schema)]


def fates(name: str) -> list[str]:
    """Return a line for each value that both peers accept or that both reject, and mcpbus does not."""
    entry, mine = RECORD[name], served(name).answers
    found = [
        f"{text} -> {mine[text]}, not {got}" for text, got in entry["accepted"].items() if mine[text] != got
    ]
    return [
        *found,
        *(f"{text} -> {mine[text]}, not None" for text in entry["rejected"] if mine[text] is not None),
    ]


def text_of(value: Any) -> str:
    return json.dumps({"v": value})
