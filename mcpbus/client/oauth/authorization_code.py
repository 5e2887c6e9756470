"""The login of a person, in a browser: what may be said of how, and how it goes.

How a page is shown to the person in front of this machine.
"""

import inspect
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import attrs
import trio

from mcpbus.client.oauth.client_registration import (
    ClientIdentity,
    can_reuse_registration,
    check_issuer,
    find_client,
    registration,
    validate_registration,
)
from mcpbus.client.oauth.discovery import DiscoveryResult
from mcpbus.client.oauth.errors import (
    LoginError,
    LoginNeededError,
    LoginRefusedError,
    MetadataError,
    sanitize,
)
from mcpbus.client.oauth.flow import (
    ask_for_tokens,
    check_client,
    check_document,
    check_issuer_name,
    check_redirect,
    check_store,
    listed_scopes,
)
from mcpbus.client.oauth.http import OAuthHttp
from mcpbus.client.oauth.login import REGISTERED, KnownClient, Login
from mcpbus.client.oauth.redirect import (
    AuthorizationRequest,
    RedirectResult,
    RedirectServer,
    belongs,
    make_request,
    open_listener,
    validate_redirect,
)
from mcpbus.client.oauth.storage import MemoryTokenStorage, TokenStorage, by_command
from mcpbus.client.oauth.token_requests import FORGOTTEN, code_token_request
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.validators import check_positive, check_text, flag

# In a process of its own: browsers write to standard output, which may be the protocol's. It takes no module from where it is started.
_OPEN: Final = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


