"""When an issuer is asked for its keys, and what becomes of tokens while it does not answer."""

import json

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import rsa
from guarded import RESOURCE, bearing, challenge_of, guarded
from joserfc.jwk import ECKey
from joserfc.util import int_to_base64
from trio.testing import MockClock

from mcpbus.auth import InvalidTokenError, JwtVerifier, VerifierUnavailableError
from mcpbus.auth.issuer_http import LONGEST_DOCUMENT
from mcpbus.auth.keys import MOST_KEYS, read_key
from mcpbus.testing import InMemoryIssuer

GOOD = ["files:read"]
HOUR = 3600.0
METADATA = "https://issuer.test/.well-known/oauth-authorization-server"
KEYS = "https://issuer.test/keys"


def fetches(issuer):
    """How often its keys were asked for."""
    return issuer.asked.count(issuer.jwks_uri)


class Asking:
    """A verifier, and whether it takes new tokens of an issuer."""

    def __init__(self, issuer, **options):
        self.issuer = issuer
        self.verifier = JwtVerifier(issuer.url, web=issuer, **options)

    async def __call__(self, token=None):
        """What becomes of a token: `good`, `bad`, or `perhaps`."""
        try:
            await self.verifier.verify(token or self.issuer.token(), RESOURCE, self.issuer.now())
        except InvalidTokenError:
            return "bad"
        except VerifierUnavailableError:
            return "perhaps"
        return "good"


async def test_nobody_is_asked_before_the_first_token_comes_and_a_thousand_at_once_ask_once(
    autojump_clock, caplog
):
    async with guarded() as it:
        await trio.sleep(HOUR)
        assert it.issuer.asked == []
        it.issuer.delay = 3
        answers = []

        async def send(number):
            answers.append((await it.send("modern", it.issuer.bearer(f"user {number}", GOOD))).status)

        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(send, number)
        assert answers == [200] * 1000
        assert it.issuer.asked == [METADATA, KEYS]
        assert [record for record in caplog.records if record.name == "mcpbus.auth"] == []


async def test_who_asks_first_may_leave_and_the_others_get_the_keys(autojump_clock):
    issuer = InMemoryIssuer()
    ask, issuer.delay = Asking(issuer), 3
    with trio.move_on_after(1):
        await ask()
    assert await ask() == "good"
    assert fetches(issuer) == 1


async def test_keys_are_fetched_again_after_an_hour_and_nobody_waits_for_that(autojump_clock):
    issuer = InMemoryIssuer()
    ask = Asking(issuer)
    assert await ask() == "good"
    await trio.sleep(HOUR - 1)
    assert await ask() == "good"
    await trio.sleep(0.5)
    assert fetches(issuer) == 1
    await trio.sleep(1)
    issuer.delay = 5
    before = trio.current_time()
    assert [await ask() for _ in range(10)] == ["good"] * 10
    assert trio.current_time() == before
    await trio.sleep(11)
    assert fetches(issuer) == 2
    assert (await ask(), fetches(issuer)) == ("good", 2)


async def test_a_key_that_is_gone_is_good_until_keys_are_fetched_again(autojump_clock):
    issuer = InMemoryIssuer()
    ask = Asking(issuer)
    token = issuer.token(lifetime=10 * HOUR)
    assert await ask(token) == "good"
    issuer.keys.clear()
    issuer.add_key()
    issuer.keys[0]._dict_value["kid"] = "newer"
    await trio.sleep(HOUR + 1)
    assert await ask(token) == "good"
    await trio.sleep(1)
    assert await ask(token) == "bad"


async def test_another_key_of_the_same_name_takes_the_place_of_the_one_that_had_it(autojump_clock):
    issuer = InMemoryIssuer()
    ask = Asking(issuer)
    earlier, late = issuer.token(lifetime=10 * HOUR), issuer.token("bob", lifetime=10 * HOUR)
    assert await ask(earlier) == "good"
    [old] = issuer.keys
    issuer.keys[:] = [ECKey.generate_key("P-256", {"kid": old.kid})]
    newer = issuer.token(lifetime=10 * HOUR)
    assert newer.split(".")[0] == earlier.split(".")[0]
    assert await ask(newer) == "bad"
    await trio.sleep(HOUR + 1)
    assert await ask(late) == "good"  # and has them fetched
    await trio.sleep(1)
    assert [await ask(token) for token in (earlier, late, newer)] == ["bad", "bad", "good"]


