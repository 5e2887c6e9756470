"""The state that travels: sealed, bound to its request, and good for one round."""

import base64
import itertools

import attrs
import hypothesis
import msgspec
import pytest
import trio
from hypothesis import strategies as st
from interview import EVERYTHING, MODERN, accept, interviewed, retry, text

from mcpbus import ProtocolError, UnauthorizedError
from mcpbus.asking import Elicit, InputRequired
from mcpbus.core.limit_monitor import LimitMonitor
from mcpbus.core.suspended_calls import SuspendedCall, SuspendedCalls
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.request_state import Binding, StateSealer
from mcpbus.testing import wait_until_idle

OLD, NEW, OTHER = "o" * 32, "n" * 32, "x" * 32


def request(method="tools/call", **params):
    return JsonRpcRequest(
        1, method, msgspec.Raw(msgspec.json.encode({"name": "t", "arguments": {"a": 1}, **params}))
    )


BOUND = Binding.of(request(), "ann")


def refused(sealer, state, binding=BOUND):
    with pytest.raises(ProtocolError) as caught:
        sealer.open(state, binding)
    assert caught.value.code == -32602
    return caught.value.message


def test_what_was_sealed_is_opened():
    sealer = StateSealer([NEW])
    name, state = sealer.seal(BOUND, "call", {"k": b'{"x":1}'}, 60, b'{"author":1}')
    opened = sealer.open(state, BOUND)
    assert (opened.call, opened.round, opened.answers, opened.author) == (
        "call",
        name,
        {"k": b'{"x":1}'},
        b'{"author":1}',
    )


def spelled_otherwise():
    """States each in a spelling that nobody has sealed, though it is Base64 of the same bytes."""
    sealer = StateSealer([NEW])
    states = [sealer.seal(BOUND, "call", None, 60, b"*" * size)[1] for size in range(3)]
    for state in states:
        if state.endswith("="):
            last = state.rstrip("=")[-1]
            yield sealer, state, state.replace(last + "=", chr(ord(last) + 1) + "=")
    while "-" not in (state := sealer.seal(BOUND, "call", None, 60)[1]):
        pass
    yield sealer, state, state.replace("-", "+")


def test_a_state_is_brought_back_as_it_was_to_the_letter():
    spellings = list(spelled_otherwise())
    assert len(spellings) == 3
    for sealer, state, other in spellings:
        assert base64.b64decode(other, altchars=b"-_") == base64.urlsafe_b64decode(state)
        refused(sealer, other)
        assert sealer.open(state, BOUND).call == "call"


def test_a_state_shows_nothing_and_is_never_the_same():
    sealer = StateSealer([NEW])
    states = {sealer.seal(BOUND, "call", {"k": b"secret"}, 60)[1] for _ in range(100)}
    assert len(states) == 100
    assert not any(b"secret" in base64.urlsafe_b64decode(state) for state in states)


@pytest.mark.parametrize(
    ("made", "used", "same"),
    [
        (request(), request(), True),
        (request(), request(_meta={"progressToken": 1}), True),
        (request(), request(inputResponses={"k": 1}, requestState="x"), True),
        (request(arguments={"a": 1, "b": 2}), request(arguments={"b": 2, "a": 1}), True),
        (request(), request(arguments={"a": 2}), False),
        (request(), request(arguments={"a": "1"}), False),
        (request(), request(arguments={}), False),
        (request(), request(name="other"), False),
        (request(), request("prompts/get"), False),
        (request(), request(extra=1), False),
    ],
)
def test_a_state_is_bound_to_the_method_and_the_params_that_do_not_change(made, used, same):  # V-8
    sealer = StateSealer([NEW])
    state = sealer.seal(Binding.of(made, None), "c", {}, 60)[1]
    if same:
        assert sealer.open(state, Binding.of(used, None)).call == "c"
    else:
        refused(sealer, state, Binding.of(used, None))


PRINCIPALS = [None, "None", "ann", "bob", 1, "1", ("ann",), "('ann',)", ""]


