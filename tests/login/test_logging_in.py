"""A client at a server behind a login: from the first refusal to the answer, and for as long as it stays logged in."""

from functools import partial
from urllib.parse import urlsplit

import pytest
import trio
from internet import Body, answer
from login_world import META, call, now, open_world

from mcpbus.client import (
    ClientCredentials,
    LoginError,
    LoginNeededError,
    LoginRefusedError,
    MemoryTokenStorage,
    StatusError,
    connect_http,
)
from mcpbus.client.oauth.errors import IssuerUnavailableError
from mcpbus.client.oauth.login import decode_login

OLD = "2025-11-25"
ROOT = "/.well-known/oauth-protected-resource"


def stored(store, world):
    """The login that a store has."""
    found = store._logins.get(world.url)
    return None if found is None else decode_login(found, world.url)


@pytest.mark.parametrize("revision", [None, OLD, "2025-03-26"])
async def test_a_login_from_the_first_refusal_to_the_answer(revision, world, autojump_clock):
    async with world.connect(revision=revision) as client:
        assert await call(client) == "read"
    [asked] = world.issuer.asked
    assert (asked["scope"], asked["resource"], world.pages) == ("read", world.url, 1)
    [registered] = [known for known in world.issuer.clients.values() if "client_name" in known]
    assert registered["redirect_uris"] == [asked["redirect_uri"]]
    assert asked["redirect_uri"].startswith("http://127.0.0.1:")
    # Each request of the server's after the first has the token, and nobody else has seen it.
    [(_, _, first), *others] = world.calls
    assert first == ""
    assert {token for _, _, token in others} == {*world.issuer.tokens}
    assert all("authorization" not in visit.headers for visit in world.net.visited("id.example"))


async def test_the_next_connection_is_logged_in_already(world, autojump_clock):
    auth = world.auth()
    for _ in range(2):
        async with world.connect(auth) as client:
            assert await call(client) == "read"
    assert world.pages == 1
    assert sum(token == "" for _, _, token in world.calls) == 1


async def test_another_login_is_kept_apart(world, autojump_clock):
    for _ in range(2):
        async with world.connect() as client:
            await call(client)
    assert world.pages == 2


async def test_a_server_that_asks_for_no_login_gets_none(world, autojump_clock):
    world._guard = lambda request: None
    async with world.connect() as client:
        assert await call(client) == "read"
    assert world.pages == 0
    assert world.net.visited("id.example") == []


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer mine"}, {"authorization": "Basic eDp5"}])
async def test_who_says_itself_who_it_is_logs_in_nowhere(headers, world, autojump_clock):
    with pytest.raises(StatusError, match="401"):
        async with world.connect(headers=headers):
            pass
    assert world.pages == 0


async def test_without_auth_nothing_is_different(world, autojump_clock):
    with pytest.raises(StatusError, match="401"):
        async with connect_http(world.url):
            pass


@pytest.mark.parametrize(
    "fields", [{}, {"www_authenticate": "Negotiate"}, {"www_authenticate": 'Basic realm="x"'}]
)
async def test_a_challenge_of_another_scheme_leads_to_the_metadata(fields, world, autojump_clock):
    guard = world._guard

    def guard_otherwise(request):
        refused = guard(request)
        return refused if refused is None or refused.status_code != 401 else answer(401, **fields)

    world._guard = guard_otherwise
    world.needs = {"": []}
    async with world.connect() as client:
        assert await call(client) == "read"
    assert world.pages == 1


async def test_a_server_that_takes_no_token_is_told_from_one_that_does(world, autojump_clock):
    world._guard = lambda request: answer(401, www_authenticate='Basic realm="x"')
    world.document = None
    with pytest.raises(LoginError, match="if it takes a token or a key, give that as a header"):
        async with world.connect():
            pass
    assert world.pages == 0


# -- where it is found out --------------------------------------------------------------------------


