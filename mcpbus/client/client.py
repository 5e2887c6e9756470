"""A client of one server, over whatever connection it is given.

Something that many want looked up anew at once, and that is looked up once for all of them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import msgspec
import trio

from mcpbus.client.errors import ClientError, DisconnectedError, MalformedAnswerError
from mcpbus.client.notifications import tells
from mcpbus.client.pending import ChangeSubscription, OnInputRequest, OnNotification, PendingRequest
from mcpbus.client.session import ClientSession
from mcpbus.client.tracing import TRACER, RequestTracer
from mcpbus.client.wire import check_message, encode_params
from mcpbus.client.yielding import Yielder
from mcpbus.protocol.errors import HEADER_MISMATCH, ProtocolError
from mcpbus.protocol.jsonrpc import JsonRpcRequest
from mcpbus.protocol.meta import SERVER_INFO
from mcpbus.protocol.other_names import CLIENT_IS_CONNECTED
from mcpbus.protocol.revisions import Era, Revision


class SingleFlight:
    """Looks something up for all who have found that what they knew is out of date.

    Args:
        look_up: Looks it up. What it raises, only who had it do so gets; the next one looks it up again.

    Attributes:
        begun: How often that has begun.
    """

    __slots__ = ("_ended", "_look_up", "_turn", "begun")

    def __init__(self, look_up: Callable[[], Awaitable[object]]) -> None:
        self._look_up = look_up
        self._turn = trio.Lock()
        self._ended = 0
        self.begun = 0

    async def do(self, known: int) -> None:
        """Return when it was looked up, by whomever.

        Args:
            known: What `begun` was when what is out of date was used: a look-up that was under way then may have come too early.
        """
        async with self._turn:
            if self._ended <= known:
                self.begun += 1
                await self._look_up()
                self._ended = self.begun


_RETRY = {"inputResponses", "requestState"}
_MOST_ROUNDS = 32
_MOST_PAGES = 1_000
MOST_ITEMS = 10_000
"""Items of a list, from all its pages."""
MOST_LIST_BYTES = 16 * 1024 * 1024
"""Bytes of a list, from all its pages."""
_T = TypeVar("_T")
_SHORTEST_ROUND, _LONGEST_ROUND = 0.05, 1.0
"""Seconds before a call is repeated that was answered with nothing but a state; doubled each time."""


class ServerDescription(msgspec.Struct, frozen=True):
    """What a server says of itself; empty where it says nothing.

    Attributes:
        name: Its name.
        version: Its version.
        instructions: How to use it.
        capabilities: What it offers.
        identity: Its name and version as it says them, with its title and the like.
    """

    name: str
    version: str
    instructions: str
    capabilities: dict[str, Any]
    identity: dict[str, Any] = {}


class InputRequestItem(msgspec.Struct):
    """A question of an ``input_required`` result."""

    method: str
    params: dict[str, Any] = {}


AnswerAll: TypeAlias = Callable[[dict[str, InputRequestItem]], Awaitable[dict[str, Any]]]
"""Answers the questions of one result, each under its key."""


class Client(ClientSession):
    """A client of one server. `Bus.connect` makes one in the same process.

    Args:
        revision: The protocol revision that it speaks.
        send: Sends what it says.
        nursery: For its answers to what a legacy server asks.
        capabilities: What it declares.
        on_input_request: Answers what the server asks.
        hearing: Where the server says what belongs to no request, if not where it says all else.
        pause: Called where an answer was there at once, to let other tasks run.
        scoped: Whether the connection tells to which request belongs what the server says.
        waiting: The messages that the server has not taken yet; None where it takes them immediately.
        info: The name and version that the server is shown.

    Attributes:
        scoped: As given: over HTTP it does. Elsewhere log lines and questions of a server of an older revision are told apart by
            request only while one request is in flight.
        revision: The protocol revision that it speaks.
        capabilities: What it declares; a modern request may declare otherwise in its own ``_meta``.
        stateless: Whether a server of an older revision has opened no session, so that it keeps no state between requests.
        sessions_lost: How many sessions the server has ended, or forgotten.
        initialize_result: What the server answered to the handshake; empty for a modern client.
        discovery: What it answered to ``server/discover``, if it was asked.
        notifications: The notifications that belong to no request and no listen, oldest first, as
            ``(method, params)``; the last 1,024, and 32 MiB of memory.
    """

    if not TYPE_CHECKING:  # type checkers know the arguments

        def __new__(cls, *args: Any, **given: Any) -> Self:
            """Refuse what clients of other libraries are made of: a server, a URL.

            Raises:
                TypeError: The message says how to connect.
            """
            if not isinstance(args[0] if args else given.get("revision"), Revision):
                raise TypeError(CLIENT_IS_CONNECTED)
            return super().__new__(cls)

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        on_notification: OnNotification | None = None,
        on_input_request: OnInputRequest | None = None,
        log_level: str | None = None,
    ) -> dict[str, Any]:
        """Send a request and wait for its result. A cancellation cancels the request.

        What the server asks meanwhile is answered by `on_input_request`, here or of the whole client; in revision 2026-07-28 with
        as many retries as it takes. Without it the result that asks is returned as it is.

        Args:
            method: Its method.
            params: Its parameters; ``_meta`` is completed with what the revision wants.
            on_notification: Called with each notification of this request. Asks for progress. Log lines are
                told apart by request only while one request is in flight, and none was given up in the last 10 s, unless the client is
                `scoped`, and all else is only there. What it raises cancels the request, and is raised here.
            on_input_request: Answers what is asked in this request, as far as that is known: it is where the client is `scoped`, and
                while one request is in flight. If left out, what the client was connected with does.
            log_level: From which level a modern request wants log lines; a legacy session says it with
                ``logging/setLevel``.

        Raises:
            TypeError: Something is not of its type, or the parameters hold what has no JSON form.
            ValueError: They hold half of a surrogate pair, which is no Unicode.
            ProtocolError: The server answered with an error.
            ClientError: There is no answer.
        """
        check_message(method, params)
        if on_notification is not None and not callable(on_notification):
            raise TypeError(
                f"on_notification is a function of a method and its params, not {on_notification!r}"
            )
        if on_input_request is not None and not callable(on_input_request):
            raise TypeError(
                f"on_input_request is an async function of a method and its params, not {on_input_request!r}"
            )
        answering = on_input_request or self._on_question
        answer_all = None if answering is None else partial(_one_by_one, answering)
        return await self.request_in_rounds(
            method,
            params or {},
            answer_all,
            on_notification=on_notification,
            on_input_request=on_input_request,
            log_level=log_level,
        )

    async def request_in_rounds(
        self,
        method: str,
        params: dict[str, Any],
        answer_all: AnswerAll | None,
        *,
        on_notification: OnNotification | None,
        on_input_request: OnInputRequest | None,
        log_level: str | None,
        progress: bool = True,
        shallow: bool = False,
    ) -> dict[str, Any]:
        """Send a request, and as many retries as it takes; see `request`. For whoever passes on together what is asked together.

        Args:
            method: As for `request`, and checked.
            params: Likewise.
            answer_all: Answers what is asked together; None to return the result that asks.
            on_notification: As for `request`.
            on_input_request: Likewise; in older revisions alone.
            log_level: As for `request`.
            progress: Whether to ask for progress, where there is an `on_notification`.
            shallow: Whether the members of the result stay encoded, as `msgspec.Raw`: what is passed on, or is long, need not be decoded.
        """
        options = {"progress": progress, "shallow": shallow}
        tracer = TRACER.get()
        ask = self._ask if tracer is None else partial(self._ask_traced, tracer)
        for turn in range(_MOST_ROUNDS):
            result = await ask(method, params, on_notification, log_level, on_input_request, **options)
            if answer_all is None or _told(result.get("resultType")) != "input_required":
                return result
            params = {key: value for key, value in params.items() if key not in _RETRY}
            if "requestState" in result:
                params["requestState"] = result["requestState"]
            questions = _questions(_told(result.get("inputRequests")))
            if questions:
                params["inputResponses"] = await answer_all(questions)
            else:
                await trio.sleep(min(_SHORTEST_ROUND * 2**turn, _LONGEST_ROUND))
        raise ClientError(f"the server asked {_MOST_ROUNDS} times and did not come to an end")

    async def _ask_traced(
        self, tracer: RequestTracer, method: str, params: dict[str, Any], *arguments: Any, **options: Any
    ) -> dict[str, Any]:
        """Send one request that has a span."""
        if not isinstance(params.get("_meta") or {}, dict):  # it is refused
            return await self._ask(method, params, *arguments, **options)
        with tracer.trace(method, params, self.revision.name) as traced:
            result = await self._ask(method, traced.params, *arguments, **options)
            traced.answered(result)
        return result

    async def _ask(
        self,
        method: str,
        params: dict[str, Any],
        on_notification: OnNotification | None,
        log_level: str | None,
        on_input_request: OnInputRequest | None,
        **options: bool,
    ) -> dict[str, Any]:
        """Send one request. A tool that wants other headers is looked up, and called once more: it was not run (rule X-48)."""
        known = self._tools_lookup.begun
        try:
            return await self._exchange(
                method, params, on_notification, log_level, on_input_request, **options
            )
        except ProtocolError as error:
            if error.code != HEADER_MISMATCH or method != "tools/call" or self.revision.era is Era.LEGACY:
                raise
        await self._tools_lookup.do(known)
        return await self._exchange(method, params, on_notification, log_level, on_input_request, **options)

    @cached_property
    def _tools_lookup(self) -> SingleFlight:
        """Lists the tools for all calls that are refused at once."""
        return SingleFlight(self._list_tools_again)

    async def _list_tools_again(self) -> None:
        with suppress(ProtocolError, ClientError):  # what is wrong then, the call says
            await self.list_tools()

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        on_notification: OnNotification | None = None,
        on_input_request: OnInputRequest | None = None,
        log_level: str | None = None,
    ) -> dict[str, Any]:
        """Call a tool and return the whole result object; see `request`."""
        return await self.request(
            "tools/call",
            {"name": name, "arguments": arguments or {}},
            on_notification=on_notification,
            on_input_request=on_input_request,
            log_level=log_level,
        )

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return the descriptions of all tools, from all pages."""
        return await self._list("tools/list", "tools")

    async def list_resources(self) -> list[dict[str, Any]]:
        """Return the descriptions of all resources, from all pages."""
        return await self._list("resources/list", "resources")

    async def list_resource_templates(self) -> list[dict[str, Any]]:
        """Return the descriptions of all resource templates, from all pages."""
        return await self._list("resources/templates/list", "resourceTemplates")

    async def list_prompts(self) -> list[dict[str, Any]]:
        """Return the descriptions of all prompts, from all pages."""
        return await self._list("prompts/list", "prompts")

    async def describe(self) -> ServerDescription:
        """Return what the server says of itself; a modern one is asked, unless it was."""
        if self.revision.era is Era.LEGACY:
            said = self.initialize_result
            identity = said.get("serverInfo")
        else:
            said = self.discovery = self.discovery or await self.request("server/discover")
            meta = said.get("_meta")
            identity = meta.get(SERVER_INFO) if isinstance(meta, dict) else None
        identity = identity if isinstance(identity, dict) else {}
        capabilities = said.get("capabilities")
        return ServerDescription(
            str(identity.get("name", "")),
            str(identity.get("version", "")),
            str(said.get("instructions") or ""),
            capabilities if isinstance(capabilities, dict) else {},
            identity,
        )

    async def read_resource(self, uri: str) -> list[dict[str, Any]]:
        """Return the contents of a resource."""
        method = "resources/read"
        return _objects(method, await self.request(method, {"uri": uri}), "contents")

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> list[dict[str, Any]]:
        """Return the messages of a prompt."""
        method = "prompts/get"
        result = await self.request(method, {"name": name, "arguments": arguments or {}})
        return _objects(method, result, "messages")

    @asynccontextmanager
    async def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Sequence[str] = (),
        task_ids: Sequence[str] = (),
    ) -> AsyncIterator[ChangeSubscription]:
        """Listen to changes: of lists, of resources, and in revision 2026-07-28 of tasks. Leaving the block ends it.

        In an older revision the resources are subscribed to, one after the other, and it ends with the session. What it
        hears goes to no `on_notification`. Over HTTP there it ends where the server is away for longer than half a minute, too.

        Raises:
            ValueError: The client names tasks, and speaks an older revision.
            ProtocolError: The server refused.
            ClientError: The connection ended before the acknowledgement, or the server tells nothing outside of requests.
        """
        if self.revision.era is Era.LEGACY:
            if task_ids:
                raise ValueError(f"revision {self.revision.name} has no tasks to listen to")
            asked = {"tools": tools, "prompts": prompts, "resources": resources}
            kinds = [kind for kind, wanted in asked.items() if wanted]
            async with self._listen_to_session(kinds, uris) as session_listen:
                yield session_listen
            return
        request_id = next(self._ids)
        wanted = {
            "toolsListChanged": tools,
            "promptsListChanged": prompts,
            "resourcesListChanged": resources,
            "resourceSubscriptions": list(uris),
            **({"taskIds": list(task_ids)} if task_ids else {}),
        }
        listen = self._listens[request_id] = ChangeSubscription()
        pending = self._pending[request_id] = PendingRequest()
        params = {"notifications": wanted, "_meta": self._meta(None, None)}
        try:
            method = "subscriptions/listen"
            self._send(JsonRpcRequest(request_id, method, encode_params(method, params)), pending)
            await listen.acknowledgement(pending)
            yield listen
        finally:
            del self._pending[request_id], self._listens[request_id]
            self._give_up(request_id, pending)

    @asynccontextmanager
    async def _listen_to_session(
        self, kinds: Sequence[str], uris: Sequence[str]
    ) -> AsyncIterator[ChangeSubscription]:
        if self._gone is not None:
            raise DisconnectedError(self._gone)
        listen = ChangeSubscription()
        self._session_listens.add(listen, kinds, uris)
        subscribed = []
        try:
            if self._hearing is not None:
                await self._hearing.opened()
            for uri in uris:
                subscribed.append(uri)  # who does not wait for the answer does not know that it is not
                try:
                    await self.request("resources/subscribe", {"uri": uri})
                except (ProtocolError, TypeError, ValueError):
                    subscribed.pop()
                    raise
            capabilities = (await self.describe()).capabilities
            told = {f"{kind}ListChanged": True for kind in kinds if tells(capabilities, kind)}
            listen.acknowledged = {"notifications": {**told, "resourceSubscriptions": subscribed}}
            yield listen
        finally:
            unheard = self._session_listens.remove(listen)
            for uri in subscribed:
                if uri in unheard:
                    self._unsubscribe(uri)

    def _unsubscribe(self, uri: str) -> None:
        """Have a server tell of a resource no more; nobody waits for its answer."""
        params = msgspec.Raw(msgspec.json.encode({"uri": uri}))
        with suppress(DisconnectedError):  # then there is nothing left to hear of
            self._send(JsonRpcRequest(next(self._ids), "resources/unsubscribe", params), PendingRequest())

    async def _list(self, method: str, member: str) -> list[dict[str, Any]]:
        """Return all items of a list. They are decoded one by one, and other tasks run in between."""
        items: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        size, turn = 0, Yielder()
        for _ in range(_MOST_PAGES):
            page = await self.request_in_rounds(
                method,
                params,
                None,
                on_notification=None,
                on_input_request=None,
                log_level=None,
                shallow=True,
            )
            for item in _decoded(method, page.get(member), list[msgspec.Raw], member):
                size += len(item)
                if len(items) >= MOST_ITEMS or size > MOST_LIST_BYTES:
                    most = f"{MOST_ITEMS:,} items, or than {MOST_LIST_BYTES:,} bytes"
                    raise ClientError(f"the server's answer to {method} has more than {most}")
                items.append(_decoded(method, item, dict[str, Any], member))
                await turn.pause()
            if (cursor := _told(page.get("nextCursor"))) is None:
                return items
            params = {"cursor": cursor}
        raise ClientError(f"the server's answer to {method} has more than {_MOST_PAGES:,} pages")


def _told(value: Any) -> Any:
    """Return the value of a member of a result, be it encoded or not."""
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value


def _decoded(method: str, value: Any, kind: type[_T], member: str) -> _T:
    try:
        return msgspec.json.decode(b"null" if value is None else value, type=kind)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise MalformedAnswerError(f"the server's answer to {method} has no {member}: {fault}") from None


def _objects(method: str, result: dict[str, Any], member: str) -> list[dict[str, Any]]:
    """Return the objects that a result has for a member."""
    try:
        return msgspec.convert(result.get(member), list[dict[str, Any]])
    except msgspec.ValidationError as fault:
        raise MalformedAnswerError(f"the server's answer to {method} has no {member}: {fault}") from None


async def _one_by_one(answer: OnInputRequest, questions: dict[str, InputRequestItem]) -> dict[str, Any]:
    return {key: await answer(question.method, question.params) for key, question in questions.items()}


def _questions(asked: Any) -> dict[str, InputRequestItem]:
    try:
        return msgspec.convert(asked or {}, dict[str, InputRequestItem])
    except msgspec.ValidationError as fault:
        raise MalformedAnswerError(f"the server's questions cannot be read: {fault}") from None
