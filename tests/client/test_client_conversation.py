"""What a client makes of all that a server may say: each thing reaches whom it belongs to, and what belongs to nobody harms nothing."""

import json
import re
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest
import trio
from test_client_ends import walled
from trio.testing import wait_all_tasks_blocked

from mcpbus import Context, Server
from mcpbus.asking import Elicit, InputRequired
from mcpbus.client import client
from mcpbus.client.errors import ClientError, DisconnectedError
from mcpbus.client.input_requests import MOST_QUESTIONS
from mcpbus.client.kept_notifications import KEPT_NOTIFICATIONS
from mcpbus.client.wire import encode_message
from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.jsonrpc import ErrorObject, JsonRpcResponse, Undecodable
from mcpbus.protocol.meta import SUBSCRIPTION_ID
from mcpbus.protocol.revisions import REVISIONS
from mcpbus.testing import open_bus, open_client


def said(to, **members):
    """Have a client hear a message."""
    to.receive(json.dumps({"jsonrpc": "2.0", **members}))


def answers(wall):
    """The answers to what a server asked: what it was told by id, be it a result or an error."""
    found = {}
    for message in wall.heard:
        if isinstance(message, JsonRpcResponse):
            error = message.error and (
                message.error.code,
                None if message.error.data is msgspec.UNSET else msgspec.json.decode(message.error.data),
            )
            found[message.id] = error or msgspec.json.decode(message.result)
    return found


async def refuse(_method, _params):
    raise ProtocolError(-32099, "no", {"why": "never"})


async def echo(method, params):
    return {"method": method, **params}


@pytest.mark.parametrize(
    ("on_input_request", "question", "told"),
    [
        (None, {"method": "ping"}, {}),
        (refuse, {"method": "ping"}, {}),
        (None, {"method": "roots/list"}, (-32601, None)),
        (refuse, {"method": "roots/list"}, (-32099, {"why": "never"})),
        (echo, {"method": "roots/list", "params": {"a": 1}}, {"method": "roots/list", "a": 1}),
    ],
)
async def test_a_question_has_an_answer(on_input_request, question, told, autojump_clock):
    async with walled(on_input_request=on_input_request) as wall:
        said(wall.client, id="q", **question)
        await wait_all_tasks_blocked()
    assert answers(wall) == {"q": told}


@pytest.mark.parametrize(
    ("data", "written"), [(msgspec.UNSET, {}), (msgspec.Raw(b'{"why":"never"}'), {"data": {"why": "never"}})]
)
def test_a_refusal_is_written_with_the_data_that_it_has(data, written):
    line = encode_message(JsonRpcResponse("q", error=ErrorObject(-32099, "no", data)))
    error = {"code": -32099, "message": "no", **written}
    assert msgspec.json.decode(line) == {"jsonrpc": "2.0", "id": "q", "error": error}


ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
URL = {"mode": "url"}
TOOLS = {"tools": []}
CHOICE = {"toolChoice": {"mode": "none"}}


@pytest.mark.parametrize(
    ("rule", "method", "params", "declared", "code"),
    [
        ("Z-1", ROOTS, {}, {}, -32601),
        ("Z-1", ROOTS, {}, {"roots": True}, -32601),
        ("Z-1", ROOTS, {}, {"roots": {}}, None),
        ("E-1", ELICIT, {}, {}, -32601),
        ("E-2", ELICIT, {}, {"elicitation": {}}, None),
        ("E-2", ELICIT, {"mode": "form"}, {"elicitation": {}}, None),
        ("E-3", ELICIT, URL, {"elicitation": {}}, -32602),
        ("E-3", ELICIT, URL, {"elicitation": {"form": {}}}, -32602),
        ("E-3", ELICIT, URL, {"elicitation": {"url": {}}}, None),
        ("E-3", ELICIT, {}, {"elicitation": {"url": {}}}, -32602),
        ("E-3", ELICIT, {"mode": ["form"]}, {"elicitation": {}}, -32602),
        ("Y-1", SAMPLE, {}, {}, -32601),
        ("Y-1", SAMPLE, {}, {"sampling": {}}, None),
        ("Y-2", SAMPLE, TOOLS, {"sampling": {}}, -32602),
        ("Y-2", SAMPLE, CHOICE, {"sampling": {"context": {}}}, -32602),
        ("Y-2", SAMPLE, {**TOOLS, **CHOICE}, {"sampling": {"tools": {}}}, None),
        ("-", "acme/ask", {}, {}, None),
    ],
)
async def test_a_client_answers_no_question_that_it_did_not_declare(
    *, rule, method, params, declared, code, autojump_clock
):
    asked = []

    async def on_input_request(method, _params):
        asked.append(method)
        return {}

    async with walled(on_input_request=on_input_request, capabilities=declared) as wall:
        said(wall.client, id="q", method=method, params=params)
        await wait_all_tasks_blocked()
    told = {} if code is None else (code, None)
    assert (answers(wall), asked) == ({"q": told}, [method] if code is None else []), rule