@pytest.mark.parametrize("maker", PRINCIPALS, ids=repr)
@pytest.mark.parametrize("user", PRINCIPALS, ids=repr)
def test_a_state_is_bound_to_the_principal(maker, user):  # V-8
    sealer = StateSealer([NEW])
    state = sealer.seal(Binding.of(request(), maker), "c", {}, 60)[1]
    if maker == user:
        assert sealer.open(state, Binding.of(request(), user)).call == "c"
    else:
        refused(sealer, state, Binding.of(request(), user))


def test_a_state_is_good_until_its_time_is_over_and_no_longer():  # V-8
    now = 1000.0
    sealer = StateSealer([NEW], clock=lambda: now)
    state = sealer.seal(BOUND, "c", {}, 60)[1]
    now = 1060.0
    assert sealer.open(state, BOUND).expires == 1060.0
    now = 1060.1
    refused(sealer, state)


def test_the_first_key_seals_and_each_one_opens():
    before, during, after = StateSealer([OLD]), StateSealer([NEW, OLD]), StateSealer([NEW])
    old, new = (sealer.seal(BOUND, "c", {}, 60)[1] for sealer in (before, during))
    assert during.open(old, BOUND).call == during.open(new, BOUND).call == "c"
    assert after.open(new, BOUND).call == "c"
    refused(after, old)
    refused(before, new)
    refused(StateSealer([OTHER]), new)


def test_without_keys_each_process_has_its_own():
    refused(StateSealer(), StateSealer().seal(BOUND, "c", {}, 60)[1])


@pytest.mark.parametrize("keys", [["short"], [b"x" * 15], [NEW, "short"]])
def test_a_short_key_is_refused(keys):
    with pytest.raises(ValueError, match="at least 16 bytes"):
        StateSealer(keys)


def test_bytes_and_text_are_the_same_key():
    assert StateSealer([NEW.encode()]).open(StateSealer([NEW]).seal(BOUND, "c", {}, 60)[1], BOUND).call == "c"


@pytest.mark.parametrize(
    "state", [None, 5, True, [], {}, "", "x", "=", "ä", "AAAA", "A" * 64, "A" * 3_000_000, "\ud800"]
)
def test_what_is_no_state_is_refused_alike(state):
    sealer = StateSealer([NEW])
    genuine = sealer.seal(BOUND, "c", {}, 60)[1]
    assert refused(sealer, state) == refused(sealer, genuine, Binding.of(request(), "bob"))


@hypothesis.given(st.data())
def test_any_change_of_a_state_is_noticed(data):  # V-7
    sealer = StateSealer([NEW])
    state = bytearray(base64.urlsafe_b64decode(sealer.seal(BOUND, "call", {"k": b"1"}, 60)[1]))
    place = data.draw(st.integers(0, len(state) - 1))
    state[place] ^= data.draw(st.integers(1, 255))
    refused(sealer, base64.urlsafe_b64encode(state).decode())


def test_a_large_answer_does_not_make_a_state_that_cannot_be_brought_back():
    sealer = StateSealer([NEW])
    answer = b"x" * (2 * 1024 * 1024)
    assert sealer.open(sealer.seal(BOUND, "c", {"k": answer}, 60)[1], BOUND).answers == {"k": answer}


# -- rounds --------------------------------------------------------------------------------------


def park(parked_calls, sealer, call, gone, owner=None):
    name, state = sealer.seal(BOUND, call, {}, 60)
    parked_calls.park(call, SuspendedCall(name, None, None, lambda: gone.append(call), owner))
    return sealer.open(state, BOUND)


def test_the_oldest_call_makes_room():  # V-12
    sealer, gone = StateSealer(), []
    parked_calls = SuspendedCalls(sealer, 2, 60)
    states = [park(parked_calls, sealer, call, gone) for call in ("a", "b", "c")]
    assert (gone, len(parked_calls)) == (["a"], 2)
    assert parked_calls.claim(states[0]) is None
    assert parked_calls.claim(states[2]) is not None
    parked_calls.evict_all()
    assert (gone, len(parked_calls)) == (["a", "b"], 0)


