"""What somebody evil may try: a server, an issuer, or who is between, and what becomes of it."""

import logging

import pytest
import trio
from authority import Authority
from internet import Body, answer
from login_world import META, call, now, open_world

from mcpbus.client import ClientCredentials, LoginError, MemoryTokenStorage, StatusError
from mcpbus.client.oauth.errors import IssuerUnavailableError, MetadataError


async def refused(world, why, **options):
    """Be refused a login, before anything is asked of a token endpoint."""
    store = options.setdefault("store", MemoryTokenStorage())
    with pytest.raises(LoginError, match=why) as raised:
        async with world.connect(world.auth(**options)):
            pass
    assert not [visit for visit in world.net.visits if visit.path == "/token"]
    assert repr(store) == "<MemoryTokenStorage of 0 logins>"
    return raised.value


# -- somebody else's metadata -----------------------------------------------------------------------


async def test_a_server_that_claims_to_be_another_one_gets_no_token_for_that(world, autojump_clock):
    world.document["resource"] = "https://bank.example/mcp"
    await refused(world, "is of another server")
    assert world.pages == 0
    assert world.net.visited("id.example") == []


async def test_an_issuer_that_claims_to_be_another_one_is_not_believed(world, autojump_clock):
    honest = Authority("https://honest.example", now)
    world.net.hosts[honest.host] = honest
    world.issuer.metadata["issuer"] = honest.name
    await refused(world, "is of another issuer")
    assert world.pages == 0
    assert [visit.path for visit in world.net.visited("id.example")] == [
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
    ]


async def test_what_follows_the_metadata_of_another_issuer_may_be_its_own(world, autojump_clock):
    """That of OpenID Connect is looked at, too: what was not believed is as if it were not there."""
    metadata = dict(world.issuer.metadata)
    world.issuer.metadata["issuer"] = "https://honest.example"
    world.issuer.instead["/.well-known/openid-configuration"] = lambda request: answer(json=metadata)
    async with world.connect() as client:
        assert await call(client) == "read"


@pytest.mark.parametrize("scheme", ["http", "javascript", "file", "ftp"])
async def test_a_page_that_is_none_of_the_web_is_not_opened(scheme, world, autojump_clock):
    world.issuer.metadata["authorization_endpoint"] = f"{scheme}://id.example/authorize"
    await refused(world, "authorization_endpoint")
    assert world.pages == 0


@pytest.mark.parametrize("evil", ["`id`", "$(id)", ";id", "'", '"', "|id", "<x>"])
async def test_a_page_that_would_steer_a_shell_is_not_opened(evil, world, autojump_clock):
    world.issuer.metadata["authorization_endpoint"] = f"https://id.example/authorize?{evil}"
    await refused(world, "what steers shells")
    assert world.pages == 0


async def test_an_issuer_that_does_not_say_that_it_checks_codes_is_sent_none(world, autojump_clock):
    for said in (None, ["plain"]):
        world.issuer.metadata["code_challenge_methods_supported"] = said
        await refused(world, "PKCE")
    assert world.pages == 0
    async with world.connect(world.auth(assume_pkce=True)) as client:
        assert await call(client) == "read"


# -- mixing up issuers ------------------------------------------------------------------------------


@pytest.mark.parametrize("iss", [None, "https://honest.example", "https://id.example/"])
async def test_a_code_of_another_issuer_is_sent_nowhere(iss, world, autojump_clock):
    async def mix_up(page):
        return world.issuer.authorize(page, iss=iss)

    error = await refused(world, "iss", open_page=mix_up)
    assert "c0de" not in str(error)


@pytest.mark.parametrize("state", [None, "", "guessed"])
async def test_a_code_that_somebody_else_has_got_is_sent_nowhere(state, world, autojump_clock):
    async def inject(page):
        return world.issuer.authorize(page, state=state)

    await refused(world, "belongs to no login", open_page=inject)


async def test_a_state_is_good_for_one_login(world, autojump_clock):
    pages = []

    async def show(page):
        pages.append(page)
        return world.issuer.authorize(pages[0])

    async with world.connect(world.auth(open_page=show)) as client:
        world.issuer.take_back()
        with pytest.raises(LoginError, match="belongs to no login"):
            await call(client)


