"""The gains of speed tricks: what is reported of them, and which tricks are named as useless."""

import pytest
from click.testing import CliRunner

from benchmarks import __main__ as program
from benchmarks.ablation import Gain, rows, useless
from benchmarks.scenarios.parts import PARTS
from benchmarks.tricks import TRICKS, Trick


def gain(*ratios, name="t", kept=False):
    return Gain(Trick(name, "does something", lambda: None, kept=kept), "mixture", ratios)


def test_a_row_has_the_median_and_the_quartiles():
    row = rows([gain(1.0, 1.1, 1.2, 1.3, 9.0)]).splitlines()[-1]
    assert row == "| `t` | does something | mixture | 1.20 (1.10 to 1.30) | 5 |"


@pytest.mark.parametrize(
    ("gains", "named"),
    [
        ([gain(1.0, 1.01, 1.02)], ["t"]),
        ([gain(1.0, 1.01, 1.02, kept=True)], []),
        ([gain(1.0, 1.01, 1.02), gain(1.3, 1.4, 1.5)], []),
        ([gain(1.0, 1.0, 1.3, 1.3)], []),
        ([gain(1.05)], ["t"]),
    ],
    ids=["no gain", "kept", "a gain with its own call", "a wide spread", "one pair"],
)
def test_a_trick_is_useless_if_it_clearly_gains_less_than_a_tenth_of_everything(gains, named):
    assert useless(gains) == named


def test_each_trick_names_a_call_that_is_there():
    assert {trick.call for trick in TRICKS.values()} - {part.name for part in PARTS} == {""}


def test_an_unknown_trick_is_refused():
    result = CliRunner().invoke(program.main, ["ablation", "magic"])
    assert result.exit_code == 2
    assert "'magic' is not one of" in result.stderr