async def test_an_unknown_key_has_them_fetched_again_but_not_more_often_than_twice_a_minute(autojump_clock):
    issuer = InMemoryIssuer()
    ask = Asking(issuer)
    assert await ask() == "good"
    issuer.add_key()
    assert (await ask(), fetches(issuer)) == ("bad", 1)
    await trio.sleep(29)
    assert (await ask(), fetches(issuer)) == ("bad", 1)
    await trio.sleep(1)
    assert (await ask(), fetches(issuer)) == ("good", 2)
    for _ in range(100):
        assert await ask(issuer.token(header={"kid": "made up"})) == "bad"
        await trio.sleep(1)
    assert fetches(issuer) in {5, 6}


async def test_while_the_issuer_is_down_known_keys_are_good_for_a_day_and_delay_nobody(autojump_clock):
    issuer = InMemoryIssuer()
    ask = Asking(issuer)
    assert await ask() == "good"
    issuer.down, issuer.delay = True, 4
    for _ in range(24):
        await trio.sleep(HOUR)
        before = trio.current_time()
        assert await ask() == "good"
        assert trio.current_time() == before
    await trio.sleep(1)
    assert await ask() == "perhaps"
    issuer.down = False
    await trio.sleep(6)
    assert await ask() == "good"


@pytest.mark.parametrize("name", ["the same", None])
async def test_a_new_key_that_has_the_name_of_the_old_one_or_none_is_found(name, autojump_clock):
    def publish(signer):
        key = signer.keys[0].as_dict(private=False) | {"kid": name}
        if name is None:
            del key["kid"]
        issuer.answers[KEYS] = (200, json.dumps({"keys": [key]}).encode())

    issuer, renewed = InMemoryIssuer(), InMemoryIssuer()
    ask = Asking(issuer)
    old, new = (signer.token(header={"kid": name}) for signer in (issuer, renewed))
    publish(issuer)
    assert await ask(old) == "good"
    publish(renewed)
    assert await ask(new) == "bad"  # the issuer was asked a moment ago
    await trio.sleep(31)
    answers = []

    async def ask_too():
        answers.append(await ask(new))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(ask_too)
    assert answers == ["good"] * 10
    assert [await ask(old) for _ in range(10)] == ["bad"] * 10
    assert fetches(issuer) == 2


async def test_a_wrong_signature_is_wrong_though_the_issuer_is_down(autojump_clock):
    issuer = InMemoryIssuer()
    ask = Asking(issuer)
    stranger = InMemoryIssuer().token()
    assert await ask() == "good"
    issuer.down = True
    await trio.sleep(31)
    assert [await ask(stranger), await ask(stranger), await ask()] == ["bad", "bad", "good"]


async def test_an_issuer_that_is_down_is_left_alone_between_two_attempts(autojump_clock):
    issuer = InMemoryIssuer()
    ask, issuer.down = Asking(issuer), True
    assert [await ask() for _ in range(100)] == ["perhaps"] * 100
    assert issuer.asked.count(METADATA) == 1
    await trio.sleep(6)
    assert (await ask(), issuer.asked.count(METADATA)) == ("perhaps", 2)
    issuer.down = False
    await trio.sleep(6)
    assert await ask() == "good"


async def test_a_new_key_while_the_issuer_is_down_is_perhaps_good(autojump_clock):
    issuer = InMemoryIssuer()
    ask = Asking(issuer)
    assert await ask() == "good"
    issuer.add_key()
    issuer.down = True
    await trio.sleep(31)
    assert await ask() == "perhaps"
    assert await ask(issuer.token(header={"kid": issuer.keys[0].kid})) == "bad"


NOT_THERE = {
    "404": (404, b""),
    "500": (500, b"{}"),
    "HTML": (200, b"<!doctype html><title>hello</title>"),
    "no JSON": (200, b"\xff\xfe"),
    "a list": (200, b"[]"),
    "nothing": (200, b"{}"),
    "nested": (200, b'{"a":' * 100_000),
    "a redirect": (302, b""),
    "keys that are no list": (200, b'{"keys":{}}'),
}


@pytest.mark.parametrize("answer", NOT_THERE.values(), ids=NOT_THERE)
async def test_what_is_no_set_of_keys_is_none(answer, autojump_clock, caplog):
    async with guarded() as it:
        it.issuer.answers[KEYS] = answer
        refused = await it.send("modern", it.issuer.bearer("ada", GOOD))
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert "the keys of https://issuer.test cannot be had" in caplog.text
        del it.issuer.answers[KEYS]
        await trio.sleep(6)
        assert (await it.send("modern", it.issuer.bearer("ada", GOOD))).status == 200