async def ask_among(others, autojump_clock):
    """Have a server ask in a request that has answers of its own, while so many others wait; return who is asked."""
    asked = []

    async def generally(_method, _params):
        asked.append("generally")
        return {"roots": []}

    async def specially(_method, _params):
        asked.append("specially")
        return {"roots": []}

    async with walled(on_input_request=generally) as wall, trio.open_nursery() as nursery:
        for _ in range(others):
            nursery.start_soon(wall.client.call_tool, "other")
        nursery.start_soon(partial(wall.client.call_tool, "asking", on_input_request=specially))
        await wait_all_tasks_blocked()
        said(wall.client, id="q", method="roots/list")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return asked


async def test_what_is_asked_while_one_request_waits_is_asked_in_that(autojump_clock):
    assert await ask_among(0, autojump_clock) == ["specially"]


async def test_what_is_asked_while_several_requests_wait_is_asked_in_none_of_them(autojump_clock):
    assert await ask_among(1, autojump_clock) == ["generally"]


async def test_a_question_that_cannot_be_read_is_refused_and_the_client_goes_on(autojump_clock):
    async with walled(on_input_request=echo) as wall:
        wall.client.receive(
            '{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{"beyond any float":1e999}}'
        )
        said(wall.client, id=2, method="roots/list")
        await wait_all_tasks_blocked()
    assert answers(wall) == {1: (-32602, None), 2: {"method": "roots/list"}}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"action": "accept", "content": {"name": "\ud83d"}}, "half of a surrogate pair"),
        ({"roots": [object()]}, "Encoding objects of type object is unsupported - at `answer.roots[0]`"),
    ],
)
async def test_an_answer_that_cannot_be_sent_is_told_to_whoever_gave_it_and_the_client_goes_on(
    answer, why, caplog, autojump_clock
):
    async def on_input_request(_method, params):
        return {"action": "decline"} if params else answer

    async with walled(on_input_request=on_input_request) as wall:
        said(wall.client, id=1, method="roots/list")
        said(wall.client, id=2, method="roots/list", params={"again": True})
        await wait_all_tasks_blocked()
    assert answers(wall) == {1: (-32603, None), 2: {"action": "decline"}}
    (line,) = caplog.messages
    assert line.startswith("what on_input_request answers to 'roots/list' cannot be sent: ")
    assert why in line


async def faulty(_method, _params):
    raise LookupError("nobody is at home")


async def test_what_on_question_raises_is_raised_where_the_only_request_is_waited_for(autojump_clock):
    async def call():
        with pytest.raises(LookupError, match="nobody is at home"):
            await wall.client.call_tool("ask")

    async with walled(on_input_request=faulty) as wall:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await wait_all_tasks_blocked()
            said(wall.client, id="q", method="roots/list")
        assert answers(wall) == {"q": (-32603, None)}
        assert wall.heard[-1].method == "notifications/cancelled"


