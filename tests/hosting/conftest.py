"""The loops and the eras that tests of hosted servers run with."""

import pytest
from hosted_clients import LEGACY, MODERN


@pytest.fixture(params=["asyncio", "trio"])
def loop(request):
    return request.param


@pytest.fixture(params=[LEGACY, MODERN])
def revision(request):
    return request.param
