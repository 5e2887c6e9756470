"""What is one principal's is not another's, and not even there for who brings no token."""

import pytest
from channels import sse
from guarded import bearing, challenge_of, guarded

from mcpbus.auth import AnyTokenVerifier, JwtVerifier
from mcpbus.testing import InMemoryIssuer

GOOD = ["files:read"]
OTHERS = {
    "another subject": {"subject": "bob"},
    "another client": {"subject": "ada", "client": "another"},
}


@pytest.mark.parametrize("way", ["legacy", "get", "delete", "sse post"])
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_a_session_is_not_there_for_another_principal_and_unknown_without_a_token(
    way, other, autojump_clock
):  # A-13, E-9
    async with guarded() as it:
        ada = it.issuer.bearer("ada", GOOD)
        session = (await it.probe.initialize(headers=ada)).id
        async with sse(it.probe, **ada):
            if way == "sse post":
                session = it.sse_session
            assert (await it.send(way, session=session)).status == 401
            answer = await it.send(way, it.issuer.bearer(scopes=GOOD, **other), session=session)
            assert answer.status == 404
            newer = it.issuer.bearer("ada", [*GOOD, "more"])
            assert (await it.send(way, newer, session=session)).status in {200, 202, 204}


async def test_each_request_of_a_session_is_asked_for_its_token(autojump_clock):
    async with guarded() as it:
        session = await it.probe.initialize(headers=it.issuer.bearer("ada", GOOD))
        for token, status in (({}, 401), (bearing("no.t.good"), 401), (it.issuer.bearer("ada"), 403)):
            answer = await it.send("legacy", token, session=session.id)
            assert answer.status == status
            assert challenge_of(answer)["scope"] == "files:read"


async def test_two_issuers_mean_two_people_by_one_name(autojump_clock):
    other = InMemoryIssuer("https://other.test")

    def verifier(issuer):
        return AnyTokenVerifier(JwtVerifier(issuer.url, web=issuer), JwtVerifier(other.url, web=other))

    async with guarded(verifier=verifier) as it:
        session = await it.probe.initialize(headers=it.issuer.bearer("ada", GOOD))
        answer = await it.send("legacy", other.bearer("ada", GOOD), session=session.id)
        assert answer.status == 404


async def test_what_is_counted_to_somebody_is_counted_to_them_whatever_token_they_bring(autojump_clock):
    async with guarded(limits={"max_sessions": 4}) as it:
        sessions = [
            (await it.probe.initialize(headers=it.issuer.bearer("ada", [*GOOD, str(number)]))).id
            for number in range(6)
        ]
        bob = (await it.probe.initialize(headers=it.issuer.bearer("bob", GOOD))).id
        await it.quiet()
        assert bob in it.bus.sessions
        assert sum(session in it.bus.sessions for session in sessions) == 3


async def test_no_statistic_and_no_log_line_has_a_token(autojump_clock, caplog):
    caplog.set_level("DEBUG")
    async with guarded(limits={"max_sessions": 1}) as it:
        token = it.issuer.token("ada", GOOD)
        for _ in range(3):
            await it.probe.initialize(headers=bearing(token))
        await it.send("modern", bearing(f"{token}x"))
        it.issuer.down = True
        it.issuer.add_key()
        await it.send("modern", bearing(it.issuer.token("ada", GOOD)))
        await it.quiet()
        # The client of HTTP/2 in this test logs what it sends.
        said = [record.getMessage() for record in caplog.records if record.name.startswith("mcpbus")]
        whole = f"{it.bus.statistics()}{it.bus.server.auth!r}{it.bus.sessions!r}{said}"
        assert token.split(".")[1] not in whole
        assert token.split(".")[2] not in whole
        assert "https://issuer.test" in whole
