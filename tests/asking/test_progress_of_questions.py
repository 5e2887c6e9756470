"""A legacy client says how far it is with a question, and whoever asked is told."""

import pytest
import trio
from interview import ROOTS, SAMPLED, interviewed, text

from mcpbus.asking import ListRoots
from mcpbus.core.input_requests import InputRound
from mcpbus.protocol.messages import ProgressParams
from mcpbus.protocol.revisions import LATEST_LEGACY

PROGRESS = "notifications/progress"


async def test_what_the_client_reports_reaches_whoever_asked_and_nobody_else(autojump_clock):
    told, heard = [], []

    async def ask(ctx):
        async def sample(number):
            return await ctx.sample(number, on_progress=lambda *said: told.append((number, *said)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sample, "1")
            nursery.start_soon(sample, "2")
        return (await ctx.list_roots())[0].uri

    async with interviewed(ask) as it:

        @it.server.on_notification(PROGRESS)
        async def hear(notification):
            heard.append(notification.params["progressToken"])

        session, stranger = await it.session(), await it.session()
        call = session.request("tools/call", it.call)
        first, second = await call.message(), await call.message()
        for question in (first, second):
            assert question["params"]["_meta"] == {"progressToken": question["id"]}
        token, asked = second["id"], second["params"]["messages"][0]["content"]["text"]
        for said in ({"progress": 0.5}, {"progress": 2, "total": 4.5, "message": "half"}):
            assert (await session.notify(PROGRESS, {"progressToken": token, **said}).ended()).status == 202
            await it.quiet()
        assert told == [(asked, 0.5, None, None), (asked, 2.0, 4.5, "half")]
        # None of these is a report on what was asked of this client.
        await session.notify(PROGRESS, {"progressToken": token, "progress": "much"}).ended()
        await session.notify(PROGRESS, {"progressToken": "unknown", "progress": 1}).ended()
        await stranger.notify(PROGRESS, {"progressToken": token, "progress": 3}).ended()
        for question in (first, second):
            await session.answer(question["id"], SAMPLED).ended()
        await session.notify(PROGRESS, {"progressToken": token, "progress": 4}).ended()
        third = await call.message()
        assert "_meta" not in third["params"], "nobody wants to know"
        await session.notify(PROGRESS, {"progressToken": third["id"], "progress": 5}).ended()
        await session.answer(third["id"], ROOTS).ended()
        assert text((await call.reply())["result"]) == "file:///x"
        assert len(told) == 2
        assert heard == ["unknown", token, token]
        await it.assert_nothing_is_left()


async def test_a_question_without_params_of_its_own_has_the_token_alone(autojump_clock):
    told = []

    async def ask(ctx):
        return (await ctx.list_roots(on_progress=lambda *said: told.append(said)))[0].uri

    async with interviewed(ask) as it:
        session = await it.session()
        call = session.request("tools/call", it.call)
        question = await call.message()
        assert question["params"] == {"_meta": {"progressToken": question["id"]}}
        await session.notify(PROGRESS, {"progressToken": question["id"], "progress": 1}).ended()
        await session.answer(question["id"], ROOTS).ended()
        await call.reply()
        assert told == [(1.0, None, None)]


@pytest.mark.parametrize("ask", ["elicit", "elicit_url"])
async def test_a_form_and_a_page_have_it_too(ask, autojump_clock):
    told = []

    async def script(ctx):
        schema_or_url = str if ask == "elicit" else "https://a.example"
        return str(await getattr(ctx, ask)("?", schema_or_url, on_progress=lambda *said: told.append(said)))

    async with interviewed(script) as it:
        session = await it.session()
        call = session.request("tools/call", it.call)
        question = await call.message()
        await session.notify(PROGRESS, {"progressToken": question["id"], "progress": 1}).ended()
        await session.answer(question["id"], {"action": "decline"}).ended()
        assert text((await call.reply())["result"]) == "DeclinedElicitation()"
        assert told == [(1.0, None, None)]


async def test_what_on_progress_raises_is_raised_where_it_was_asked_and_the_question_withdrawn(
    autojump_clock,
):
    def fail(*_):
        raise LookupError("no such bar")

    async def ask(ctx):
        with pytest.raises(LookupError, match="no such bar"):
            await ctx.list_roots(on_progress=fail)
        return "told"

    async with interviewed(ask) as it:
        session = await it.session()
        call = session.request("tools/call", it.call)
        question = await call.message()
        await session.notify(PROGRESS, {"progressToken": question["id"], "progress": 1}).ended()
        assert text((await call.reply())["result"]) == "told"
        assert [m["method"] for m in call.messages[1:-1]] == ["notifications/cancelled"]
        await it.assert_nothing_is_left()


async def test_in_the_newest_revision_nothing_is_asked_to_be_reported(autojump_clock):
    async def ask(ctx):
        return (await ctx.list_roots(on_progress=print))[0].uri

    async with interviewed(ask) as it:
        asked = (await it.ask().reply())["result"]
        assert asked["inputRequests"]["roots"]["params"] == {}
        assert text(await it.rounds({"roots": ROOTS})) == "file:///x"


async def test_of_many_reports_the_newest_is_told_and_the_last_before_the_answer(autojump_clock):
    told = []
    ask = InputRound({"a": ListRoots()}, LATEST_LEGACY, lambda *said: told.append(said[0]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask.wait)
        await trio.testing.wait_all_tasks_blocked()
        for progress in range(100):
            ask.report(ProgressParams(1, progress))
        await trio.testing.wait_all_tasks_blocked()
        assert told == [99]
        ask.report(ProgressParams(1, 100))
        ask.answer("a", ROOTS)
    assert told == [99, 100]
