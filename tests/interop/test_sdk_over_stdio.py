"""The official SDK's client over stdio. A process a revision: each makes the whole round on one connection."""

import pytest
from sdk_checks import CHECKS
from sdk_client import REVISIONS, TOLERATED, over_stdio

pytestmark = TOLERATED


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_sdks_client_does_all_over_stdio(revision):
    async with over_stdio(revision, log_level="warning") as link:
        for check in CHECKS:
            await check(link)