@pytest.mark.parametrize("challenges", [True, False])
async def test_metadata_is_looked_for_where_the_challenge_says_or_else_where_it_may_be(
    challenges, world, autojump_clock
):
    world.challenges = challenges
    world.document["scopes_supported"] = ["read", "more"]
    async with world.connect() as client:
        await call(client)
    assert world.issuer.asked[0]["scope"] == ("read" if challenges else "read more")
    assert [visit.path for visit in world.net.visited("mcp.example")][:2] == ["/mcp", META]


async def test_metadata_may_be_elsewhere_where_the_challenge_says_so(world, autojump_clock):
    place = "https://meta.example/of/mcp"

    async def meta(request):
        return answer(json=world.document)

    world.net.hosts["meta.example"] = meta
    guard = world._guard

    def guard_elsewhere(request):
        found = guard(request)
        return found and answer(401, www_authenticate=f'Bearer resource_metadata="{place}", scope="read"')

    world._guard = guard_elsewhere
    async with world.connect() as client:
        assert await call(client) == "read"


@pytest.mark.parametrize(
    "place",
    ["http://mcp.example/.well-known/oauth-protected-resource/mcp", "https://mcp.example/nothing", "x"],
)
async def test_a_challenge_that_leads_nowhere_is_made_up_for(place, world, autojump_clock):
    """A server behind a proxy that ends TLS takes itself to be at http://."""
    guard = world._guard

    def guard_wrongly(request):
        found = guard(request)
        return found and answer(401, www_authenticate=f'Bearer resource_metadata="{place}", scope="read"')

    world._guard = guard_wrongly
    async with world.connect() as client:
        assert await call(client) == "read"
    assert all(visit.url.startswith("https://") for visit in world.net.visits)


async def test_a_page_for_everything_is_no_metadata(world, autojump_clock):
    """As those of web applications that answer whatever they do not know with their first page."""
    world.challenges = False
    world.instead = {
        META: lambda request: answer(body=b"<!doctype html>"),
        ROOT: lambda request: answer(json=world.document),
    }
    async with world.connect() as client:
        assert await call(client) == "read"


