"""Several processes that serve as one, over real sockets: which of them a connection comes to makes no difference."""

import json
import os
import re
import signal
from contextlib import asynccontextmanager, suppress
from functools import partial
from urllib.parse import urlsplit

import h11
import pytest
import trio
from wire import DEADLINE, Served, call, message, program

from tests.at_home import OWN_PROCESSES

pytestmark = OWN_PROCESSES

CHANGED = "notifications/tools/list_changed"


@asynccontextmanager
async def running(*redis):
    """The program, once all of its workers serve; yields its process and what reaches it."""
    async with program(
        "workers_app.py", "127.0.0.1:0", *redis, seconds=3 * DEADLINE
    ) as process:  # it starts up to five others
        said = b""
        while b"workers (Ctrl-C" not in said:
            data = await process.stderr.receive_some()
            assert data, said.decode()
            said += data
        served = Served(None, said.decode().split(" is served at ")[1].split()[0])
        try:
            yield process, served
        finally:
            served.close()


async def pid(peer, session):
    """The process that serves a session."""
    answer = await peer.exchange(call("where", id=1), session)
    assert answer.status == 200, answer
    return int(answer.json["result"]["content"][0]["text"])


async def peers_of_both(served):
    """Connections to one worker and the other, each with a session that is there."""
    found = {}
    while len(found) < 2:
        peer = await served.peer()
        session = await peer.open_session()
        found.setdefault(await pid(peer, session), (peer, session))
    return found


async def gone(pids):
    """Wait until none of these processes is there."""
    for number in pids:
        with suppress(ProcessLookupError):
            while True:
                os.kill(number, 0)
                await trio.sleep(0.01)


async def test_workers_serve_as_one_until_they_are_told_to_end():
    async with running() as (process, served):
        found = await peers_of_both(served)
        (one, (peer, session)), (other, (far, elsewhere)) = found.items()
        assert await pid(far, session) == one
        assert await pid(peer, elsewhere) == other
        # A change that one tells reaches a session of the other, whose stream is at the first.
        listening = await served.peer()
        await listening.send(None, elsewhere, "GET")
        assert (await listening.head())[0] == 200
        assert (await peer.exchange(call("change", id=2), session)).status == 200
        assert (await listening.said())["method"] == CHANGED
        # When one of them ends, its sessions go on in another one, and another one begins.
        os.kill(one, signal.SIGKILL)
        while "error" in (answer := await far.exchange(message("ping", id=3), session)).json:
            assert b"has ended" in answer.body  # it may have been on its way there
        assert await pid(far, session) != one
        assert await pid(far, elsewhere) == other
        while len(found) < 3:
            found |= await peers_of_both(served)
        # What runs when the end comes is answered.
        await far.send(call("short", id=4, token="t"), elsewhere)
        assert (await far.head())[0] == 200
        assert (await far.said())["method"] == "notifications/progress"
        process.send_signal(signal.SIGTERM)
        assert (await far.said())["result"]["content"][0]["text"] == "finished"
        assert await process.wait() == 0
        await gone(found)


async def test_whoever_connects_while_they_drain_is_refused_and_does_not_wait_for_the_end_of_that():
    async with running() as (process, served):
        peer = await served.peer()
        session = await peer.open_session()
        port = urlsplit(served.url).port
        await peer.send(call("connect_until_refused", {"port": port}, id=1, token="t"), session)
        assert (await peer.head())[0] == 200
        assert (await peer.said())["method"] == "notifications/progress"
        process.send_signal(signal.SIGTERM)
        assert (await peer.said())["result"]["content"][0]["text"] == "refused"
        assert await process.wait() == 0


async def test_each_worker_has_figures_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("METRICS", f"unix:{tmp_path}/figures")
    async with running() as (_, served):
        found = await peers_of_both(served)
        assert len(found) == 2
        for place in ("figures", "figures.1"):
            stream = await trio.open_unix_socket(str(tmp_path / place))
            async with stream:
                await stream.send_all(b"GET /metrics HTTP/1.0\r\nhost: localhost\r\n\r\n")
                page = b"".join([data async for data in stream])
            assert re.search(rb"\nmcpbus_sessions [1-9]", page)