async def test_what_on_question_raises_is_raised_where_the_connection_says_that_it_was_asked(autojump_clock):
    caught = []

    async def call(name):
        try:
            caught.append((name, await wall.client.call_tool(name)))
        except LookupError as error:
            caught.append((name, error))

    async with walled(on_input_request=faulty) as wall, trio.open_nursery() as nursery:
        for name in ("a", "b"):
            nursery.start_soon(call, name)
            await wait_all_tasks_blocked()
        question = json.dumps({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
        wall.client.receive(question, wall.client._pending[2])
        await wait_all_tasks_blocked()
        wall.client.answered(1, b"{}")
    assert [(name, type(what)) for name, what in caught] == [("b", LookupError), ("a", dict)]


@pytest.mark.parametrize("waiting", [0, 2])
async def test_what_on_question_raises_is_logged_where_nobody_knows_for_which_request(
    waiting, caplog, autojump_clock
):
    async with walled(on_input_request=faulty) as wall, trio.open_nursery() as nursery:
        for _ in range(waiting):
            nursery.start_soon(wall.client.call_tool, "ask")
        await wait_all_tasks_blocked()
        said(wall.client, id="q", method="roots/list")
        await wait_all_tasks_blocked()
        for number in range(waiting):
            wall.client.answered(number + 1, b"{}")
    assert answers(wall) == {"q": (-32603, None)}
    (record,) = caplog.records
    assert record.getMessage() == "on_input_request failed, when asked 'roots/list'"
    assert str(record.exc_info[1]) == "nobody is at home"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_client_whose_on_question_fails_goes_on(revision):
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.elicit("Your name?", str))

    able = {"elicitation": {}}
    async with open_client(server, revision=revision, capabilities=able, on_input_request=faulty) as client:
        for _ in range(2):
            with pytest.raises(LookupError, match="nobody is at home"):
                await client.call_tool("ask")
        assert await client.list_tools()


@asynccontextmanager
async def asking_in_vain(why):
    """Ask for a list, as the first request; it is to fail within a second, and to say why."""

    async def ask():
        with pytest.raises(ClientError, match=why):
            await wall.client.request("tools/list")

    async with walled() as wall:
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await wait_all_tasks_blocked()
                yield wall


# A million levels are more than any interpreter reads.
@pytest.mark.parametrize("data", ["[" * 1_000_000 + "]" * 1_000_000, "1e999"], ids=["nested", "infinite"])
async def test_an_error_whose_data_cannot_be_read_is_told_to_who_asked(data, autojump_clock):
    """On a channel that others share it counted as noise, and its caller waited for ever."""

    async with asking_in_vain("cannot be read") as wall:
        wall.client.receive(
            f'{{"jsonrpc":"2.0","id":1,"error":{{"code":-32000,"message":"no","data":{data}}}}}'
        )


NO_ERRORS = {
    "a text": {"error": "no"},
    "another code": {"error": {"code": "E1", "message": "no"}},
    "null beside a result": {"result": {}, "error": None},
    "beside a result": {"result": {}, "error": {"code": 1, "message": "no"}},
}


@pytest.mark.parametrize("answer", NO_ERRORS.values(), ids=NO_ERRORS)
async def test_an_answer_with_an_error_that_is_none_is_told_to_who_asked(answer, autojump_clock):
    async with asking_in_vain(r"the server's answer cannot be read: .* - at `\$") as wall:
        for other in ({"id": 2}, {"id": "1"}):
            said(wall.client, **answer, **other)
        with pytest.raises(Undecodable):
            said(wall.client, **answer, id=1, method="roots/list")
        said(wall.client, id=1, **answer)


async def test_what_cannot_be_read_in_a_batch_keeps_nothing_else_of_it_from_whom_it_is_for(autojump_clock):
    async with walled(revision=REVISIONS["2025-03-26"]) as wall:
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wall.client.request, "tools/list")
                await wait_all_tasks_blocked()
                with pytest.raises(msgspec.DecodeError):
                    wall.client.receive(
                        '[{"jsonrpc":"2.0","method":"notifications/odd","params":{"x":1e999}},'
                        '{"jsonrpc":"2.0","id":1,"result":{}}]'
                    )