async def test_what_an_issuer_has_given_is_its_own_when_the_server_moves_to_another_one(
    world, autojump_clock
):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store, scopes=["mine"])) as client:
        await call(client, "write")
        last = {*world.issuer.tokens, *world.issuer.refreshing, *world.issuer.clients}
        other = world.move("https://other.example")
        world.issuer.take_back()
        assert await call(client) == "read"
    sent = b"".join(visit.body for visit in world.net.visited("other.example")).decode()
    assert other.asked[0]["client_id"] in other.clients
    assert not [secret for secret in last if secret in f"{sent} {other.asked}"]
    # What was stepped up to at the last one, the next one may not know.
    assert other.asked[0]["scope"] == "mine read"


async def test_a_client_that_one_issuer_knows_is_not_shown_to_another_one(world, autojump_clock):
    store = MemoryTokenStorage()
    auth = world.auth(store=store, client_id="known", client_secret="s3cret")
    async with world.connect(auth) as client:
        await call(client)
        world.move("https://other.example")
        world.issuer.take_back()
        with pytest.raises(LoginError, match=r"https://other\.example.*https://id\.example"):
            await call(client)
    assert not [visit for visit in world.net.visited("other.example") if visit.verb == "POST"]


async def test_a_secret_is_shown_to_the_issuer_alone_that_the_user_names(world, autojump_clock):
    auth = {"client_id": "known", "client_secret": "s3cret", "issuer": "https://good.example"}
    await refused(world, r"https://id\.example.*https://good\.example", **auth)
    assert world.pages == 0


async def test_of_several_issuers_the_one_is_taken_that_the_user_names(world, autojump_clock):
    evil = Authority("https://evil.example", now)
    world.net.hosts[evil.host] = evil
    world.document["authorization_servers"] = [evil.name, world.issuer.name]
    async with world.connect(world.auth(issuer="https://id.example")) as client:
        assert await call(client) == "read"
    assert world.net.visited("evil.example") == []


async def test_a_login_stays_where_it_is_while_that_is_one_of_several(world, autojump_clock):
    async with world.connect() as client:
        await call(client)
        other = Authority("https://other.example", now)
        world.net.hosts[other.host] = other
        world.document["authorization_servers"] = [other.name, world.issuer.name]
        world.issuer.tokens.clear()
        assert await call(client) == "read"
    assert world.pages == 1
    assert world.net.visited("other.example") == []


async def test_a_token_is_for_one_server(autojump_clock):
    store = MemoryTokenStorage()
    async with open_world() as world:
        async with world.connect(world.auth(store=store)) as client:
            await call(client)
        seen = []

        async def spy(request):
            seen.append(request.headers.get("authorization"))
            return answer(404)

        world.net.hosts["evil.example"] = spy
        for url in ("https://evil.example/mcp", "https://mcp.example.evil.example/mcp"):
            world.net.hosts["mcp.example.evil.example"] = spy
            world.url = url
            with pytest.raises(StatusError, match="404"):
                async with world.connect(world.auth(store=store)):
                    pass
        assert seen
        assert set(seen) == {None}


async def test_a_redirect_takes_no_token_along(world, autojump_clock):
    seen = []

    async def spy(request):
        seen.append(request)
        return answer(404)

    async def move(request):
        return answer(307, location="https://evil.example/mcp")

    world.net.hosts["evil.example"] = spy
    async with world.connect() as client:
        await call(client)
        world.net.hosts["mcp.example"] = move
        with pytest.raises(StatusError, match="307"):
            await call(client)
    assert seen == []


@pytest.mark.parametrize("path", ["/token", "/register", "/.well-known/oauth-authorization-server"])
async def test_what_an_issuer_redirects_is_not_followed(path, world, autojump_clock):
    seen = []

    async def spy(request):
        seen.append(request)
        return answer(
            json={**world.issuer.metadata, "access_token": "t", "token_type": "Bearer", "client_id": "x"}
        )

    world.net.hosts["evil.example"] = spy
    world.issuer.instead[path] = lambda request: answer(307, location="https://evil.example/x")
    with pytest.raises(LoginError, match=r"307|https://evil\.example/x is named instead"):
        async with world.connect():
            pass
    assert seen == []


# -- asking where one should not --------------------------------------------------------------------

NEAR = ["127.0.0.1", "10.0.0.7", "192.168.1.1", "169.254.169.254", "::1", "fd00::1", "::ffff:127.0.0.1"]