async def test_workers_of_several_machines_serve_as_one(engines):
    start = partial(running, engines("valkey").url, "several")
    async with start() as (process, here), start() as (_, there):
        found = await peers_of_both(here)
        far = await peers_of_both(there)
        everyone = {**found, **far}
        for peer, _ in everyone.values():
            for one, (_, session) in everyone.items():
                assert await pid(peer, session) == one
        # One that is killed is known to have ended, by all of them, though its lease has not.
        killed, (_, session) = next(iter(found.items()))
        del everyone[killed]
        os.kill(killed, signal.SIGKILL)
        successors = set()
        for peer, _ in everyone.values():
            while "error" in (answer := await peer.exchange(message("ping", id=3), session)).json:
                assert b"has ended" in answer.body  # it may have been on its way there
            successors.add(await pid(peer, session))
        assert len(successors) == 1
        assert successors <= everyone.keys()
        while len(found) < 3:
            found |= await peers_of_both(here)
        # Those of one machine end, and what they have goes on at the other.
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        for peer, _ in far.values():
            for _, session in found.values():
                assert await pid(peer, session) in far


class Client:
    """A client that goes on whatever connections end, if nothing was answered on them."""

    def __init__(self, served, session):
        self.served = served
        self.session = session
        self.heard = []
        self.streams = 0
        self.seen = set()

    async def say(self, number):
        """Have a number said, by whatever worker."""
        while True:
            peer = await self.served.peer()
            try:
                await peer.send(call("say", {"number": number}, id=number), self.session)
                event = await peer.next()
            except trio.BrokenResourceError:
                continue
            if isinstance(event, h11.Response):
                break
        assert event.status_code == 200, event
        reply = json.loads(bytes((await peer.next()).data))
        assert "result" in reply, reply
        self.seen.add(int(reply["result"]["content"][0]["text"]))

    async def listen(self):
        """Hear what is said, and come back when told to."""
        while True:
            peer = await self.served.peer()
            await peer.send(None, self.session, "GET")
            status, _ = await peer.head()
            assert status == 200
            self.streams += 1
            while (said := await peer.said()) is not None:
                if said["method"] == "notifications/said":
                    self.heard.append(said["params"]["number"])


@pytest.mark.parametrize("namespace", [None, "replaced"], ids=["alone", "replicas"])
async def test_workers_are_replaced_and_no_client_loses_anything(namespace, engines):
    redis = [] if namespace is None else [engines("valkey").url, namespace]
    async with running(*redis) as (process, served):
        found = await peers_of_both(served)
        clients = [Client(served, session) for _, session in found.values()]
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.listen)
            process.send_signal(signal.SIGHUP)
            number = 0
            while any(client.seen.intersection(found) or not client.seen for client in clients):
                for client in clients:
                    number += 1
                    client.seen.clear()
                    await client.say(number)
                    await trio.sleep(0.01)
            await gone(found)
            for client in clients:
                number += 1
                await client.say(number)
            while sum(len(client.heard) for client in clients) < number:  # noqa: ASYNC110 - the deadline is the program's
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        for first, client in enumerate(clients, 1):
            assert client.heard == list(range(first, number + 1, 2))
            assert client.streams <= 3  # it was told to come back once for each of them


async def test_workers_end_with_who_keeps_them():
    async with running() as (process, served):
        found = await peers_of_both(served)
        process.kill()
        with trio.fail_after(DEADLINE):
            await gone(found)


@pytest.mark.parametrize("target", ["nowhere.py"])
async def test_workers_that_cannot_begin_end_the_program(target):
    async with program("-m", "mcpbus", "serve", target, "--workers", "2", "--bind", "127.0.0.1:0") as process:
        errors = b"".join([data async for data in process.stderr])
        assert await process.wait() == 2
        assert b"there is no file 'nowhere.py'" in errors