async def test_calls_make_room_for_those_of_owners_that_have_fewer(autojump_clock):
    reached, sealer, gone = LimitMonitor(), StateSealer(), []
    parked_calls = SuspendedCalls(sealer, 4, 60, reached)
    state = park(parked_calls, sealer, "a1", gone, "alice")
    for number in range(1, 6):
        park(parked_calls, sealer, f"b{number}", gone, "bob")
    assert (gone, len(parked_calls)) == (["b1", "b2"], 4)
    park(parked_calls, sealer, "a2", gone, "alice")
    assert (gone[2:], parked_calls.claim(state) is not None) == (["b3"], True)
    park(parked_calls, sealer, "c1", gone, "carol")
    park(parked_calls, sealer, "d1", gone, "dora")
    assert (gone[3:], len(parked_calls)) == (["b4"], 4)
    # All have one now: who comes last would take somebody's only one.
    park(parked_calls, sealer, "e1", gone, "eve")
    assert (gone[4:], len(parked_calls)) == (["e1"], 4)
    assert reached.counts == {"max_suspended_calls": 5}
    parked_calls.evict_all()
    assert (len(parked_calls), len(parked_calls._shares), parked_calls._shares.owners) == (0, 0, 0)


def test_a_round_is_used_once_whether_its_call_is_there_or_not():
    sealer, gone = StateSealer(), []
    parked_calls = SuspendedCalls(sealer, 2, 60)
    there = park(parked_calls, sealer, "a", gone)
    lost = sealer.open(sealer.seal(BOUND, "z", {}, 60)[1], BOUND)
    assert parked_calls.claim(there) is not None
    assert parked_calls.claim(lost) is None
    for state in (there, lost):
        with pytest.raises(ProtocolError, match="used already"):
            parked_calls.claim(state)


def test_an_earlier_round_of_a_call_that_waits_is_used_up():
    sealer, gone = StateSealer(), []
    parked_calls = SuspendedCalls(sealer, 2, 60)
    first = park(parked_calls, sealer, "a", gone)
    second = park(parked_calls, sealer, "a", gone)
    with pytest.raises(ProtocolError, match="used already"):
        parked_calls.claim(first)
    assert parked_calls.claim(second) is not None


def test_a_round_stays_used_however_many_follow(monkeypatch):
    """Otherwise whoever kept a state could have an effect twice, by having a server forget it."""
    monkeypatch.setattr("mcpbus.core.suspended_calls._MOST_CONSUMED", 10)
    sealer, gone = StateSealer(), []
    parked_calls = SuspendedCalls(sealer, 1, 60)
    first = park(parked_calls, sealer, "a", gone)
    parked_calls.claim(first)
    for n in range(50):
        parked_calls.claim(park(parked_calls, sealer, f"{n}", gone))
    with pytest.raises(ProtocolError, match="used already"):
        parked_calls.claim(first)
    assert len(parked_calls._consumed) == 10
    # What waits is not in doubt, nor what was sealed after what was forgotten.
    assert parked_calls.claim(park(parked_calls, sealer, "there", gone)) is not None
    assert parked_calls.claim(sealer.open(sealer.seal(BOUND, "gone", {}, 60)[1], BOUND)) is None


def test_a_round_is_good_and_used_up_until_the_moment_in_which_it_lapses(monkeypatch):
    monkeypatch.setattr("mcpbus.core.suspended_calls._MOST_CONSUMED", 1)
    now = 1000.0
    sealer = StateSealer(clock=lambda: now)
    parked_calls = SuspendedCalls(sealer, 1, 60)
    first, second = (sealer.open(sealer.seal(BOUND, name, {}, 60)[1], BOUND) for name in "ab")
    now = 1060.0
    parked_calls.claim(first)
    parked_calls.claim(second)
    with pytest.raises(ProtocolError, match="used already"):
        parked_calls.claim(first)