@pytest.mark.parametrize("document", [b"{}", b'{"keys":{}}', b'{"keys":"abc"}'])
async def test_a_document_without_keys_is_told_in_the_log(document, autojump_clock, caplog):
    issuer = InMemoryIssuer()
    issuer.answers[KEYS] = 200, document
    assert await Asking(issuer)() == "perhaps"
    assert "https://issuer.test/keys has no keys" in caplog.text


async def test_an_issuer_has_ten_seconds(autojump_clock):
    issuer = InMemoryIssuer()
    ask, issuer.delay = Asking(issuer, jwks_uri=KEYS), 11
    before = trio.current_time()
    assert await ask() == "perhaps"
    assert trio.current_time() - before == 10


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example", "jwks_uri": KEYS},
        {"issuer": "https://issuer.test/", "jwks_uri": KEYS},
        {"jwks_uri": KEYS},
        {"issuer": "https://issuer.test"},
        {"issuer": "https://issuer.test", "jwks_uri": 7},
        {"issuer": "https://issuer.test", "jwks_uri": "http://elsewhere.example/keys"},
        {"issuer": "https://issuer.test", "jwks_uri": "file:///etc/passwd"},
    ],
    ids=str,
)
async def test_metadata_that_is_another_issuers_or_leads_elsewhere_is_not_believed(document, autojump_clock):
    issuer = InMemoryIssuer()
    issuer.answers[METADATA] = 200, json.dumps(document).encode()
    assert await Asking(issuer)() == "perhaps"
    assert KEYS not in issuer.asked
    assert not [url for url in issuer.asked if "elsewhere" in url or url.startswith("file")]


PLACES = {
    "https://issuer.test": [METADATA, "https://issuer.test/.well-known/openid-configuration"],
    "https://issuer.test/tenant": [
        "https://issuer.test/.well-known/oauth-authorization-server/tenant",
        "https://issuer.test/.well-known/openid-configuration/tenant",
        "https://issuer.test/tenant/.well-known/openid-configuration",
    ],
}


@pytest.mark.parametrize("url", PLACES)
async def test_metadata_is_looked_for_at_each_place(url, autojump_clock):
    for number, place in enumerate(PLACES[url]):
        issuer = InMemoryIssuer(url)
        for earlier in PLACES[url][:number]:
            issuer.answers[earlier] = 404, b""
        issuer.answers[place] = 200, json.dumps({"issuer": url, "jwks_uri": f"{url}/keys"}).encode()
        assert await Asking(issuer)() == "good"
        assert issuer.asked == [*PLACES[url][: number + 1], f"{url}/keys"]


@pytest.mark.parametrize("url", PLACES)
async def test_metadata_that_is_nowhere_is_looked_for_once_at_each_place(url, autojump_clock, caplog):
    issuer = InMemoryIssuer(url)
    issuer.answers = dict.fromkeys(PLACES[url], (404, b""))
    assert await Asking(issuer)() == "perhaps"
    assert issuer.asked == PLACES[url]
    assert f"{PLACES[url][-1]} answered 404" in caplog.text


@pytest.mark.parametrize("address", ["", ', "jwks_uri": 7', ', "jwks_uri": null'])
async def test_metadata_that_does_not_say_where_the_keys_are_is_told_in_the_log(
    address, autojump_clock, caplog
):
    issuer = InMemoryIssuer()
    issuer.answers[METADATA] = 200, f'{{"issuer": "https://issuer.test"{address}}}'.encode()
    assert await Asking(issuer)() == "perhaps"
    assert "the metadata of https://issuer.test has no jwks_uri" in caplog.text


async def test_where_the_keys_are_may_be_said(autojump_clock):
    issuer = InMemoryIssuer()
    assert await Asking(issuer, jwks_uri=KEYS)() == "good"
    assert issuer.asked == [KEYS]


