"""What is said of the inside of mcpbus is true of its files."""

import re

from doc_blocks import ROOT
from draw_rooms import PICTURE, draw

ARCHITECTURE = ROOT / "docs/architecture.md"


def test_every_file_that_is_named_is_there():
    named = set(re.findall(r"`([\w/]+\.py)`", ARCHITECTURE.read_text()))
    assert len(named) > 30
    assert [
        name for name in sorted(named) if not any((root / name).exists() for root in (ROOT, ROOT / "mcpbus"))
    ] == []


def test_the_picture_is_of_the_modules_as_they_are():
    assert PICTURE.read_text() == draw(), "draw it anew: python tests/docs/draw_rooms.py"