def test_rounds_are_forgotten_when_they_have_lapsed():
    now = 1000.0
    sealer, gone = StateSealer(clock=lambda: now), []
    parked_calls = SuspendedCalls(sealer, 1, 60)
    for n in range(100):
        parked_calls.claim(park(parked_calls, sealer, f"{n}", gone))
    now += 61
    parked_calls.claim(park(parked_calls, sealer, "last", gone))
    assert len(parked_calls._consumed) == 1


def test_a_round_stays_used_when_the_clock_goes_forward_and_back():
    now = 1000.0
    sealer, gone = StateSealer(clock=lambda: now), []
    parked_calls = SuspendedCalls(sealer, 1, 60)
    used = park(parked_calls, sealer, "a", gone)
    parked_calls.claim(used)
    now += 3600
    parked_calls.claim(park(parked_calls, sealer, "b", gone))
    now -= 3600
    with pytest.raises(ProtocolError, match="used already"):
        parked_calls.claim(used)
    now += 1
    assert parked_calls.claim(sealer.open(sealer.seal(BOUND, "gone", {}, 60)[1], BOUND)) is None


# -- over the wire -------------------------------------------------------------------------------


async def greet(ctx):
    return (await ctx.elicit("?", str, key="k")).data


def principals(**options):
    """A server that takes a header for who somebody is."""

    async def authenticate(head):
        who = head.headers.get(b"x-user")
        if who is None:
            raise UnauthorizedError
        return who

    return interviewed(greet, authenticate=authenticate, **options)


ANSWER = {"k": accept("x")}


def forge(state):
    return state[:-8] + ("AAAAAAAA" if state[-8:] != "AAAAAAAA" else "BBBBBBBB")


FOREIGN = [
    # how the retry differs from what it should be
    (
        "forged",
        lambda it, result: it.ask(
            params={**retry(result, ANSWER), "requestState": forge(result["requestState"])}
        ),
    ),
    ("no text", lambda it, result: it.ask(params={**retry(result, ANSWER), "requestState": 5})),
    ("null", lambda it, result: it.ask(params={**retry(result, ANSWER), "requestState": None})),
    (
        "other arguments",
        lambda it, result: it.ask(params={**retry(result, ANSWER), "arguments": {"subject": "y"}}),
    ),
    ("no arguments", lambda it, result: it.ask(params={**retry(result, ANSWER), "arguments": {}})),
    ("other tool", lambda it, result: it.ask(params={**retry(result, ANSWER), "name": "ask2"})),
    (
        "other method",
        lambda it, result: it.ask(method="prompts/get", params={"name": "ask", **retry(result, ANSWER)}),
    ),
]


@pytest.mark.parametrize(("how", "send"), FOREIGN, ids=[how for how, _ in FOREIGN])
async def test_a_state_that_does_not_fit_is_refused_and_nothing_happens(how, send, autojump_clock):  # V-7
    async with interviewed(greet) as it:
        it.server.add_tool(lambda: "another", name="ask2")
        it.server.add_prompt(lambda: "a prompt", name="ask")
        first = {"arguments": {"subject": "x"}}
        result = (await it.ask(params=first).reply())["result"]
        await wait_until_idle(it.bus)
        before = it.bus.statistics()
        call = await send(it, result).ended()
        assert (call.status, call.messages[0]["error"]["code"]) == (400, -32602)
        assert (it.outcomes, it.runs) == ([], 1)
        assert (it.bus.statistics().actors, it.bus.statistics().requests) == (before.actors, 0)
        # Whose state it is can use it still.
        done = (await it.ask(params={**first, **retry(result, ANSWER)}).reply())["result"]
        assert text(done) == "x"
        await it.assert_nothing_is_left()