@pytest.mark.parametrize("address", NEAR)
async def test_a_server_far_away_names_nobody_near(address, world, autojump_clock):
    world.net.addresses["id.example"] = [address]
    await refused(world, r"is on this machine or in its network.*issuer=")
    assert world.net.visited("id.example") == []


@pytest.mark.parametrize("endpoint", ["token_endpoint", "registration_endpoint"])
async def test_nor_does_an_issuer_of_its(endpoint, world, autojump_clock):
    inside = Authority("https://inside.example", now)
    world.net.hosts[inside.host], world.net.addresses[inside.host] = inside, ["10.0.0.7"]
    world.issuer.metadata[endpoint] = "https://inside.example/x"
    with pytest.raises(MetadataError, match=r"inside\.example/x is on this machine or in its network"):
        async with world.connect():
            pass
    assert world.net.visited("inside.example") == []


async def test_nor_is_its_metadata_there(world, autojump_clock):
    guard = world._guard

    def guard_inside(request):
        found = guard(request)
        return found and answer(
            401, www_authenticate='Bearer resource_metadata="https://inside.example/latest"'
        )

    world.net.hosts["inside.example"], world.net.addresses["inside.example"] = (
        world._serve,
        ["169.254.169.254"],
    )
    world._guard = guard_inside
    await refused(world, "is on this machine or in its network")
    assert world.net.visited("inside.example") == []


@pytest.mark.parametrize("name", ["http://localhost:6379", "http://127.0.0.1:9000", "http://[::1]:9000"])
async def test_loopback_is_for_servers_on_this_machine(name, world, autojump_clock):
    world.document["authorization_servers"] = [name]
    world.net.hosts["localhost"] = world.net.hosts["127.0.0.1"] = world.net.hosts["::1"] = world._serve
    world.net.addresses |= {"localhost": ["127.0.0.1"], "127.0.0.1": ["127.0.0.1"], "::1": ["::1"]}
    await refused(world, "is on this machine")


async def test_a_host_with_an_address_far_away_is_asked_there_alone(world, autojump_clock):
    world.net.addresses["id.example"] = ["10.0.0.7", "93.184.216.34"]
    async with world.connect() as client:
        assert await call(client) == "read"
    assert {visit.address for visit in world.net.visited("id.example")} == {"93.184.216.34"}


async def test_a_name_that_leads_elsewhere_the_next_time_has_led_here_once(world, autojump_clock):
    """Whose address was judged is whom one connects to."""
    looked_up = []
    addresses = world.net._addresses

    def rebind(name):
        if name != "id.example":
            return addresses(name)
        looked_up.append(name)
        return ["93.184.216.34"] if len(looked_up) % 2 else ["127.0.0.1"]

    world.net._addresses = rebind
    await refused(world, "nobody is at|cannot connect")
    assert all(visit.address != "127.0.0.1" for visit in world.net.visited("id.example"))


@pytest.mark.parametrize("near", ["10.0.0.1", "127.0.0.1"])
async def test_a_server_in_the_same_network_may_name_an_issuer_there(near, world, autojump_clock):
    world.net.addresses |= {"mcp.example": [near], "id.example": ["10.0.0.7"]}
    async with world.connect() as client:
        assert await call(client) == "read"


async def test_the_user_may_name_an_issuer_there(world, autojump_clock):
    world.net.addresses["id.example"] = ["10.0.0.7"]
    async with world.connect(world.auth(issuer="https://id.example")) as client:
        assert await call(client) == "read"
        await trio.sleep(2 * world.issuer.life)
        assert await call(client) == "read"
    assert world.pages == 1


# -- too much, too late -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (lambda: Body(b" " * 600_000), "longer than 524288 bytes"),
        (lambda: Body(b" " * 1000, seconds=1.0, endless=True), "did not answer within 10 s"),
        (lambda: Body(b"{}", seconds=1e6), "did not answer within 10 s"),
    ],
    ids=["long", "endless", "late"],
)
@pytest.mark.parametrize("place", [META, "/.well-known/oauth-authorization-server", "/register", "/token"])
async def test_an_answer_has_a_length_and_a_time(stream, why, place, world, autojump_clock):
    makes = lambda request: answer(body=stream(), content_type="application/json")  # noqa: E731
    world.instead[place] = world.issuer.instead[place] = makes
    with pytest.raises(IssuerUnavailableError, match=why):
        async with world.connect():
            pass
    assert trio.current_time() < 60


