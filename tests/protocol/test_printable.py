"""Text of other programs on a terminal and in the log: no character of it steers one, and no line of it begins an entry of its own."""

import io
import logging
import sys
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpbus.cli.options import JsonFormatter, TextFormatter
from mcpbus.protocol.log_records import LOGGERS, OwnLines
from mcpbus.protocol.printable import as_entry, escaped, printable, quoted

UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
FORGED = "2026-01-01 00:00:00,000 ERROR mcpbus: forged"
ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
TEXT = st.text(st.characters(), max_size=40)


def test_every_control_and_format_character_of_unicode_is_replaced():
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    for lines, kept in ((True, "\n\t"), (False, "")):
        shown = printable("".join(every), lines=lines)
        assert len(shown) == len(every)
        pairs = [*zip(every, shown, strict=True)]
        kept_wrongly = [hex(ord(a)) for a, b in pairs if category(a) in UNSAFE and a == b and a not in kept]
        # Python 3.11 does not know the newest ones yet.
        replaced_wrongly = [hex(ord(a)) for a, b in pairs if category(a) not in {*UNSAFE, "Cn"} and a != b]
        assert (kept_wrongly, replaced_wrongly) == ([], [])


@given(TEXT)
def test_text_on_one_line_has_one_line(text):
    shown = printable(text, lines=False)
    assert len(shown.splitlines()) <= 1
    assert shown == printable(shown, lines=False)
    assert not {category(each) for each in shown} & UNSAFE


@given(TEXT)
def test_escapes_stand_for_the_same_characters(text):
    shown = escaped(text)
    assert shown == printable(shown, lines=False)
    assert "\\" in text or shown.encode("latin-1", "backslashreplace").decode("unicode_escape") == text


@given(TEXT)
def test_no_line_of_an_entry_begins_another_one(text):
    _, *others = as_entry(text).split("\n")
    assert all(not each or each[0] in " \t" or each[0].isspace() for each in others)
    assert as_entry(as_entry(text)) == as_entry(text)


def test_long_text_is_cut():
    assert printable("x" * 9, longest=4) == "xxxx..."
    assert printable("x" * 4, longest=4) == "xxxx"
    assert quoted("x" * 9, 4) == "'xxxx'"


@pytest.fixture
def written():
    """The standard formatter of `logging`, as programs have it that set up no other, on every logger of the package."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)


class Hostile:
    def __str__(self):
        return f"a{ENDS}{FORGED}\x1b[2J\u202e"

    __repr__ = __str__


def raised(error):
    async def fail():
        raise error

    with pytest.raises(type(error)) as caught:
        fail().send(None)
    return caught.value


@pytest.mark.parametrize("name", LOGGERS)
@pytest.mark.parametrize(
    "error",
    [
        ValueError(str(Hostile())),
        ExceptionGroup(str(Hostile()), [ValueError(str(Hostile()))]),
        SyntaxError(str(Hostile()), ("f.py", 1, 1, str(Hostile()))),
    ],
    ids=["one", "a group", "syntax"],
)
def test_nothing_that_others_wrote_forges_an_entry(written, name, error):
    error.add_note(str(Hostile()))
    logging.getLogger(name).error("%s and %r of %d failed", Hostile(), Hostile(), 3, exc_info=raised(error))
    logging.getLogger(name).error("%(a)s", {"a": Hostile()})
    logging.getLogger(name).error(str(Hostile()))
    text = written.getvalue()
    assert "ValueError" in text or "SyntaxError" in text
    for end in ENDS:
        assert not [line for line in text.split(end)[1:] if line.startswith("2026-01")]
    assert not {category(each) for each in text.replace("\n", "")} & UNSAFE
    assert " of 3 failed" in text


def test_a_stack_keeps_its_lines(written):
    logging.getLogger("mcpbus").warning("blocked:\n%s", OwnLines("  File a\nb"))
    assert written.getvalue().endswith(" WARNING mcpbus: blocked:\n  File a\n  b\n")


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_the_log_of_the_command_line_is_safe_whoever_writes_it(formatter):
    record = logging.makeLogRecord(
        {"name": "theirs", "msg": "%s", "args": (Hostile(),), "levelname": "ERROR"}
    )
    error = raised(ValueError(str(Hostile())))
    record.exc_info = (type(error), error, error.__traceback__)
    text = formatter.format(record)
    assert not [line for line in text.splitlines()[1:] if line.startswith("2026-01")]
    assert not {category(each) for each in text.replace("\n", "")} & UNSAFE
    assert "ValueError: a" in text
