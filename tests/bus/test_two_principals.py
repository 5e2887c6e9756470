"""Whatever one principal has, another one finds room."""

import trio
from staging import HELLO, staged

INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}


async def authenticate(head):
    await trio.lowlevel.checkpoint()
    return head.headers.get(b"authorization")


def as_(who):
    return {"authorization": who}


def held(stage):
    return {who: stage.bus.shares.held_by(who) for who in ("alice", "bob")}


async def test_one_principals_sessions_make_no_others_go(autojump_clock):
    async with staged(limits={"max_sessions": 20}, authenticate=authenticate) as stage:
        alice = await stage.probe.initialize(headers=as_("alice"))
        for _ in range(60):
            await stage.probe.initialize(headers=as_("bob"))
        assert (await alice.request("ping").ended()).status == 200
        assert held(stage) == {"alice": 1, "bob": 17}
        for _ in range(60):
            await stage.probe.initialize(headers=as_("alice"))
        assert held(stage) == {"alice": 9, "bob": 9}
        await stage.quiet()
        assert len(stage.bus.sessions) == 18
        assert stage.bus.statistics().limits_reached["max_sessions"] == 43 + 60


async def test_one_principals_open_streams_leave_a_tenth_to_others(autojump_clock, caplog):
    async with staged(limits={"max_sessions": 20}, authenticate=authenticate) as stage:
        for _ in range(18):
            await (await stage.probe.initialize(headers=as_("bob"))).get().begun()
        refused = await stage.probe.post(INITIALIZE, as_("bob")).ended()
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert refused.messages[0]["error"]["code"] == -32603
        assert [record.getMessage() for record in caplog.records] == [
            "max_sessions was reached by bob: a new session was refused"
        ]
        await stage.probe.initialize(headers=as_("alice"))
        await stage.probe.initialize(headers=as_("carol"))


async def test_owners_vanish_with_their_last_session(autojump_clock):
    async with staged(authenticate=authenticate) as stage:
        for who in "abc":
            session = await stage.probe.initialize(headers=as_(who))
            await session.delete().ended()
        await stage.quiet()
        assert (len(stage.bus.shares), stage.bus.shares.owners) == (0, 0)
