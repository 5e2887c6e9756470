"""The measurements notice a broken limit, and two attacks break none; ``make attacks`` runs all of them."""

from functools import partial
from pathlib import Path

import pytest

from tests.at_home import OWN_PROCESSES
from tests.attacks import target
from tests.attacks.attacked import Attack, suffer
from tests.attacks.attacker import Attacker
from tests.attacks.table import ATTACKS

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the kernel is not Linux"),
    OWN_PROCESSES,
]
SAMPLE = [
    "messages: batches of 1,000 calls",
    "upstream: a site that sends an SSE event without end",
]


@pytest.mark.parametrize("name", SAMPLE)
async def test_an_attack_breaks_no_limit(name):
    assert (await suffer(ATTACKS[name])).faults == ()


@pytest.mark.parametrize(("tool", "fault"), [("grow", "it took 3"), ("block", "an honest client waited for")])
async def test_a_broken_limit_is_noticed(tool, fault):
    attack = Attack(tool, partial(target.server, "weak_server.py"), partial(Attacker.call, tool=tool))
    [found] = (await suffer(attack)).faults
    assert fault in found