async def test_a_question_is_asked_once_as_long_as_it_is_not_answered(autojump_clock):
    asked, go_on = [], trio.Event()

    async def on_input_request(method, _params):
        asked.append(method)
        await go_on.wait()
        return {}

    async with walled(on_input_request=on_input_request) as wall:
        for _ in range(2):
            said(wall.client, id=1, method="roots/list")
            await wait_all_tasks_blocked()
        assert asked == ["roots/list"]
        go_on.set()
        await wait_all_tasks_blocked()
        said(wall.client, id=1, method="roots/list")
        await wait_all_tasks_blocked()
    assert len(asked) == 2


async def test_a_question_that_is_withdrawn_is_not_answered(autojump_clock):
    cancelled = []

    async def on_input_request(method, _params):
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append(method)

    async with walled(on_input_request=on_input_request) as wall:
        said(wall.client, id=1, method="roots/list")
        await wait_all_tasks_blocked()
        wall.say("notifications/cancelled", requestId="1")
        await wait_all_tasks_blocked()
        assert cancelled == []
        wall.say("notifications/cancelled", requestId=1)
        await wait_all_tasks_blocked()
        assert (cancelled, answers(wall)) == (["roots/list"], {})
        assert list(wall.client.notifications) == [("notifications/cancelled", {"requestId": "1"})]


async def test_what_is_told_of_a_listen_that_was_left_is_nobodys(autojump_clock):
    async with walled(revision=REVISIONS["2026-07-28"]) as wall:
        stamped = {"_meta": {SUBSCRIPTION_ID: 1}}

        async def listen():
            async with wall.client.listen(tools=True):
                pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await wait_all_tasks_blocked()
            wall.say("notifications/subscriptions/acknowledged", **stamped, notifications={})
        wall.say("notifications/tools/list_changed", **stamped)
        assert list(wall.client.notifications) == [("notifications/tools/list_changed", stamped)]


async def test_more_questions_than_anybody_can_answer_are_refused(autojump_clock):
    asked = []

    async def on_input_request(_method, params):
        asked.append(params["number"])
        await trio.sleep_forever()

    async with walled(on_input_request=on_input_request) as wall:
        for number in range(MOST_QUESTIONS + 1):
            said(wall.client, id=number, method="roots/list", params={"number": number})
        await wait_all_tasks_blocked()
    assert answers(wall) == {MOST_QUESTIONS: (-32603, None)}
    assert sorted(asked) == list(range(MOST_QUESTIONS))


@pytest.mark.parametrize(
    "members",
    [
        {"id": 99, "result": {}},
        {"id": 99, "error": {"code": 1, "message": "no"}},
        {"error": {"code": 1, "message": "no"}},
        {"id": "1", "result": {}},
        {"method": "notifications/progress", "params": {"progressToken": 99, "progress": 1}},
        {"method": "notifications/progress", "params": {"progressToken": [], "progress": 1}},
        {"method": "notifications/progress"},
        {"method": "notifications/cancelled", "params": {"requestId": {}}},
        {"method": "notifications/other", "params": {"_meta": 5}},
    ],
    ids=str,
)
async def test_what_belongs_to_nobody_harms_nothing(members, autojump_clock):
    async with walled() as wall, trio.open_nursery() as nursery:
        results = []

        async def call():
            results.append(await wall.client.request("tools/list", on_notification=results.append))

        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        said(wall.client, **members)
        await wait_all_tasks_blocked()
        assert results == []
        said(wall.client, id=1, result={"a": 1})
    assert results == [{"a": 1}]