async def can_open(url: str) -> bool:
    """Open a page in the browser, without a shell; tell whether there is one."""
    ended = await trio.run_process(
        [sys.executable, "-I", "-c", _OPEN, url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        # Without which there are no browsers for terminals: they would wait for a person who does not see them.
        env={name: value for name, value in os.environ.items() if name != "TERM"},
    )
    return ended.returncode == 0


async def open_browser(url: str) -> None:
    """Open a page in the browser.

    Raises:
        LoginNeededError: There is none.
    """
    if not await can_open(url):
        raise LoginNeededError(
            "no browser can be opened here: `mcpbus login URL` logs in from a terminal, or open_page= shows the page to somebody"
        )


OpenPage: TypeAlias = Callable[[str], Awaitable[str | None] | str | None]
"""Shows somebody the page to log in at; see `OAuth`."""

_BAD_REDIRECT = "invalid_redirect_uri"


@explained
@attrs.frozen(kw_only=True)
class OAuth:
    """Logs a person in to a server that asks for it, in a browser: ``connect_http(url, auth=OAuth())``.

    Nothing has to be given for servers whose issuer lets clients register by themselves. Logins are kept in `store`, and one is for
    all that share it: connections, tasks, and programs.

    Attributes:
        client_id: The name by which the issuer knows this client, where it was registered there by hand.
        client_secret: By what it proves that. Name the `issuer`, too: to whichever one the server names at the first login, it is shown.
        client_metadata_url: Where this client's metadata is, for issuers that read it there instead of registering it.
        client_name: What people are told that the client is called.
        issuer: The only issuer to log in at. It may be in a private network.
        scopes: What to ask for, whatever the server says.
        redirect: The port on 127.0.0.1 at which the browser comes back, or the whole address, for a client that is known by it; any
            free one by default.
        store: Where logins are kept; by default in memory.
        open_page: Is given the URL of the page to log in at, and shows it to the person; by default in the browser of this machine. A
            plain function is run in a thread. An async one may go on, and is cancelled once the person is back. It may return the
            address to which the browser was sent back, where that is none of this machine. None has only such logins used as are kept.
        timeout: Seconds that the person has.
        assume_pkce: Whether an issuer that does not say that it supports PKCE is taken to, as those of Microsoft and Amazon are.
        clock: Tells the time, in seconds since the epoch.
    """

    client_id: str | None = None
    client_secret: str | None = attrs.field(default=None, repr=False)
    client_metadata_url: str | None = None
    client_name: str = "mcpbus"
    issuer: str | None = None
    scopes: Sequence[str] = ()
    redirect: int | str | None = None
    store: TokenStorage = attrs.field(factory=MemoryTokenStorage)
    open_page: OpenPage | None = open_browser
    timeout: float = 300.0
    assume_pkce: bool = attrs.field(default=False, validator=flag)
    clock: Callable[[], float] = attrs.field(default=time.time, repr=False)

    def __attrs_post_init__(self) -> None:
        """Refuse what cannot be right.

        Raises:
            TypeError: Something is of another type; the message says what to write.
            ValueError: Something cannot be right; likewise.
        """
        owner = "OAuth"
        check_client(owner, self.client_id, self.client_secret)
        # Not by a converter, of which one type checker makes a descriptor that is no `Grant`'s.
        object.__setattr__(self, "scopes", listed_scopes(self.scopes))
        check_text(owner, client_name=self.client_name)
        check_positive(owner, timeout=self.timeout)
        check_store(owner, self.store)
        if self.client_metadata_url is not None:
            check_document(owner, self.client_metadata_url)
        if self.issuer is not None:
            check_issuer_name(owner, self.issuer)
        if self.redirect is not None:
            check_redirect(owner, self.redirect)
        if self.open_page is not None and not callable(self.open_page):
            raise TypeError(f"{owner}: open_page is a function of a URL, not {self.open_page!r}")

    @property
    def client_identity(self) -> ClientIdentity:
        """By what the client may be known."""
        return ClientIdentity(
            self.client_id, self.client_secret, self.client_metadata_url, self.client_name, self.issuer
        )

    @property
    def login_timeout(self) -> float:
        """How long somebody may take."""
        return self.timeout

    def without_person(self) -> "OAuth":
        """Return the same for where nobody is."""
        return attrs.evolve(self, open_page=None)

    async def fetch_tokens(
        self, web: OAuthHttp, found: DiscoveryResult, scopes: Sequence[str], before: Login | None
    ) -> Login:
        """See `Grant.fetch_tokens`."""
        if self.open_page is None:
            by_hand = ""
            if (
                found.guessed
            ):  # many of those that do not say who issues tokens have theirs from somewhere else
                by_hand = "; or give its token in a header field, such as 'Authorization: Bearer TOKEN'"
            raise LoginNeededError(
                f"{found.server} asks for a login, and nobody is here to log in: `{by_command('login', found.server, self.store)}` does, in a terminal{by_hand}"
            )
        introduction, issuer = self.client_identity, found.issuer
        check_issuer(introduction, issuer, before)
        if issuer.authorization_endpoint is not None:
            web.check_page(issuer.authorization_endpoint)
        client = find_client(introduction, issuer, before)
        # A client whose tokens are no good any more its issuer may have forgotten, too, and would show the person an error.
        last = before.client if before is not None and before.tokens is not None else None
        preferred = last.redirect if last is not None and last.how == REGISTERED else ""
        async with open_listener(self.redirect, preferred) as listener:
            redirect = listener.redirect
            if client is None and last is not None and before is not None and not before.page_unanswered:
                same = before.issuer.name == issuer.name
                client = (
                    last if same and can_reuse_registration(last, redirect, scopes, self.clock()) else None
                )
            forgotten = False
            if client is not None:
                try:
                    return await self._log_in_as(web, found, client, redirect, scopes, listener)
                except LoginRefusedError as error:
                    forgotten = client.how == REGISTERED and error.code in FORGOTTEN
                    if not forgotten:
                        raise
            try:
                client = await self._register(web, found, listener, scopes)
            except LoginError as error:
                error.person_asked = forgotten
                raise
            return await self._log_in_as(web, found, client, client.redirect, scopes, listener)

    async def _log_in_as(  # noqa: PLR0917 - each is another thing
        self,
        web: OAuthHttp,
        found: DiscoveryResult,
        client: KnownClient,
        redirect: str,
        scopes: Sequence[str],
        listener: RedirectServer,
    ) -> Login:
        """Log the person in as a client that the issuer should know."""
        assert self.open_page is not None  # noqa: S101 - `fetch_tokens` has refused
        request = make_request(
            found.issuer,
            client,
            redirect,
            resource=found.resource,
            scopes=scopes,
            assume_pkce=self.assume_pkce,
        )
        try:
            code = await self._log_in(request, listener, self.open_page)
            form = code_token_request(code, request, found.resource)
            tokens = await ask_for_tokens(web, found.issuer, client, form, clock=self.clock)
        except LoginError as error:
            error.person_asked = True
            raise
        return Login(found.resource, found.issuer, client, tuple(scopes), tokens)

    async def _register(
        self, web: OAuthHttp, found: DiscoveryResult, listener: RedirectServer, scopes: Sequence[str]
    ) -> KnownClient:
        """Register, with an address that the issuer takes: some know this machine by its number alone, some by its name."""
        issuer = found.issuer
        assert issuer.registration_endpoint is not None  # noqa: S101 - else there is a client, or an error
        addresses = [listener.redirect, *([listener.as_localhost()] if self.redirect is None else ())]
        failure: LoginRefusedError | None = None
        for redirect in addresses:
            asked = registration(self.client_name, issuer, redirect, scopes, found.listed or ())
            answer = await web.post_json(issuer.registration_endpoint, asked)
            try:
                return validate_registration(answer.status, answer.document or {}, asked, issuer)
            except LoginRefusedError as error:
                if found.guessed:
                    raise MetadataError(
                        f"{found.server} refuses who brings no token, and does not say who issues them: "
                        "if it takes a token or a key, give that as a header"
                    ) from None
                failure = failure or error
                if error.code != _BAD_REDIRECT:
                    break
        assert failure is not None  # noqa: S101 - there is an address
        raise failure

    async def _log_in(
        self, request: AuthorizationRequest, listener: RedirectServer, open_page: OpenPage
    ) -> str:
        """Show the person the page, and wait until they are back; return the code that they come with."""
        outcome: list[RedirectResult[str]] = []

        def judge(query: str) -> RedirectResult[str] | None:
            return _judge(query, request) if belongs(query, request) else None

        async def listen() -> None:
            outcome.append(await listener.receive(judge))
            nursery.cancel_scope.cancel()

        async def show() -> None:
            back = await _show(open_page, request.url)
            if isinstance(back, LoginError):
                outcome.append(RedirectResult(failure=back))
            elif back is not None:
                outcome.append(_judge(back.strip().partition("?")[2].partition("#")[0], request))
            if outcome:
                nursery.cancel_scope.cancel()

        with trio.move_on_after(self.timeout):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen)
                nursery.start_soon(show)
        if not outcome:
            raise LoginNeededError(
                f"nobody has logged in at {sanitize(request.issuer.name)} within {self.timeout:g} s"
            )
        judged = outcome[0]
        if judged.failure is not None:
            raise judged.failure
        assert judged.value is not None  # noqa: S101 - it is one of the two
        return judged.value


def _judge(query: str, request: AuthorizationRequest) -> RedirectResult[str]:
    try:
        return RedirectResult(validate_redirect(query, request))
    except LoginError as failure:
        return RedirectResult(failure=failure)


async def _show(open_page: OpenPage, url: str) -> str | LoginError | None:
    """Have a page shown, by a function of either kind; return where the browser was sent back to, if it tells, or what went wrong."""
    try:
        if inspect.iscoroutinefunction(open_page):
            shows: Any = open_page(url)
        else:
            # In a list, since trio takes what returns an awaitable for a mistake: of a callable object one cannot tell before.
            [shows] = await trio.to_thread.run_sync(lambda: [open_page(url)], abandon_on_cancel=True)
        back = await shows if inspect.isawaitable(shows) else shows
    except LoginError as error:
        return error
    except Exception as error:  # noqa: BLE001 - whoever waits for the login is told
        failure = LoginError(
            f"the page to log in at could not be shown: open_page raised {type(error).__name__}"
        )
        failure.__cause__ = error
        return failure
    return back if isinstance(back, str) else None
