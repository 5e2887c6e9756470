"""The official SDK's client over Streamable HTTP."""

import pytest
from sdk_checks import CHECKS
from sdk_client import REVISIONS, TOLERATED, over_http

pytestmark = TOLERATED


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_sdks_client_does_all_over_streamable_http(check, revision):
    async with over_http(revision, log_level="warning") as link:
        await check(link)