@pytest.mark.parametrize(("listening", "reached"), [(0, []), (1, [1]), (2, [])])
async def test_a_log_line_is_of_the_one_request_that_listens(listening, reached, autojump_clock):
    heard = []
    async with walled() as wall, trio.open_nursery() as nursery:

        async def call(number):
            await wall.client.request(
                "tools/list", on_notification=lambda *_: heard.append(number) if number else None
            )

        for number in range(listening):
            nursery.start_soon(call, number + 1)
        nursery.start_soon(wall.client.request, "tools/list")
        await wait_all_tasks_blocked()
        wall.say("notifications/message", level="info", data="a")
        wall.say("notifications/other")
        assert heard == reached
        left = ["notifications/other"] if reached else ["notifications/message", "notifications/other"]
        assert [method for method, _ in wall.client.notifications] == left
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def calling_over_http(caught, **options):
    """A client over HTTP with one call, whose result is added to a list."""

    async def call():
        caught.append(await wall.client.request("tools/call", {"name": "a"}, **options))

    async with walled(scoped=True) as wall, trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        yield wall
        wall.client.answered(1, b"{}")


@pytest.mark.parametrize("method", ["notifications/message", "notifications/acme"])
async def test_over_http_a_message_outside_of_requests_is_never_of_the_only_request(method, autojump_clock):
    heard, results = [], []
    async with calling_over_http(results, on_notification=lambda *said: heard.append(said)) as wall:
        wall.say(method, level="info", data="a")
        assert heard == []
        assert [each for each, _ in wall.client.notifications] == [method]
    assert results == [{}]


@pytest.mark.parametrize("on_input_request", [echo, faulty])
async def test_over_http_a_question_outside_of_requests_is_answered_and_ends_no_request(
    on_input_request, autojump_clock, caplog
):
    """Some servers ask there what a request is for, and that alone can answer."""
    results = []
    async with calling_over_http(results, on_input_request=on_input_request) as wall:
        said(wall.client, id="q", method="roots/list")
        await wait_all_tasks_blocked()
        assert answers(wall) == {
            "q": {"method": "roots/list"} if on_input_request is echo else (-32603, None)
        }
        assert results == []
    assert results == [{}]
    assert ["on_input_request failed" in caplog.text] == [on_input_request is faulty]


async def test_over_http_an_answer_that_is_not_accepted_ends_no_request_if_the_question_was_outside(
    autojump_clock, caplog
):
    results = []
    async with calling_over_http(results) as wall:
        wall.client.unanswered(None, "the server answered 500")
        assert wall.client.connected
    assert results == [{}]
    assert (
        "did not accept the answer to a question outside of requests: the server answered 500" in caplog.text
    )


async def test_what_is_told_of_a_request_that_was_answered_is_nobodys(autojump_clock):
    heard = []
    async with walled() as wall, trio.open_nursery() as nursery:

        async def call():
            await wall.client.request("tools/list", on_notification=lambda *_: heard.append(1))

        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        said(wall.client, id=1, result={})
        wall.say("notifications/progress", progressToken=1, progress=1)
        await wait_all_tasks_blocked()
        wall.say("notifications/progress", progressToken=1, progress=2)
    assert heard == []
    assert [params["progress"] for _, params in wall.client.notifications] == [2]


async def test_of_notifications_that_nobody_takes_the_last_are_kept(autojump_clock):
    async with walled() as wall:
        for number in range(KEPT_NOTIFICATIONS + 1):
            wall.say("notifications/other", number=number)
        assert len(wall.client.notifications) == KEPT_NOTIFICATIONS
        assert (await wall.client.next_notification())[1] == {"number": 1}


async def test_an_array_is_what_it_holds_where_the_revision_has_batches():
    array = b'[{"jsonrpc": "2.0", "method": "a"}, 5, {"jsonrpc": "2.0", "method": "b"}]'
    async with walled(revision=REVISIONS["2025-03-26"]) as wall:
        wall.client.receive(array)
        assert [method for method, _ in wall.client.notifications] == ["a", "b"]
        with pytest.raises(Undecodable):
            wall.client.receive(b"5")
    async with walled(revision=REVISIONS["2025-06-18"]) as wall:
        with pytest.raises(Undecodable):
            wall.client.receive(array)


