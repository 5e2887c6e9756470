"""What replicas keep in Redis or Valkey beside their sessions, over real ones: the events of streams, and tasks."""

import secrets
from functools import partial

import trio
from several import at
from test_lost_streams import LOST, ask
from test_lost_tasks import begin, look
from test_redis import PATIENCE, Replicas, pause

from mcpbus import Limits
from mcpbus.stores import RedisEventStore
from mcpbus.tasks import RedisTaskStore


async def test_what_a_replica_had_another_one_finds(shared_engine, nursery, patient_redis, monkeypatch):
    monkeypatch.setattr("mcpbus.cluster.session_records.DIRECTORY_SECONDS", PATIENCE)
    monkeypatch.setattr("mcpbus.cluster.redis_directory._KEY_WAIT", 0.0)
    namespace, url = secrets.token_hex(4), shared_engine.url
    stores = []
    replicas = Replicas(url, namespace)
    for _ in range(2):
        events, tasks = (kind(url, namespace=namespace) for kind in (RedisEventStore, RedisTaskStore))
        stores += [events, tasks]
        limits = Limits(store_deadline=PATIENCE)
        await nursery.start(partial(replicas.run, event_store=events, task_store=tasks, limits=limits))
    here, there = replicas.probes
    session = await here.initialize("2025-11-25")
    stream = ask(session, "count")
    task = await begin(here)
    with trio.fail_after(PATIENCE):
        await stream.wait_for(lambda: len(stream.event_ids) > 1)
    await pause(replicas.buses[0])
    again = await at(session, there).get(stream.event_ids[0]).ended(timeout=PATIENCE)
    assert again.messages[0]["params"]["progress"] == 0
    assert LOST in again.messages[-1]["error"]["message"]
    assert (await look(there, task))["status"] == "failed"
    nursery.cancel_scope.cancel()
    for store in stores:
        store.close()