async def test_a_foreign_principals_state_is_refused(autojump_clock):  # E-9
    async with principals() as it:
        ann, bob = {"x-user": "ann"}, {"x-user": "bob"}
        result = (await it.ask(headers=ann).reply())["result"]
        stolen = await it.ask(params=retry(result, ANSWER), headers=bob).ended()
        assert (stolen.status, stolen.messages[0]["error"]["code"], it.outcomes) == (400, -32602, [])
        assert text((await it.ask(params=retry(result, ANSWER), headers=ann).reply())["result"]) == "x"


@attrs.frozen
class Silent:
    """Its repr says nothing of who it is, nor does one field of it matter."""

    id: str = attrs.field(repr=False)
    seen: int = attrs.field(factory=itertools.count().__next__, eq=False)


class Plain:
    """Compares by a rule of its own, states its content, and has the repr of every object."""

    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return isinstance(other, Plain) and other.name == self.name

    __hash__ = None

    @property
    def mcpbus_key(self):
        return self.name


class Itself:
    """Is compared by identity."""


ITSELF = {"ann": Itself(), "bob": Itself()}
MAKERS = [
    Silent,
    Plain,
    lambda name: frozenset({name, "a", "b", "c"}),
    lambda name: {"sub": name},
    ITSELF.get,
]


async def explicit(ctx):
    if ctx.round_state is None:
        return InputRequired({"k": Elicit("?", str)}, state=1)
    return (await ctx.elicit("?", str, key="k")).data


@pytest.mark.parametrize("make", MAKERS, ids=["silent", "plain", "set", "mapping", "itself"])
@pytest.mark.parametrize("how", ["waits", "runs again", "is lost"])
async def test_a_state_is_good_for_whoever_is_equal_to_its_owner_and_for_nobody_else(
    make, how, autojump_clock
):
    async def authenticate(head):
        return make(head.headers["x-user"])

    script = explicit if how == "runs again" else greet
    async with interviewed(script, authenticate=authenticate, tool={"replay": True}) as it:
        result = (await it.ask(headers={"x-user": "ann"}).reply())["result"]
        if how == "is lost":
            it.bus.parked_calls.evict_all()
            await it.quiet()
        stolen = await it.ask(params=retry(result, ANSWER), headers={"x-user": "bob"}).ended()
        assert (stolen.status, stolen.messages[0]["error"]["code"]) == (400, -32602)
        own = await it.ask(params=retry(result, ANSWER), headers={"x-user": "ann"}).reply()
        assert text(own["result"]) == "x"


async def test_an_expired_state_is_refused(autojump_clock, monkeypatch):
    async with interviewed(greet, limits={"suspended_timeout": 60}) as it:
        result = (await it.ask().reply())["result"]
        sealer = it.bus.parked_calls.sealer
        now = sealer.now()
        monkeypatch.setattr(sealer, "now", lambda: now + 61)
        call = await it.ask(params=retry(result, ANSWER)).ended()
        assert (call.status, call.messages[0]["error"]["code"], it.outcomes) == (400, -32602, [])


async def test_a_state_may_expire_while_it_is_claimed(autojump_clock, monkeypatch):
    async with interviewed(greet, limits={"suspended_timeout": 60}) as it:
        result = (await it.ask().reply())["result"]
        now = it.server.sealer.now()
        late = iter([now + 59.9])
        monkeypatch.setattr(it.server.sealer, "now", lambda: next(late, now + 60.1))
        assert text((await it.ask(params=retry(result, ANSWER)).reply())["result"]) == "x"
        again = await it.ask(params=retry(result, ANSWER)).ended()
        assert (again.status, again.messages[0]["error"]["code"]) == (400, -32602)
        await it.assert_nothing_is_left()


@pytest.mark.parametrize(
    "place",
    [
        "mcpbus.core.suspended_calls.SuspendedCalls.claim",
        "mcpbus.dispatch.dispatcher.RequestActor",
    ],
)
async def test_whatever_goes_wrong_while_a_call_is_carried_on_gives_the_place_back(
    place, autojump_clock, monkeypatch
):
    async with interviewed(greet) as it:
        result = (await it.ask().reply())["result"]

        def fail(*_, **__):
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(place, fail)
            failed = (await it.ask(params=retry(result, ANSWER)).ended()).messages[0]
        assert failed["error"]["code"] == -32603
        it.bus.parked_calls.evict_all()
        await it.assert_nothing_is_left()


