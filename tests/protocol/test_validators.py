"""What options may be, and the sentence for those that are something else."""

import attrs
import pytest

from mcpbus.protocol.validators import (
    check_numbers,
    check_positive,
    check_text,
    flag,
    ge,
    gt,
    one_of,
    wire_duration,
)

TOLD = "Options: told is a number of seconds, at least 0.001 and at most 9007199254740, not"


@attrs.frozen
class Options:
    least: float = attrs.field(default=1, validator=ge(1))
    more: float = attrs.field(default=1, validator=gt(0))
    word: str = attrs.field(default="a", validator=one_of("a", "b"))
    told: float = attrs.field(default=1, validator=wire_duration)
    flag: bool = attrs.field(default=True, validator=flag)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Options(least=0.5), "'least' must be >= 1: 0.5"),
        (lambda: Options(least="2"), "Options: least is a number, not '2'"),
        (lambda: Options(more=0), "'more' must be > 0: 0"),
        (lambda: Options(more=True), "Options: more is a number, not True"),
        (lambda: Options(word="c"), "word is 'c': it must be 'a' or 'b'"),
        (lambda: Options(flag="no"), "Options: flag is True or False, not 'no'"),
        (lambda: Options(flag=0), "Options: flag is True or False, not 0"),
        (lambda: Options(told=0.0009), f"{TOLD} 0.0009"),
        (lambda: Options(told=2**53 // 1000 + 1), f"{TOLD} 9007199254741"),
        (lambda: Options(told=float("nan")), f"{TOLD} nan"),
        (lambda: Options(told="1"), "Options: told is a number, not '1'"),
        (lambda: check_numbers("f()", a=1, b=None), "f(): b is a number, not None"),
        (lambda: check_numbers("f()", a=False), "f(): a is a number, not False"),
        (lambda: check_positive("f()", a=1, b=0), "f(): b is more than 0, not 0"),
        (lambda: check_positive("f()", a=float("nan")), "f(): a is more than 0, not nan"),
        (lambda: check_positive("f()", a=-1, b="1"), "f(): b is a number, not '1'"),
        (
            lambda: check_text("f()", a="", secret=b"secret"),
            "f(): secret is a text, and this is of type bytes",
        ),
    ],
)
def test_what_cannot_be_is_told(make, sentence):
    with pytest.raises((TypeError, ValueError)) as raised:
        make()
    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (TypeError, lambda: check_positive("f()", a="1")),
        (ValueError, lambda: check_positive("f()", a=0)),
        (TypeError, lambda: Options(least="1")),
        (ValueError, lambda: Options(least=0)),
    ],
)
def test_another_kind_is_one_error_and_another_value_another(kind, make):
    with pytest.raises(kind):
        make()


def test_what_can_be_is_let_be():
    assert Options(least=1, more=0.1, word="b", flag=False) == Options(1, 0.1, "b", flag=False)
    assert [Options(told=seconds).told * 1000 for seconds in (0.001, 2**53 // 1000)] == [1, 2**53 - 992]
    check_positive("f()", a=1e-9, b=1)
    check_text("f()", a="")