@pytest.mark.parametrize("status", [201, 400, 403, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("challenges", [True, False])
async def test_a_failure_at_one_place_leaves_the_other_places_to_ask(
    status, challenges, world, autojump_clock
):
    """A proxy in front of a server may forward only some of the places."""
    world.challenges, world.document["scopes_supported"] = challenges, ["read"]
    world.instead = {META: lambda request: answer(status), ROOT: lambda request: answer(json=world.document)}
    place = "/.well-known/oauth-authorization-server"
    world.issuer.instead = {place: answer(status)}
    world.issuer.instead["/.well-known/openid-configuration"] = answer(json=world.issuer.metadata)
    async with world.connect() as client:
        assert await call(client) == "read"


async def test_a_login_at_another_issuer_outlasts_a_failure_of_the_servers_metadata(world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
        # Its own origin has metadata of an issuer, too, at which it has not logged in.
        own = {**world.issuer.metadata, "issuer": "https://mcp.example"}
        world.instead["/.well-known/oauth-authorization-server"] = answer(json=own)
        world.instead[META] = world.instead[ROOT] = lambda request: answer(502)
        world.issuer.tokens.clear()
        before = stored(store, world)
        with pytest.raises(IssuerUnavailableError, match="answered 502"):
            await call(client)
    assert stored(store, world) == before


@pytest.mark.parametrize("status", [201, 202])
async def test_an_issuer_may_answer_with_another_status_of_success(status, world, autojump_clock):
    """Issuers answer 201 where a token, or a client, is created."""
    for name in ("_issue", "_register"):
        made = getattr(world.issuer, name)

        def otherwise(*given, made=made):
            said = made(*given)
            said.status_code = status
            return said

        setattr(world.issuer, name, otherwise)
    world.issuer.life = 60.0
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        assert await call(client) == "read"
        first = stored(store, world).tokens
        await trio.sleep(60)  # the token expires, and is renewed
        assert await call(client) == "read"
    assert stored(store, world).tokens.refresh != first.refresh
    assert world.pages == 1
    own = ClientCredentials(client_id="known", client_secret="s3cret", issuer="https://id.example", clock=now)
    async with world.connect(own) as client:
        assert await call(client) == "read"


@pytest.mark.parametrize("error", ['error="insufficient_scope", ', ""])
async def test_a_403_that_names_scopes_to_a_request_without_a_token_leads_to_a_login(
    error, world, autojump_clock
):
    guard = world._guard

    def guard_otherwise(request):
        if b"tools/call" not in request.content:
            return None
        refused = guard(request)
        forbidden = refused is not None and refused.status_code == 401
        return answer(403, www_authenticate=f'Bearer {error}scope="read"') if forbidden else refused

    world._guard = guard_otherwise
    async with world.connect() as client:
        assert world.pages == 0
        assert await call(client) == "read"
    assert [asked["scope"] for asked in world.issuer.asked] == ["read"]


async def test_the_scopes_that_a_token_of_the_users_own_lacks_are_named(world, autojump_clock):
    world._guard = lambda request: answer(
        403, www_authenticate='Bearer error="insufficient_scope", scope="a b"'
    )
    with pytest.raises(
        StatusError, match=r"403.*log in, or give a token with the scopes 'a b' in a header field"
    ):
        async with world.connect(headers={"Authorization": "Bearer mine"}):
            pass
    assert world.pages == 0


@pytest.mark.parametrize("failing", [(), (META,), (META, ROOT)])
async def test_a_server_of_2025_03_26_is_its_own_issuer(failing, autojump_clock):
    async with open_world(issuer="https://mcp.example") as world:
        world.document, world.challenges = None, False
        world.instead = {path: lambda request: answer(502) for path in failing}
        issuer = world.issuer

        async def serve(request):
            of_issuer = request.url.path.startswith("/.well-known/oauth-a") or request.url.path in {
                "/register",
                "/token",
            }
            return await (issuer(request) if of_issuer else world._serve(request))

        world.net.hosts["mcp.example"] = serve
        # A server whose metadata cannot be asked for is not guessed at.
        for metadata in ({},) if failing else ({}, {"issuer": None}):
            issuer.metadata = {**issuer.metadata, **metadata}
            if metadata:
                issuer.instead["/.well-known/oauth-authorization-server"] = answer(404)
            async with world.connect(world.auth(scopes=["read"])) as client:
                assert await call(client) == "read"
            assert issuer.asked[-1]["resource"] == world.url


async def test_a_server_that_wants_a_key_says_so_by_its_silence(world, autojump_clock):
    world.document, world.challenges = None, False
    with pytest.raises(LoginError, match="give that as a header"):
        async with world.connect():
            pass


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_metadata_that_cannot_be_had_now_is_not_done_without(status, world, autojump_clock):
    world.instead[META] = lambda request: answer(status)
    with pytest.raises(LoginError, match=f"answered {status}"):
        async with world.connect():
            pass
    assert world.net.visited("id.example") == []


# -- as whom ----------------------------------------------------------------------------------------


async def test_a_client_that_the_issuer_knows_registers_nowhere(world, autojump_clock):
    auth = world.auth(client_id="known", client_secret="s3cret", redirect="http://localhost/back")
    async with world.connect(auth) as client:
        assert await call(client) == "read"
    assert set(world.issuer.clients) == {"known"}
    assert world.issuer.asked[0]["redirect_uri"].startswith("http://localhost:")
    assert world.issuer.asked[0]["redirect_uri"].endswith("/back")


async def test_what_was_given_once_need_not_be_given_again(world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(client_id="known", client_secret="s3cret", store=store)) as client:
        await call(client)
    world.issuer.take_back()
    async with world.connect(world.auth(store=store)) as client:
        assert await call(client) == "read"
    assert [asked["client_id"] for asked in world.issuer.asked] == ["known", "known"]


async def test_a_client_with_another_name_does_not_use_the_login_of_the_last(world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
    async with world.connect(world.auth(client_id="known", client_secret="s3cret", store=store)) as client:
        await call(client)
    assert [asked["client_id"] for asked in world.issuer.asked][1] == "known"
    assert stored(store, world).client.id == "known"


async def test_a_client_may_be_known_by_a_document(world, autojump_clock):
    document = "https://app.example/client.json"
    world.issuer.metadata["client_id_metadata_document_supported"] = True
    world.issuer.clients[document] = {}
    async with world.connect(world.auth(client_metadata_url=document)) as client:
        assert await call(client) == "read"
    assert world.issuer.asked[0]["client_id"] == document
    assert not [visit for visit in world.net.visits if visit.path == "/register"]


async def test_an_issuer_that_knows_this_machine_by_its_name_alone(world, autojump_clock):
    register = world.issuer._register

    def strict(request):
        if b"127.0.0.1" in request.content:
            return answer(400, json={"error": "invalid_redirect_uri"})
        return register(request, {})

    world.issuer.instead["/register"] = strict
    async with world.connect() as client:
        assert await call(client) == "read"
    assert world.issuer.asked[0]["redirect_uri"].startswith("http://localhost:")


async def test_an_issuer_that_lets_nobody_register_says_what_to_give(world, autojump_clock):
    world.issuer.metadata["registration_endpoint"] = None
    with pytest.raises(LoginNeededError, match="client_id"):
        async with world.connect():
            pass
    assert world.pages == 0


async def test_a_program_logs_in_for_itself(world, autojump_clock):
    auth = ClientCredentials(client_id="known", client_secret="s3cret", clock=world.issuer.clock)
    async with world.connect(auth) as client:
        assert await call(client) == "read"
        assert await call(client, "write") == "written"
        await trio.sleep(world.issuer.life + 1)
        assert await call(client) == "read"
    assert world.pages == 0
    forms = [visit.form for visit in world.net.visits if visit.path == "/token"]
    assert [(form["grant_type"], form["scope"]) for form in forms] == [
        ("client_credentials", "read"),
        ("client_credentials", "read write"),
        ("client_credentials", "read write"),
    ]


async def test_a_program_may_sign_instead_of_showing_a_secret(world, autojump_clock):
    made = []

    def make(issuer):
        made.append(issuer)
        return "signed"

    world.issuer.clients["signer"] = {}
    auth = ClientCredentials(client_id="signer", make_assertion=make, clock=world.issuer.clock)
    async with world.connect(auth) as client:
        assert await call(client) == "read"
    assert made == ["https://id.example"]
    [form] = [visit.form for visit in world.net.visits if visit.path == "/token"]
    assert (form["client_assertion"], form["client_id"]) == ("signed", "signer")
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


# -- the person -------------------------------------------------------------------------------------


class Shower:
    def __init__(self, world):
        self._world = world

    async def __call__(self, page):
        return self._world.issuer.authorize(page)


@pytest.mark.parametrize(
    "show",
    [
        lambda world: world.issuer.authorize,
        Shower,
        lambda world: lambda page: Shower(world)(f"{page}"),
        lambda world: partial(Shower(world).__call__),
    ],
    ids=["function", "object", "what returns an awaitable", "partial"],
)
async def test_a_page_may_be_shown_by_whatever_can_be_called(show, world):
    async with world.connect(world.auth(open_page=show(world))) as client:
        assert await call(client) == "read"


async def test_nobody_is_there(world, autojump_clock):
    with pytest.raises(LoginNeededError, match=f"`mcpbus login {world.url}`"):
        async with world.connect(world.auth(open_page=None)):
            pass
    assert not [visit for visit in world.net.visits if visit.path == "/register"]


async def test_a_person_who_does_not_come_back_is_not_waited_for_for_ever(world, autojump_clock):
    world.absent = 1000
    with pytest.raises(LoginNeededError, match=r"nobody has logged in at https://id\.example within 60 s"):
        async with world.connect(world.auth(timeout=60)):
            pass
    assert 60 <= trio.current_time() < 120


async def test_a_person_who_does_not_agree(world, autojump_clock):
    async def decline(page):
        return world.issuer.authorize(page, code=None, error="access_denied", error_description="not today")

    with pytest.raises(LoginRefusedError, match="access_denied: not today") as raised:
        async with world.connect(world.auth(open_page=decline)):
            pass
    assert raised.value.code == "access_denied"


async def test_a_page_that_cannot_be_shown_is_told(world):
    def fail(page):
        raise OSError(page)

    with pytest.raises(LoginError, match="open_page raised OSError") as raised:
        async with world.connect(world.auth(open_page=fail)):
            pass
    assert "state" not in str(raised.value)


async def test_whoever_shows_the_page_is_ended_once_the_person_is_back(world):
    ended = []

    async def show(page):
        try:
            # The browser comes back to where one listens, in its own time.
            back = urlsplit(world.issuer.authorize(page))
            async with await trio.open_tcp_stream(back.hostname, back.port) as stream:
                head = f"GET {back.path}?{back.query} HTTP/1.1\r\nHost: {back.netloc}\r\n\r\n"
                await stream.send_all(head.encode())
                await trio.sleep_forever()
        finally:
            ended.append(page)

    async with world.connect(world.auth(open_page=show)) as client:
        assert await call(client) == "read"
    assert len(ended) == 1


# -- staying logged in ------------------------------------------------------------------------------


async def test_a_token_is_renewed_before_it_expires(world, autojump_clock):
    async with world.connect() as client:
        await call(client)
        await trio.sleep(world.issuer.life - 20)
        assert await call(client) == "read"
        await trio.sleep(10 * world.issuer.life)
        assert await call(client) == "read"
    assert world.pages == 1
    assert len({token for _, _, token in world.calls}) == 4
    # The server has not refused any but the first.
    assert sum(token == "" for _, _, token in world.calls) == 1
    forms = [visit.form for visit in world.net.visits if visit.path == "/token"]
    assert [form["grant_type"] for form in forms] == ["authorization_code", "refresh_token", "refresh_token"]
    assert {form["resource"] for form in forms} == {world.url}


async def test_a_token_that_the_server_refuses_early_is_renewed(world, autojump_clock):
    async with world.connect() as client:
        await call(client)
        world.issuer.tokens.clear()
        assert await call(client) == "read"
    assert world.pages == 1


async def test_a_login_that_was_taken_back_is_followed_by_another_one(world, autojump_clock):
    async with world.connect() as client:
        await call(client)
        world.issuer.take_back()
        assert await call(client) == "read"
    assert world.pages == 2


async def test_a_login_that_was_taken_back_after_its_token_expired_likewise(world, autojump_clock):
    async with world.connect() as client:
        await call(client)
        world.issuer.take_back()
        await trio.sleep(2 * world.issuer.life)
        assert await call(client) == "read"
    assert world.pages == 2


async def test_an_issuer_that_is_down_before_the_token_expires_is_waited_for(world, autojump_clock):
    async with world.connect() as client:
        await call(client)
        await trio.sleep(world.issuer.life - 20)
        world.net.down.add("id.example")
        assert await call(client) == "read"
        world.net.down.clear()
        await trio.sleep(10)
        assert await call(client) == "read"
    assert world.pages == 1


async def test_an_issuer_that_is_down_takes_no_login_away(world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
        await trio.sleep(2 * world.issuer.life)
        world.net.down.add("id.example")
        with pytest.raises(LoginError, match=r"id\.example"):
            await call(client)
        assert stored(store, world).tokens.refresh is not None
        world.net.down.clear()
        await trio.sleep(10)
        assert await call(client) == "read"
    assert world.pages == 1


async def test_a_refresh_token_that_is_not_renewed_is_kept(world, autojump_clock):
    world.issuer.rotates = False
    token = world.issuer._issue

    def issue_once(*given):
        found = token(*given)
        if len(world.issuer.tokens) > 1:
            import json

            said = json.loads(found.stream.pieces[0])
            del said["refresh_token"]
            return answer(json=said)
        return found

    world.issuer._issue = issue_once
    async with world.connect() as client:
        for _ in range(3):
            await trio.sleep(2 * world.issuer.life)
            assert await call(client) == "read"
    assert world.pages == 1


async def test_a_login_outlives_the_program(world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)) as client:
        await call(client)
    await trio.sleep(5 * world.issuer.life)
    world.calls.clear()
    async with world.connect(world.auth(store=store, open_page=None)) as client:
        assert await call(client) == "read"
    assert {token for _, _, token in world.calls} == {[*world.issuer.tokens][-1]}


@pytest.mark.parametrize("change", [lambda _: b"{}", lambda kept: kept.replace(b'"reach": 0', b'"reach": 7')])
async def test_what_is_stored_and_cannot_be_read_is_told(change, world, autojump_clock):
    store = MemoryTokenStorage()
    async with world.connect(world.auth(store=store)):
        pass
    kept = await store.load(world.url)
    assert b'"reach": 0' in kept
    await store.save(world.url, change(kept))
    with pytest.raises(LoginError, match="mcpbus logout"):
        async with world.connect(world.auth(store=store)):
            pass


async def test_a_store_that_fails_is_told(world, autojump_clock):
    class Broken(MemoryTokenStorage):
        async def save(self, server, login):
            raise ValueError(login)

    with pytest.raises(LoginError, match="failed: ValueError") as raised:
        async with world.connect(world.auth(store=Broken())):
            pass
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("error", "told"), [(LoginError("it is locked"), "^it is locked$"), (KeyError("x"), "failed: KeyError")]
)
async def test_a_store_that_fails_while_a_person_is_waited_for_is_told(error, told, world, autojump_clock):
    class Failing(MemoryTokenStorage):
        async def load(self, server):
            if world.pages:
                raise error

    world.absent = 60
    with pytest.raises(LoginError, match=told):
        async with world.connect(world.auth(store=Failing())):
            pass
    assert trio.current_time() < 5


async def test_a_program_whose_own_function_fails_is_told(world, autojump_clock):
    def sign(issuer):
        raise PermissionError("the key")

    program = ClientCredentials(client_id="known", make_assertion=sign, clock=lambda: 0.0)
    with pytest.raises(LoginError, match="failed: PermissionError") as raised:
        async with world.connect(program):
            pass
    assert isinstance(raised.value.__cause__, PermissionError)


async def test_a_server_that_refuses_what_was_just_issued_is_told_so_once(world, autojump_clock):
    world._guard = lambda request: answer(
        401, www_authenticate='Bearer scope="read", error_description="the moon is full"'
    )
    with pytest.raises(
        LoginError, match=r"refuses the token that https://id\.example has just issued.*the moon is full"
    ):
        async with world.connect():
            pass
    assert world.pages == 1


async def test_a_stream_on_which_nobody_waits_logs_nobody_in_and_is_there_once_somebody_has(
    world, autojump_clock
):
    """What a server of an older revision says outside of requests is not worth a page that opens in the night."""
    serve = world._serve

    async def serve_stream(request):
        if request.method != "GET" or request.url.path != "/mcp":
            return await serve(request)
        return world._guard(request) or answer(
            body=Body(b": x\n\n", seconds=60), content_type="text/event-stream"
        )

    def tokens_of_streams():
        return [
            visit.headers.get("authorization", "").removeprefix("Bearer ")
            for visit in world.net.visits
            if (visit.verb, visit.path) == ("GET", "/mcp")
        ]

    world.net.hosts["mcp.example"] = serve_stream
    async with world.connect(revision=OLD, on_input_request=lambda method, params: None) as client:
        await call(client)
        await trio.sleep(10)
        assert tokens_of_streams()[-1] in world.issuer.tokens
        world.issuer.take_back()
        await trio.sleep(80_000)
        assert world.pages == 1
        assert tokens_of_streams()[-1] not in world.issuer.tokens
        assert len(tokens_of_streams()) < 5
        assert await call(client) == "read"
        await trio.sleep(10)
        assert tokens_of_streams()[-1] in world.issuer.tokens
    assert world.pages == 2
