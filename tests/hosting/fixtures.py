"""Fixtures of all tests of hosted servers, here and in the folders of other versions: the loops and the eras that they run with."""

import pytest

from mcpbus.testing import probe

LEGACY, MODERN = "2025-11-25", "2026-07-28"


@pytest.fixture(params=["asyncio", "trio"])
def loop(request):
    return request.param


@pytest.fixture(params=[LEGACY, MODERN])
def revision(request):
    return request.param


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    """Let a probe wait a twentieth of a second at its end, not a whole one: the clock of these tests is the real one, because of asyncio."""
    monkeypatch.setattr(probe, "_GRACE_SECONDS", 0.05)
