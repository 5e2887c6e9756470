"""The state of a session of FastMCP after its worker process was killed: it goes on in a store that processes share, and no other."""

from pathlib import Path

import pytest

from tests.at_home import OWN_PROCESSES
from tests.hosting.worker_processes import Session, served

pytestmark = OWN_PROCESSES

SERVER = Path(__file__).parent / "worker_state.py"


@pytest.mark.parametrize(("shared", "then"), [(True, 4), (False, 1)])
async def test_a_session_counts_on_in_another_process_if_its_store_is_shared(tmp_path, shared, then):
    environment = {"STATE": str(tmp_path)} if shared else {}
    async with served(SERVER, **environment) as http:
        session, other = Session(http), Session(http)
        for each in (session, other):
            await each.begin()
        assert [await session.call("count") for _ in range(3)] == [1, 2, 3]
        assert await other.call("count") == 1
        await session.kill(await session.call("where"))
        assert await session.call("count") == then
