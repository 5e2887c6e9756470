"""The eight log levels, rule G-2."""

import itertools

import msgspec
import pytest

from mcpbus.protocol.enums import LogLevel

ORDER = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


def test_levels_are_ordered_by_severity_and_not_by_the_alphabet():
    assert [level.value for level in sorted(map(LogLevel, sorted(ORDER)))] == ORDER
    for lower, higher in itertools.combinations(map(LogLevel, ORDER), 2):
        assert lower < higher
        assert lower <= higher
        assert higher > lower
        assert higher >= lower
        assert not higher <= lower
        assert not lower >= higher
    assert LogLevel.INFO <= LogLevel.INFO
    assert LogLevel.INFO >= LogLevel.INFO
    assert LogLevel.EMERGENCY.severity == 7


def test_an_unknown_level_is_told_the_known_ones():
    with pytest.raises(ValueError, match="debug, info, notice"):
        LogLevel("loud")


def test_levels_are_words_on_the_wire():
    assert msgspec.json.encode({"level": LogLevel.WARNING}) == b'{"level":"warning"}'