@pytest.mark.parametrize(
    "again", ["while it runs", "after the next question", "after the end", "after a loss"]
)
async def test_a_round_is_consumed_once(again, autojump_clock):  # V-9
    async def twice(ctx):
        first = await ctx.elicit("?", str, key="k")
        await trio.sleep(5)
        second = await ctx.elicit("?", str, key="l")
        return first.data + second.data

    async with interviewed(twice, tool={"replay": True}) as it:
        first = (await it.ask().reply())["result"]
        retried = it.ask(params=retry(first, {"k": accept("a")}))
        if again == "while it runs":
            await trio.sleep(1)
        else:
            second = (await retried.reply())["result"]
        if again == "after the end":
            await it.ask(params=retry(second, {"l": accept("b")})).reply()
        if again == "after a loss":
            it.bus.parked_calls.evict_all()
            await it.quiet()
        runs = it.runs
        repeated = await it.ask(params=retry(first, {"k": accept("evil")})).ended()
        assert (repeated.status, repeated.messages[0]["error"]["code"]) == (400, -32602)
        assert "used already" in repeated.messages[0]["error"]["message"]
        assert it.runs == runs
        if again == "while it runs":
            second = (await retried.reply())["result"]
        if again != "after the end":
            assert text((await it.ask(params=retry(second, {"l": accept("b")})).reply())["result"]) == "ab"
        await it.assert_nothing_is_left()


async def test_two_retries_at_the_same_time_are_one_continuation_and_one_refusal(autojump_clock):
    async with interviewed(greet) as it:
        result = (await it.ask().reply())["result"]
        calls = [it.ask(params=retry(result, {"k": accept(f"{n}")})) for n in range(5)]
        replies = [await call.reply() for call in calls]
        assert sorted("error" in reply for reply in replies) == [False, True, True, True, True]
        assert len(it.outcomes) == 1
        await it.assert_nothing_is_left()


async def test_keys_are_rotated_between_two_rounds(autojump_clock):
    async with interviewed(greet, secret_keys=[OLD]) as it:
        result = (await it.ask().reply())["result"]
        it.server.sealer.__init__([NEW, OLD])
        assert text((await it.ask(params=retry(result, ANSWER)).reply())["result"]) == "x"


async def test_a_state_of_one_bus_is_foreign_on_a_shared_channel_with_another_principal(autojump_clock):
    async with (
        interviewed(greet) as it,
        it.bus.connect(revision=MODERN, principal="ann", capabilities=EVERYTHING) as ann,
        it.bus.connect(revision=MODERN, principal="bob", capabilities=EVERYTHING) as bob,
    ):
        result = await ann.call_tool("ask")
        stolen = {"name": "ask", "arguments": {}, **retry(result, ANSWER)}
        with pytest.raises(ProtocolError, match="requestState"):
            await bob.request("tools/call", stolen)
        assert text(await ann.request("tools/call", stolen)) == "x"


async def test_an_admission_that_refuses_a_retry_leaves_the_round_to_the_next_one(autojump_clock):
    """At the cap a retry is refused before its round is used."""
    async with interviewed(greet, limits={"max_requests": 1}) as it:

        @it.server.tool
        async def hog() -> None:
            await trio.sleep_forever()

        result = (await it.ask().reply())["result"]
        call = it.ask(params={"name": "hog"})
        await it.quiet()
        assert "error" in await it.ask(params=retry(result, ANSWER)).reply()
        call.disconnect()
        await it.quiet()
        assert text((await it.ask(params=retry(result, ANSWER)).reply())["result"]) == "x"
        await it.assert_nothing_is_left()
