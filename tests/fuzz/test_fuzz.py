"""A short run of each fuzzer, the same each time; ``make fuzz`` runs them long, and with other seeds."""

import pytest

from tests.fuzz.fuzz_targets import TARGETS

SHORT = 2
"""The part of a batch that is run."""


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_no_case_of_a_seed_fails(target):
    assert target.run(0, max(5, target.batch // SHORT)) > 0