@pytest.mark.parametrize(
    "said",
    [b"", b"\xff\xfe", b"null", b"[]", b'"x"', b"{" * 100_000, b"[" * 100_000, b'{"issuer": 1e999}'],
    ids=["nothing", "bytes", "null", "list", "text", "braces", "deep", "number"],
)
async def test_an_answer_that_is_no_object_is_none(said, world, autojump_clock):
    world.issuer.instead["/token"] = lambda request: answer(body=said)
    with pytest.raises(LoginError):
        async with world.connect():
            pass


async def test_no_secret_is_logged_or_told(world, autojump_clock, caplog):
    caplog.set_level(logging.DEBUG)
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store, client_id="known", client_secret="s3cret")) as client:
        await call(client, "write")
        await trio.sleep(2 * world.issuer.life)
        await call(client)
        world.issuer.instead["/token"] = lambda request: answer(
            400, json={"error": "invalid_grant", "error_description": "no"}
        )
        world.issuer.tokens.clear()
        with pytest.raises(LoginError) as raised:
            await call(client)
    [asked, *_] = world.issuer.asked
    secrets = ["t0ken", "r3fresh", "c0de", "s3cret", asked["state"]]
    told = f"{caplog.text} {raised.value} {raised.value!r} {store!r}"
    assert [secret for secret in secrets if secret in told] == []


async def test_a_token_is_not_sent_where_others_could_read_it(autojump_clock):
    async with open_world(url="http://mcp.example/mcp") as world:
        await refused(world, "must be https")


# -- what is opened, and what is asked for ----------------------------------------------------------


@pytest.mark.parametrize(
    "page",
    [
        "http://127.0.0.1:8080/admin",
        "http://localhost:8080/admin",
        "http://[::1]/admin",
        "https://192.168.1.1/admin",
        "https://[::ffff:10.0.0.7]/admin",
        "https://169.254.169.254/",
        "https://router.localhost/",
    ],
)
async def test_a_server_far_away_has_no_page_near_opened(page, world, autojump_clock):
    world.issuer.metadata["authorization_endpoint"] = page
    await refused(world, "is on this machine or in its network")
    assert world.pages == 0


async def test_a_server_near_may(world, autojump_clock):
    world.net.addresses |= {"mcp.example": ["127.0.0.1"], "id.example": ["127.0.0.1"]}
    world.issuer.metadata["authorization_endpoint"] = "http://127.0.0.1:8080/authorize"
    async with world.connect() as client:
        assert await call(client) == "read"


@pytest.mark.parametrize("where", ["challenge", "metadata"])
async def test_a_server_that_wants_more_than_a_page_can_be_asked_for_is_refused(where, world, autojump_clock):
    scopes = [f"scope-{number}" for number in range(900)]
    if where == "challenge":
        world.needs[""] = scopes
    else:
        world.challenges = False
        world.document["scopes_supported"] = scopes
    await refused(world, "asks for 900 scopes")
    assert world.pages == 0


async def test_a_server_that_wants_more_each_time_is_given_up(world, autojump_clock):
    """Nobody has to be there for a program, and its issuer may be the server's own."""
    wanted = [f"{number}-{'x' * 500}" for number in range(100)]
    store = MemoryTokenStorage()
    program = ClientCredentials(client_id="known", client_secret="s3cret", store=store, clock=now)
    async with world.connect(program) as client:
        for number in range(100):
            world.needs["read"] = wanted[: number + 1]
            try:
                await call(client)
            except LoginError as error:
                assert "scopes" in str(error)  # noqa: PT017 - it comes at some time
    assert len(await store.load(world.url)) < 30_000


@pytest.mark.parametrize("back", ["http://[::1?x", "no address", "http://\u2100.example/?x", ""])
async def test_what_is_pasted_and_is_no_address_is_told(back, world, autojump_clock):
    async def paste(page):
        return back

    await refused(world, "belongs to no login that was begun here", open_page=paste)


async def test_another_issuer_than_the_user_names_is_shown_nothing_that_is_kept(world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
    world.calls.clear()
    other = world.move("https://other.example")
    world.document["authorization_servers"] = [world.issuer.name, other.name]
    async with world.connect(world.auth(store=store, issuer=other.name)) as client:
        assert await call(client) == "read"
    assert {token for _, _, token in world.calls if token.startswith("id.example")} == set()
    assert world.pages == 2