BROKEN = [
    7,
    {},
    {"kty": "RSA"},
    {"kty": "EC", "crv": "P-256", "x": "!", "y": "!"},
    {"kty": "oct", "k": "c2VjcmV0"},
]
BROKEN += [
    {"kty": "future"},
    {"kty": []},
    {"kty": "OKP", "crv": "X25519", "x": "AAAA"},
    {"kty": "RSA", "n": "AQ", "e": "AQ"},
]
BROKEN += [
    {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
    {"kty": "EC", "crv": "none", "x": "AA", "y": "AA"},
]


WEAK = rsa.generate_private_key(65537, 1024).public_key().public_numbers().n
BROKEN.append({"kty": "RSA", "e": "AQAB", "n": int_to_base64(WEAK)})


@pytest.mark.parametrize("entry", BROKEN, ids=range(len(BROKEN)))
def test_a_key_that_cannot_be_read_is_none(entry):
    assert read_key(entry) is None


async def test_keys_that_are_of_no_use_do_not_hide_the_others(autojump_clock):
    issuer = InMemoryIssuer()
    good = [key.as_dict(private=False) for key in issuer.keys]
    for others in (BROKEN, [{**good[0], "use": "enc", "kid": "key 1"}]):
        issuer.answers[KEYS] = 200, json.dumps({"keys": [*others, *good]}).encode()
        assert await Asking(issuer)() == "good"


@pytest.mark.parametrize("kid", [None, "key 1"])
async def test_a_key_without_a_name_may_be_meant(kid, autojump_clock):
    issuer = InMemoryIssuer()
    entry = {name: value for name, value in issuer.keys[0].as_dict(private=False).items() if name != "kid"}
    issuer.answers[KEYS] = 200, json.dumps({"keys": [entry]}).encode()
    assert await Asking(issuer)(issuer.token(header={"kid": kid})) == "good"


async def test_of_endless_keys_the_first_are_looked_at(autojump_clock):
    issuer = InMemoryIssuer()
    good = issuer.keys[0].as_dict(private=False)
    others = [{**good, "kid": f"{number}"} for number in range(MOST_KEYS)]
    issuer.answers[KEYS] = 200, json.dumps({"keys": [*others, good]}).encode()
    assert await Asking(issuer)() == "bad"


@pytest.mark.parametrize(
    "url", ["http://id.example.com", "ftp://id.example.com", "id.example.com", "https://", ""]
)
def test_an_issuer_is_asked_over_https_or_on_this_machine(url):
    with pytest.raises(ValueError, match="issuer is"):
        JwtVerifier(url)
    with pytest.raises(ValueError, match="jwks_uri is"):
        JwtVerifier("https://id.example.com", jwks_uri=url)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:9000", "http://localhost/issuer", "http://[::1]:9000", "https://id.example.com/a"],
)
def test_addresses_of_issuers(url):
    assert JwtVerifier(url).issuers == (url,)


@pytest.mark.parametrize("algorithms", [["HS256"], ["none"], ["RS256", "HS512"], []])
def test_an_algorithm_without_public_keys_is_refused(algorithms):
    with pytest.raises(ValueError, match="algorithms are some of"):
        JwtVerifier("https://id.example.com", algorithms=algorithms)


async def test_a_failure_that_nobody_foresaw_is_the_issuers_as_well(autojump_clock):
    class Broken:
        async def request(self, *_):
            raise ZeroDivisionError

    verifier = JwtVerifier("https://issuer.test", web=Broken())
    with pytest.raises(VerifierUnavailableError, match="ZeroDivisionError"):
        await verifier.verify(InMemoryIssuer().token(), RESOURCE, InMemoryIssuer().now())


async def test_a_dead_issuer_is_told_in_the_log_now_and_then(autojump_clock, caplog):
    async with guarded() as it:
        it.issuer.down = True
        for _ in range(20):
            assert (await it.send("modern", it.issuer.bearer("ada", GOOD))).status == 503
        assert caplog.text.count("tokens cannot be verified") == 1
        for seconds, told in ((29.9, 1), (0.1, 2), (29.9, 2)):
            await trio.sleep(seconds)
            await it.send("modern", it.issuer.bearer("ada", GOOD))
            assert caplog.text.count("tokens cannot be verified") == told
        assert challenge_of(await it.send("modern", bearing("abc")))["error"] == "invalid_token"


def test_a_long_document_is_longer_than_any_set_of_keys_that_is_looked_at():
    assert LONGEST_DOCUMENT > MOST_KEYS * 2048


@pytest.mark.parametrize("earlier", ["good", "perhaps"])
def test_what_was_found_out_in_another_run_of_trio_is_not_believed_by_its_clock(earlier):
    issuer = InMemoryIssuer()
    ask = Asking(issuer)

    async def run():
        return await ask(issuer.token(lifetime=HOUR))

    # The later run's clock shows less, as if what the earlier one did were still to come.
    clock = MockClock(autojump_threshold=0)
    clock.jump(1_000_000)
    issuer.down = earlier == "perhaps"
    assert trio.run(run, clock=clock) == earlier
    issuer.down = False
    assert trio.run(run, clock=MockClock(autojump_threshold=0)) == "good"
    assert fetches(issuer) == (2 if earlier == "good" else 1)
