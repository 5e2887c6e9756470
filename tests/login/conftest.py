"""A world for each test."""

import pytest
from login_world import open_world


@pytest.fixture
async def world():
    async with open_world() as found:
        yield found