async def test_a_list_without_an_end_is_given_up(monkeypatch, autojump_clock):
    monkeypatch.setattr(client, "_MOST_PAGES", 3)
    async with walled() as wall:

        def answer(message, pending):
            wall.heard.append(message)
            pending.settle(b'{"tools": [], "nextCursor": "on"}')

        wall.client._put = answer
        with pytest.raises(ClientError, match="tools/list has more than 3 pages"):
            await wall.client.list_tools()
    assert len(wall.heard) == 3


async def test_a_list_that_is_longer_than_any_message_is_given_up(monkeypatch, autojump_clock):
    monkeypatch.setattr(client, "MOST_LIST_BYTES", 1_000)
    page = {"tools": [{"name": "x" * 300}], "nextCursor": "on"}
    async with walled() as wall:

        def answer(message, pending):
            wall.heard.append(message)
            pending.settle(json.dumps(page).encode())

        wall.client._put = answer
        with pytest.raises(ClientError, match="or than 1,000 bytes"):
            await wall.client.list_tools()
    assert len(wall.heard) == 4


@pytest.mark.parametrize(
    ("revision", "result", "fails"),
    [
        ("2026-07-28", {}, False),
        ("2026-07-28", {"resultType": "complete"}, False),
        ("2026-07-28", {"resultType": "partial"}, True),
        ("2025-11-25", {"resultType": "partial"}, False),
    ],
)
async def test_a_result_of_an_unknown_type_is_none(revision, result, fails, autojump_clock):  # M-17
    outcomes = []

    async def ask(wall):
        try:
            outcomes.append(await wall.client.request("tools/list"))
        except ClientError as error:
            outcomes.append(error)

    async with walled(revision=REVISIONS[revision]) as wall, trio.open_nursery() as nursery:
        nursery.start_soon(ask, wall)
        await wait_all_tasks_blocked()
        said(wall.client, id=1, result=result)
    assert [isinstance(outcome, ClientError) for outcome in outcomes] == [fails]


async def test_what_the_client_itself_makes_an_error_is_none_of_the_servers(autojump_clock):  # J-21
    server = Server("s")

    @server.tool
    async def endless():
        return InputRequired({"k": Elicit("?", str)})

    async def decline(_method, _params):
        return {"action": "decline"}

    async with open_bus(server) as bus:
        declared = {"elicitation": {"form": {}}}
        async with bus.connect(capabilities=declared, on_input_request=decline) as client:
            with pytest.raises(ClientError, match="asked 32 times"):
                await client.call_tool("endless")
        with pytest.raises(DisconnectedError):
            await client.call_tool("endless")


HALF = "a\ud83d"
LONG = "x" * 1000 + "\ud83d"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("say", "told"),
    [
        (
            lambda client: client.call_tool("t", {"to": [HALF]}),
            r"'tools/call' cannot be sent: 'a\ud83d' has half of a surrogate pair, which is no Unicode; write the whole character - at `params.arguments.to[0]`",
        ),
        (lambda client: client.call_tool("t", {HALF: 1}), r"'a\ud83d' has half"),
        (lambda client: client.read_resource(HALF), "at `params.uri`"),
        (lambda client: client.notify("notifications/x", {"y": HALF}), "at `params.y`"),
        (lambda client: client.request("m" + HALF), r"'ma\ud83d' cannot be sent: 'ma\ud83d' has half"),
        (lambda client: client.call_tool("t", {"to": LONG}), "sent: '" + "x" * 40 + r"\ud83d' has half"),
        (lambda client: listened(client, HALF), r"cannot be sent: 'a\ud83d' has half"),
        (lambda client: client.call_tool("t", {"to": [object()]}), "at `params.arguments.to[0]`"),
    ],
)
async def test_what_cannot_be_sent_is_told_with_its_place_and_the_client_goes_on(say, told, revision):
    async with open_client(Server("s"), revision=revision) as client:
        with pytest.raises((TypeError, ValueError), match=re.escape(told)) as caught:
            await say(client)
        assert not isinstance(caught.value, UnicodeError)
        assert await client.list_tools() == []


async def listened(client, uri):
    async with client.listen(resources=True, uris=[uri]):
        pass
