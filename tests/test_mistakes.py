"""What somebody new to mcpbus writes, and the one sentence that says what to write instead."""

import asyncio
import enum
import inspect
import re
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial, wraps
from pathlib import PurePosixPath
from typing import Annotated

import attrs
import msgspec
import pytest
import trio
import uvicorn
from msgspec import Meta

import mcpbus
import mcpbus.asyncio
import mcpbus.auth
import mcpbus.cluster
import mcpbus.middleware
import mcpbus.stores
import mcpbus.tasks
import mcpbus.testing
from mcpbus import (
    Context,
    Depends,
    Elicit,
    ElicitUrl,
    HttpOptions,
    Icon,
    Image,
    ImageContent,
    Limits,
    PromptMessage,
    ProtocolError,
    Proxy,
    Sample,
    ServeOptions,
    Server,
    TextContent,
    ToolAnnotations,
    ToolResult,
    tool,
)
from mcpbus.auth import (
    AnyTokenVerifier,
    IntrospectionVerifier,
    JwtVerifier,
    ResourceServer,
    StaticTokenVerifier,
)
from mcpbus.client import connect_http, connect_process
from mcpbus.cluster import RedisReplicas
from mcpbus.middleware import (
    RateLimitingMiddleware,
    ResponseCachingMiddleware,
    ResponseLimitingMiddleware,
    RetryMiddleware,
    StructuredLoggingMiddleware,
    TimingMiddleware,
)
from mcpbus.serving import CannotListenError
from mcpbus.stores import MemoryEventStore
from mcpbus.tasks import MemoryTaskStore, TaskSupport
from mcpbus.testing import open_bus, open_client, open_probe

# Annotations are read when a function is registered, from its module.
Elsewhere = type("Context", (), {"__module__": "mcp.server.fastmcp"})


class Search(msgspec.Struct):
    what: str = "all"
    where: PurePosixPath = PurePosixPath("/x")
    back: "list[Search]" = []


class Mood(msgspec.Struct):
    face: str = "\ud83d"


def plain(city: str) -> str:
    return city


def in_a_thread(function):
    @wraps(function)
    async def run(*given):
        return await trio.to_thread.run_sync(function, *given)

    return run


def passes_on(call, call_next):
    return call_next(call)


def wants_more(name: str, city: str, country: str) -> str:
    return city


class Weather:
    def forecast(self, city: str) -> str:
        return city

    @classmethod
    def here(cls) -> str:
        return ""


async def bare_context(ctx, city: str) -> str: ...
def bare_sync_context(ctx, city: str) -> str: ...
async def foreign_context(ctx: Elsewhere) -> str: ...
async def half_of_an_emoji(mood: str = "\ud83d") -> None: ...
async def moody() -> Mood: ...
async def default_without_form(city: str, days: int = object()) -> str: ...
async def default_of_its_own(data: bytes = memoryview(b"x")) -> str: ...
async def opaque(where: socket.socket) -> str: ...
async def header_for_none(region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "R"})] | None): ...
async def generator_lifespan(server):
    yield


@contextmanager
def plain_lifespan(server):
    yield


async def lifespan_without_yield(server): ...


@asynccontextmanager
async def lifespan_without_server():
    yield


@asynccontextmanager
async def right_lifespan(server):
    yield


async def middleware(invocation, call_next): ...


class Timing:
    async def __call__(self, invocation, call_next): ...


async def async_visible(principal, tool): ...


def plain_authenticate(head):
    return "ada"


def called():
    coroutine = bare_context(None, "")
    coroutine.close()
    return coroutine


BY_HAND = "register it of an instance: server.add_"

REGISTERING = {
    "a resource without a URI": (lambda s: s.resource(plain), 'write @server.resource("data://plain")'),
    "a function where the URI stands": (lambda s: s.add_resource(plain, "x://a"), "a resource needs a URI"),
    "a name that is not given by keyword": (lambda s: s.tool("now")(plain), "write @server.tool(name='now')"),
    "the same for a prompt": (lambda s: s.prompt("now")(plain), "write @server.prompt(name='now')"),
    "a method": (lambda s: s.tool(Weather.forecast), BY_HAND + "tool(instance.forecast)"),
    "a method as a prompt": (lambda s: s.prompt(Weather.forecast), BY_HAND + "prompt(instance.forecast)"),
    "a method as a resource": (
        lambda s: s.resource("x://{city}")(Weather.forecast),
        BY_HAND + "resource(uri, instance.forecast)",
    ),
    "a class method within its class": (
        lambda s: s.tool(vars(Weather)["here"]),
        "registered when its class is there: server.add_tool(Weather.here)",
    ),
    "a class": (lambda s: s.tool(Weather), "register a function, or the method of an instance"),
    "a call": (lambda s: s.add_tool(called()), "register the function itself, without parentheses"),
    "something else": (lambda s: s.tool(5), "5 cannot be a tool: it is not a function"),
    "a context without an annotation": (
        lambda s: s.tool(bare_context),
        "write ctx: Context for the context",
    ),
    "the same in a plain function": (
        lambda s: s.tool(bare_sync_context),
        "write ctx: SyncContext for the context",
    ),
    "another library's context": (
        lambda s: s.tool(foreign_context),
        "write from mcpbus import Context",
    ),
    "a type without JSON": (
        lambda s: s.tool(opaque),
        "parameter 'where': its type has no JSON form: pydantic cannot validate <class 'socket.socket'>",
    ),
    "a variable that the function does not take": (
        lambda s: s.resource("x://{town}/{city}")(plain),
        "resource 'x://{town}/{city}': the function takes no 'town', which the URI has; give it a parameter town",
    ),
    "a default that JSON cannot say": (
        lambda s: s.tool(default_without_form),
        "tool 'default_without_form', parameter 'days': clients are shown the default <object object at",
    ),
    "half of a character in a default": (
        lambda s: s.tool(half_of_an_emoji),
        "which is no Unicode; write the whole character - at `$.properties.mood.default`",
    ),
    "half of a character in what comes back": (
        lambda s: s.tool(moody),
        "tool 'moody', output schema: clients are told what JSON cannot say: '\\ud83d' has half of a surrogate pair",
    ),
    "half of a character in a description": (
        lambda s: s.prompt(description="a \ud83d")(plain),
        "prompt 'plain': clients are told what JSON cannot say: 'a \\ud83d' has half of a surrogate pair",
    ),
    "the same in what clients are told of the server": (
        lambda _: Server("s", version="1", instructions="\ud83d"),
        "Server: clients are told what JSON cannot say: '\\ud83d' has half of a surrogate pair",
    ),
    "the same in its name": (
        lambda _: Server("\ud83d", version="1"),
        "write the whole character - at `$.name`",
    ),
    "a meta of a tool that JSON cannot say": (
        lambda s: s.tool(meta={"a/b": object()})(plain),
        "a text, number, list, dict or dataclass - at `$.meta.a/b`",
    ),
    "a meta of a resource that JSON cannot say": (
        lambda s: s.resource("x://{city}", meta={"\ud83d": 1})(plain),
        "resource 'x://{city}': clients are told what JSON cannot say: '\\ud83d' has half of a surrogate pair",
    ),
    "a default that cannot be copied": (
        lambda s: s.tool(default_of_its_own),
        "tool 'default_of_its_own', parameter 'data': each call gets a copy of the default <memory at",
    ),
    "a parameter that the URI does not have": (
        lambda s: s.resource("x://{name}/{city}")(wants_more),
        "the URI has no 'country', which the function takes; write {country} into the URI",
    ),
    "a header for what may be None": (lambda s: s.tool(header_for_none), "give it a default of its own type"),
    "a name twice": (lambda s: (s.tool(plain), s.tool(plain)), "give this one another name"),
    "a misspelt option": (
        lambda s: s.tool(descripton="")(plain),
        "'descripton'; did you mean 'description'?",
    ),
    "the same of a resource": (
        lambda s: s.resource("x://{city}", mimetype="a/b")(plain),
        "'mimetype'; did you mean 'mime_type'?",
    ),
    "the same of a prompt": (lambda s: s.prompt(tite="")(plain), "'tite'; did you mean 'title'?"),
    "an option that is none": (lambda s: s.prompt(zzz=1)(plain), "there are description, icons"),
    "annotations as a dict": (
        lambda s: s.tool(annotations={"readOnlyHint": True})(plain),
        "annotations are ToolAnnotations(read_only_hint=True) or the like",
    ),
    "a title that is no text": (
        lambda s: s.prompt(title=5)(plain),
        "@server.prompt: title is a text, not 5",
    ),
    "a type that is no text": (
        lambda s: s.resource("x://{city}", mime_type=5)(plain),
        "@server.resource: mime_type is a text, not 5",
    ),
    "a scope of caches that is none": (
        lambda s: s.resource("x://{city}", cache_scope="all")(plain),
        "cache_scope is 'public' or 'private', not 'all'",
    ),
    "a name that is no text": (lambda s: s.tool(name=5)(plain), "@server.tool: name is a text, not 5"),
    "a flag that is text": (lambda s: s.tool(thread="no")(plain), "thread is True or False, not 'no'"),
    "icons that are addresses": (
        lambda s: s.tool(icons=["a.png"])(plain),
        "icons are Icon('https://...') or the like, not 'a.png'",
    ),
    "one icon of a tool": (lambda s: s.tool(icons=Icon("data:,"))(plain), "@server.tool: icons is a list"),
    "a word for who sees it": (
        lambda s: s.tool(visible="admin")(plain),
        "tool 'plain': visible is a function, not 'admin'",
    ),
    "an async function for who sees it": (
        lambda s: s.tool(visible=async_visible)(plain),
        "tool 'plain': visible decides at once: write def async_visible, without async",
    ),
    "a notification without its method": (
        lambda s: s.on_notification(async_visible),
        'write @server.on_notification("notifications/...")',
    ),
    "a plain function for a session's end": (lambda s: s.on_session_end(plain), "is not an async function"),
    "a timeout that is text": (
        lambda s: s.tool(timeout="5")(plain),
        "a positive number of seconds, not '5'",
    ),
}


def used(**options):
    return lambda _: Server("s", **options)


MAKING = {
    "what decides that is no function": (used(visible="admin"), "visible is a function, not 'admin'"),
    "who authenticates that is no function": (
        used(authenticate="t"),
        "authenticate is a function, not 't'",
    ),
    "who authenticates that is not awaited": (
        used(authenticate=plain_authenticate),
        "write async def plain_authenticate",
    ),
    "who decides is asynchronous": (
        used(visible=async_visible),
        "visible decides at once: write def async_visible, without async",
    ),
    "an empty name": (lambda _: Server(""), "name is what clients call it, such as 'weather', not ''"),
    "a name that shows nothing": (lambda _: Server(" "), "such as 'weather', not ' '"),
    "no name": (lambda _: Server(None), "such as 'weather', not None"),
    "a number that is text": (used(page_size="10"), "Server: page_size is a whole number, not '10'"),
    "seconds that are text": (used(list_ttl="5"), "Server: list_ttl is a number of seconds, not '5'"),
    "threads that are text": (used(max_threads="4"), "Server: max_threads is a whole number, not '4'"),
    "a version that is a number": (used(version=1.0), "Server: version is a text, not 1.0"),
    "a capability that is none": (
        used(capabilities=["tool"]),
        "capabilities are tools, prompts, resources, completions, tasks; there is no 'tool'",
    ),
    "a short secret": (
        used(secret_keys=["x"]),
        "secret_keys[0] is 1 bytes long: a key is a secret of at least 16",
    ),
    "an issuer as what verifies": (
        lambda _: ResourceServer("https://mcp.example.com/mcp", "https://id.example.com"),
        "verifier is a JwtVerifier(...) or another TokenVerifier, not 'https://id.example.com'",
    ),
    "a limit that is text": (
        lambda _: Limits(max_sessions="5"),
        "Limits: max_sessions is a number, not '5'",
    ),
    "a limit that is none": (
        lambda _: Limits(max_sessions=True),
        "Limits: max_sessions is a number, not True",
    ),
    "a limit that leaves nothing": (lambda _: Limits(max_sessions=0), "'max_sessions' must be >= 1: 0"),
    "a time that is none": (lambda _: Limits(keep_alive=0), "'keep_alive' must be > 0: 0"),
    "an option for serving that is text": (
        lambda _: ServeOptions(drain_timeout="5"),
        "ServeOptions: drain_timeout is a number, not '5'",
    ),
    "a lifespan without its decorator": (
        used(lifespan=generator_lifespan),
        "write @contextlib.asynccontextmanager above generator_lifespan",
    ),
    "a plain lifespan": (
        used(lifespan=plain_lifespan),
        "lifespan is asynchronous: write async def plain_lifespan, and @contextlib.asynccontextmanager above it",
    ),
    "a lifespan that does not yield": (
        used(lifespan=lifespan_without_yield),
        "have lifespan_without_yield yield, and write @contextlib.asynccontextmanager above it",
    ),
    "a lifespan that takes nothing": (
        used(lifespan=lifespan_without_server),
        "lifespan is given the server: write lifespan_without_server(server)",
    ),
    "a lifespan that is called": (
        lambda s: Server("s", lifespan=right_lifespan(s)),
        "lifespan is the function, and is called for each opening: write it without parentheses",
    ),
    "a plain middleware": (
        used(middleware=[plain]),
        "middleware is awaited: write async def plain",
    ),
    "the class of a middleware": (
        used(middleware=[Timing]),
        "middleware is an object that is called, not its class: write Timing()",
    ),
    "a name for a middleware": (
        used(middleware=["timing"]),
        "middleware is a list of async functions, in which 'timing' is none",
    ),
    "one middleware": (used(middleware=plain), "middleware is a list: write middleware=[...]"),
    "one secret": (
        used(secret_keys="a secret of sixteen bytes"),
        "secret_keys is a list: write secret_keys=[...]",
    ),
    "one icon": (used(icons=Icon("data:,")), "icons is a list: write icons=[...]"),
}

RUNNING = {
    "a port": (
        lambda s: s.run(port=9000),
        "server.run() has no option 'port'; write bind=\"127.0.0.1:9000\"",
    ),
    "a host and a port": (lambda s: s.run(host="0.0.0.0", port=9000), 'write bind="0.0.0.0:9000"'),
    "a host, and no port": (lambda s: s.run(host="0.0.0.0"), 'write bind="0.0.0.0:8000"'),
    "a mistyped option": (
        lambda s: s.run(alowed_hosts=["a"]),
        "'alowed_hosts'; did you mean 'allowed_hosts'?",
    ),
    "a port alone": (lambda s: s.run(bind=9000), "cannot bind to 9000: write HOST:PORT"),
    "a host alone": (lambda s: s.run(bind="localhost"), "cannot bind to 'localhost': write HOST:PORT"),
    "figures at a port alone": (
        lambda s: s.run(metrics=9464),
        "metrics is 9464: write HOST:PORT (127.0.0.1:9464",
    ),
    "figures of an application": (
        lambda s: s.asgi(metrics="127.0.0.1:9464"),
        "server.asgi() has no option 'metrics'; write a route beside the application, with what mcpbus.metrics.exp",
    ),
    "an option for serving": (lambda s: s.run(certfile="a"), "write options=ServeOptions(certfile='a')"),
    "a limit": (lambda s: s.run(max_sessions=5), "write limits=Limits(max_sessions=5)"),
    "a name of other libraries": (lambda s: s.run(stateless_http=True), 'write sessions="stateless"'),
    "an option for HTTP over stdio": (
        lambda s: s.run("stdio", path="/"),
        "server.run('stdio') has no option 'path'",
    ),
    "a transport that is one with another": (
        lambda s: s.run("sse"),
        "'http', which is Streamable HTTP, HTTP+SSE and",
    ),
    "options as a dict": (lambda s: s.run(options={}), "options is a ServeOptions(...), not {}"),
    "limits as a dict": (lambda s: s.run(limits={}), "limits is a Limits(...), not {}"),
    "a path that does not begin": (lambda s: s.asgi(path="mcp"), "begins with '/', such as '/mcp'"),
    "sessions of another kind": (
        lambda s: s.asgi(sessions="some"),
        "must be 'sessionful' or 'stateless'",
    ),
    "one host": (
        lambda s: s.asgi(allowed_hosts="a"),
        "allowed_hosts is a list of texts: write allowed_hosts=['a']",
    ),
    "a port for an application": (
        lambda s: s.asgi(port=9000),
        "give it to what serves the application: hypercorn -k trio --bind 127.0.0.1:9000 module:app",
    ),
    "opening under asyncio": (lambda s: asyncio.run(s.serve()), "start the program with trio.run(main)"),
}


CALLING = {
    "a misspelt keyword": (
        used(instruction="Be kind."),
        "Server() has no option 'instruction'; did you mean 'instructions'?",
    ),
    "figures of an application, misspelt": (
        lambda s: s.asgi(metric="127.0.0.1:9464"),
        "did you mean 'metrics'? write a route",
    ),
    "no name at all": (lambda _: Server(), "Server() needs 'name'"),
    "what is given by keyword, by position": (
        lambda _: Server("s", "Be kind."),
        "Server() takes name by position; give the rest by keyword: version=...",
    ),
    "what is for whoever serves": (used(port=9000), 'write server.run(bind="127.0.0.1:8000")'),
    "a limit of what is served": (
        used(max_listen_seconds=5),
        "Server() has no option 'max_listen_seconds'; write server.run(limits=Limits(max_listen_seconds=5)), or give it to",
    ),
    "a misspelt limit of what is served": (
        used(max_listen=5),
        "did you mean 'max_listens'? write server.run(limits=",
    ),
    "an option of what serves": (
        used(keep_alive_timeout=5),
        "write server.run(options=ServeOptions(keep_alive_timeout=5)), or give it to whatever else serves",
    ),
    "an option of HTTP": (
        used(http_sse=True),
        "write server.run(http_sse=True), or give it to whatever else",
    ),
    "a limit of what is opened": (
        lambda s: s.open(max_requests=5),
        "Server.open() has no option 'max_requests'; write limits=Limits(max_requests=5)",
    ),
    "a limit of what is run over stdio": (
        lambda s: s.run("stdio", keep_alive=5),
        "server.run('stdio') has no option 'keep_alive'; write limits=Limits(keep_alive=5)",
    ),
    "a limit of a bus as one of serving": (
        lambda _: ServeOptions(max_sessions=5),
        "ServeOptions() has no option 'max_sessions'; write limits=Limits(max_sessions=5)",
    ),
    "a limit of a proxy": (
        lambda _: Proxy("http://a/mcp", max_listens=5),
        "Proxy() has no option 'max_listens'; write server.run(limits=Limits(max_listens=5)), or give it to",
    ),
    "a server's option among the limits": (
        lambda _: Limits(listens=False),
        "Limits() has no option 'listens'; write Server(..., listens=False)",
    ),
    "figures": (used(metrics="127.0.0.1:1"), 'write server.run(metrics="127.0.0.1:9464"), or give it to'),
    "the same, misspelt": (used(prot=9000), "did you mean 'port'? write server.run(bind="),
    "a misspelt limit": (
        lambda _: Limits(max_session=5),
        "Limits() has no option 'max_session'; did you mean 'max_sessions'?",
    ),
    "a port where serving is described": (lambda _: ServeOptions(port=9), 'write bind="127.0.0.1:9"'),
    "a misspelt port": (lambda s: s.run(por=9), "did you mean 'port'? write bind=\"127.0.0.1:9\""),
    "a misspelt option of its own": (lambda s: s.run(limit=5), "no option 'limit'; did you mean 'limits'?"),
    "a path by position": (
        lambda s: s.asgi("/mcp"),
        "Server.asgi() takes nothing by position; give the rest by keyword: limits=...",
    ),
    "an opening's misspelt option": (lambda s: s.open(limit=5), "Server.open() has no option 'limit'"),
    "a test's": (
        lambda s: open_client(s, revison="a"),
        "open_client() has no option 'revison'; did you mean",
    ),
    "a test's by position": (lambda s: open_bus(s, 5), "open_bus() takes server by position"),
    "a description after the name": (
        lambda s: s.tool("now", "Tell the time."),
        "@server.tool takes function by position; give the rest by keyword: name=...",
    ),
    "a tool of no function": (lambda _: tool(), "tool() needs 'function'"),
    "a completion of nothing": (lambda s: s.completion("p"), "@server.completion needs 'argument'"),
    "a resource without a function": (
        lambda s: s.add_resource("x://a"),
        "Server.add_resource() needs 'function'",
    ),
    "a keyword of other libraries": (lambda _: Depends(plain, use_cache=True), "there are provider, thread"),
    "a keyword of a function that takes any number": (
        lambda _: AnyTokenVerifier(a=1),
        "AnyTokenVerifier() has no option 'a'; it takes none",
    ),
    "a member as it is on the wire": (
        lambda _: ToolAnnotations(readOnlyHint=True),
        "ToolAnnotations() has no option 'readOnlyHint'; did you mean 'read_only_hint'?",
    ),
    "the same of content": (lambda _: ImageContent(data="", mimeType="a/b"), "did you mean 'mime_type'?"),
    "the same of a result": (lambda _: ToolResult(isError=True), "did you mean 'is_error'?"),
    "the type of content": (
        lambda _: TextContent(type="text", text="a"),
        "leave it out: the class says that",
    ),
    "an image's path": (lambda _: Image(path="a.png"), "write data=Path('a.png').read_bytes()"),
    "an icon of nothing": (lambda _: Icon(), "Icon() needs 'src'"),
    "a message of nothing": (lambda _: PromptMessage("user"), "PromptMessage() needs 'content'"),
}


ISSUER = "https://id.example.com"

GIVING = {
    "the class of a store": (
        lambda s: s.asgi(event_store=MemoryEventStore),
        "event_store is mcpbus.stores.SqliteEventStore('events.db') or the like, not <class",
    ),
    "a store's file": (
        lambda s: s.asgi(task_store="tasks.db"),
        "task_store is mcpbus.tasks.SqliteTaskStore(",
    ),
    "a store of the other kind": (
        lambda s: s.asgi(event_store=MemoryTaskStore()),
        "event_store is mcpbus.st",
    ),
    "where the others are": (
        lambda s: s.run(cluster="redis://a", bind="127.0.0.1:0"),
        "cluster is a mcpbus.cluster.RedisReplicas('redis://...'), not 'redis://a'",
    ),
    "others that are none": (
        lambda s: s.run(cluster=5, bind="127.0.0.1:0"),
        "cluster is a mcpbus.cluster.RedisReplicas('redis://...'), not 5",
    ),
    "half a worker": (lambda s: s.run(workers=2.5), "server.run(): workers is a whole number, not 2.5"),
    "less than no time to drain": (
        lambda s: s.open(drain_timeout=-1),
        "Server: drain_timeout is 0 or more, not -1",
    ),
    "a number for hosts": (
        lambda s: s.asgi(allowed_hosts=5),
        "allowed_hosts is a list of texts: write allowed_hosts=[...], not 5",
    ),
    "numbers among hosts": (
        lambda s: s.asgi(allowed_hosts=["a.example", 5]),
        "allowed_hosts is a list of texts, in which 5 is none",
    ),
    "a number for a path": (lambda s: s.asgi(path=5), "path is 5: write a path that begins with '/'"),
    "workers that are text": (lambda s: s.run(workers="2"), "server.run(): workers is a number, not '2'"),
    "a form that is none": (
        lambda s: s.asgi(response="xml"),
        "response is 'xml': it must be 'auto', 'json' or 'sse'",
    ),
    "a drain that is text": (
        lambda s: s.run("stdio", drain_timeout="5"),
        "server.run('stdio'): drain_timeout is a number, not '5'",
    ),
    "a server of another name": (
        lambda _: ServeOptions(server="uvicorn"),
        "server is 'uvicorn': it must be 'mcpbus' or 'hypercorn'",
    ),
    "sessions of another kind": (
        lambda _: HttpOptions(sessions="some"),
        "sessions is 'some': it must be 'sessionful' or 'stateless'",
    ),
    "a flag that is text": (lambda s: s.asgi(http_sse="no"), "http_sse is True or False, not 'no'"),
    "a length that is text": (lambda s: s.asgi(max_body_bytes="5"), "max_body_bytes is a number, not '5'"),
    "a level that is none": (
        lambda _: Limits(log_level="warn"),
        "'warn' is not a log level; expected one of debug, info, notice, warning",
    ),
    "how much a store keeps, as text": (
        lambda _: MemoryEventStore(max_items="5"),
        "MemoryEventStore: max_items is a number, not '5'",
    ),
    "how long a store keeps it, as less than nothing": (
        lambda _: MemoryEventStore(max_age=-1),
        "MemoryEventStore: max_age is more than 0, not -1",
    ),
    "Redis, as no text": (lambda _: RedisReplicas(6379), "Redis: url is a text, and this is of type int"),
    "a lease that is text": (
        lambda _: RedisReplicas("redis://a", lease="5"),
        "RedisReplicas: lease is a number, not '5'",
    ),
    "a rate that is text": (lambda _: RateLimitingMiddleware("5"), "max_requests_per_second is a number"),
    "a word for who is who": (
        lambda _: RateLimitingMiddleware(get_client_id="ip"),
        "get_client_id is a function, not 'ip'",
    ),
    "the names of exceptions": (
        lambda _: RetryMiddleware(retry_exceptions=("OSError",)),
        "retry_exceptions is a tuple of exceptions: write (ConnectionError,), not ('OSError',)",
    ),
    "how often, as text": (lambda _: RetryMiddleware("3"), "max_retries is a number, not '3'"),
    "how long, as text": (lambda _: ResponseCachingMiddleware("60"), "ttl is a number, not '60'"),
    "how large, as text": (lambda _: ResponseLimitingMiddleware("60"), "max_size is a number, not '60'"),
    "a logger's name": (lambda _: TimingMiddleware("calls"), "write logging.getLogger('calls')"),
    "a level's name": (
        lambda _: StructuredLoggingMiddleware(level="info"),
        "level is a number: write logging.INFO or the like, not 'info'",
    ),
    "one algorithm": (
        lambda _: JwtVerifier(ISSUER, algorithms="RS256"),
        "algorithms is a list: write algorithms=['RS256']",
    ),
    "a list of tokens": (
        lambda _: StaticTokenVerifier(["a"]),
        'tokens is a dict of what each allows, such as {"sec',
    ),
    "one verifier of several": (
        lambda _: AnyTokenVerifier(ISSUER),
        "each is a JwtVerifier(...) or another TokenVerifier",
    ),
    "a login that is none": (
        lambda _: IntrospectionVerifier(ISSUER, client_id=None, client_secret="a"),
        "IntrospectionVerifier: client_id is a text, and this is of type NoneType",
    ),
    "a task's time as text": (lambda _: TaskSupport(ttl="5"), "TaskSupport: ttl is a number, not '5'"),
    "a member of another type": (
        lambda s: s.tool(annotations=ToolAnnotations(read_only_hint="yes"))(plain),
        "tool 'plain': Expected `bool | null`, got `str` - at `$.readOnlyHint`, in ToolAnnotations(",
    ),
    "an icon's": (
        lambda s: s.tool(icons=[Icon(5)])(plain),
        "@server.tool: Expected `str`, got `int` - at `$.src`, in Icon(src=5",
    ),
    "the message of an error": (lambda _: ProtocolError(1, 2), "the message of an error is a text, got 2"),
    "a question that is no text": (
        lambda _: Elicit(5, str),
        "Elicit: message is a text, and this is of type int",
    ),
    "a page that is no text": (
        lambda _: ElicitUrl("Sign in", 5),
        "ElicitUrl: url is a text, and this is of type int",
    ),
    "how much a model may write, as text": (
        lambda _: Sample("Hi", max_tokens="5"),
        "Sample: max_tokens is a whole number, not '5'",
    ),
    "what ends it, alone": (
        lambda _: Sample("Hi", stop_sequences="."),
        "Sample: stop_sequences is a list, not '.'",
    ),
    "a model by name": (
        lambda _: Sample("Hi", model_preferences="big"),
        "Sample: model_preferences is a dict, not 'big'",
    ),
    "context of another kind": (
        lambda _: Sample("Hi", include_context="all"),
        "include_context is 'all': it must be 'none' or 'thisServer' or 'allServers'",
    ),
}


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        pytest.param(*row, id=name)
        for table in (REGISTERING, MAKING, RUNNING, CALLING, GIVING)
        for name, row in table.items()
    ],
)
def test_a_mistake_gets_one_sentence_that_says_what_to_write(mistake, sentence):
    with pytest.raises((TypeError, ValueError, RuntimeError)) as raised:
        mistake(Server("s"))
    told = str(raised.value)
    assert sentence in told
    assert len(told.splitlines()) == 1


MADE_BY_THE_BUS = {
    *(
        "AcceptedElicitation",
        "AsgiProbe",
        "AsyncioApp",
        "Broadcast",
        "Bus",
        "Hosted",
        "CancelledElicitation",
        "Client",
        "ClientInfo",
        "ClientNotification",
    ),
    *(
        "Context",
        "DeclinedElicitation",
        "EventLog",
        "Fate",
        "RequestHead",
        "LegacyHttpSession",
        "Invocation",
        "Promise",
        "Receipt",
        "Recording",
    ),
    *(
        "RemoteSession",
        "SamplingResult",
        "Session",
        "Statistics",
        "SyncBus",
        "SyncContext",
        "TaskRecord",
        "Tool",
    ),
}
TAKES_NO_KEYWORD = {"parse_event_id", "wait_until_idle", "shutdown_on_signals", "to_asyncio", "to_trio"}
MODULES = (
    *(mcpbus, mcpbus.asyncio, mcpbus.auth, mcpbus.cluster),
    *(mcpbus.middleware, mcpbus.stores, mcpbus.tasks, mcpbus.testing),
)


def _is_called(made):
    if isinstance(made, type):
        abstract = issubclass(made, enum.Enum) or getattr(made, "_is_protocol", False)
        return not abstract and (not issubclass(made, Exception) or inspect.isfunction(made.__init__))
    return inspect.isfunction(made)


@pytest.mark.parametrize(
    "name",
    sorted(
        f"{module.__name__}.{name}"
        for module in MODULES
        for name in module.__all__
        if name not in MADE_BY_THE_BUS | TAKES_NO_KEYWORD and _is_called(getattr(module, name))
    ),
)
def test_whatever_an_author_calls_says_which_keywords_there_are(name):
    module, _, attribute = name.rpartition(".")
    with pytest.raises(TypeError, match=r"has no option 'no_such'; (there (is|are) |it takes none)|needs "):
        getattr(sys.modules[module], attribute)(no_such=1)


def test_what_is_right_is_taken():
    server = Server(
        "s",
        authenticate=lambda head: asyncio.sleep(0),
        lifespan=right_lifespan,
        middleware=[middleware, Timing(), partial(middleware), lambda call, call_next: call_next(call)],
    )
    Server("s", authenticate=in_a_thread(plain), middleware=[in_a_thread(plain), wraps(Timing())(passes_on)])
    server.add_tool(Weather().forecast)
    server.tool(staticmethod(plain))
    server.tool(Weather.here)
    for name in ("forecast", "plain", "here"):
        assert "self" not in server.features.tools.get(name).arguments.document["properties"]


def test_an_address_that_is_in_use_is_told_without_what_was_going_on_inside():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        program = f"import mcpbus; mcpbus.Server('s').run(bind={bind!r})"
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        with pytest.raises(CannotListenError, match="cannot listen on"):
            Server("s").run(bind=bind)
    # A busy machine may import so slowly that the loop is said to be blocked, before that.
    lines = ended.stderr[ended.stderr.index("Traceback") :].splitlines()
    assert "Address already in use" in lines[-1]
    assert len(lines) < 10


NO_APPLICATION = (
    r"Server\('s'\) is no ASGI application .*asyncio.asgi\(server\), or app = server.asgi\(\) under hypercorn"
)


def test_a_server_that_is_served_as_an_application_says_so_at_the_start(caplog):
    config = uvicorn.Config(Server("s"), port=0, log_config=None)
    with socket.create_server(("127.0.0.1", 0)) as unused, suppress(SystemExit):  # so newer versions end
        uvicorn.Server(config).run([unused])
    assert re.search(NO_APPLICATION, caplog.text)
    assert "Traceback" not in caplog.text


async def test_and_at_a_request_if_it_is_told_of_no_start():
    with pytest.raises(TypeError, match=NO_APPLICATION):
        await Server("s")({"type": "http"}, None, None)


async def test_a_program_that_runs_trio_serves_and_does_not_run():
    with pytest.raises(RuntimeError, match=r"in a trio program write await server.serve\(\)"):
        Server("s").run()


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_a_program_that_runs_asyncio_is_not_stopped_by_a_server_that_is_run(transport):
    async def program():
        Server("s").run(transport)

    with pytest.raises(RuntimeError, match=r"asyncio runs here.*: serve mcpbus\.asyncio\.asgi\(server\)"):
        asyncio.run(program())


@pytest.mark.parametrize("called", [Server, Proxy])
@pytest.mark.parametrize("options", [Limits, ServeOptions, HttpOptions])
def test_each_option_of_serving_that_a_server_is_given_is_shown_where_it_belongs(options, called):
    written = {Limits: "limits=Limits({})", ServeOptions: "options=ServeOptions({})", HttpOptions: "{}"}[
        options
    ]
    for each in attrs.fields(options):
        if each.name in {"bind", "drain_timeout"}:  # which Server.run has itself
            continue
        if options is ServeOptions and each.name in attrs.fields_dict(
            Limits
        ):  # which hold for all transports
            continue
        with pytest.raises(TypeError) as raised:
            called("http://a/mcp", **{each.name: 5})
        assert f"write server.run({written.format(f'{each.name}=5')})" in str(raised.value)


async def test_nothing_is_opened_for_an_option_that_is_not_known():
    opened = []

    @asynccontextmanager
    async def lifespan(server):
        opened.append(server)
        yield

    with pytest.raises(TypeError, match=r"server.serve\(\) has no option 'port'"):
        await Server("s", lifespan=lifespan).serve(port=9000)
    assert opened == []


async def test_the_options_say_where_to_listen_if_nobody_else_does():
    options = ServeOptions(bind="127.0.0.2:0")
    async with trio.open_nursery() as nursery:
        [url] = await nursery.start(
            lambda task_status: Server("s").serve(options=options, task_status=task_status)
        )
        assert url.startswith("http://127.0.0.2:")
        nursery.cancel_scope.cancel()


async def opened(opening):
    async with opening:
        pass


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (lambda _bus: opened(open_client("s")), "open_bus and open_client take a mcpbus.Server, not 's'"),
        (lambda bus: opened(open_probe(bus)), r"open_probe takes an application: write bus.asgi\(\), not <"),
        (
            lambda bus: opened(open_probe(bus.asgi(), shell="http3")),
            "shell is 'http3': it must be 'asgi', 'http1', 'http2'",
        ),
        (
            lambda bus: opened(bus.connect(on_input_request="yes")),
            "on_input_request is an async function of the method and the params, not 'yes'",
        ),
        (lambda bus: opened(bus.connect(capabilities=["sampling"])), 'such as {"elicitation": {}}, not '),
    ],
)
async def test_a_mistake_in_a_test_gets_such_a_sentence_too(mistake, sentence):
    async with open_bus(Server("s")) as bus:
        with pytest.raises((TypeError, ValueError), match=sentence):
            await mistake(bus)


CIRCLE: dict = {}
CIRCLE["again"] = CIRCLE
URL = "http://127.0.0.1:9/mcp"
TRUE = [sys.executable, "-c", ""]


@pytest.mark.parametrize(
    ("opening", "sentence"),
    [
        *(
            (partial(connect, **options), sentence)
            for connect in (
                partial(connect_http, URL),
                partial(connect_process, TRUE),
                partial(open_client, Server("s")),
            )
            for options, sentence in (
                (
                    {"on_input_request": 5},
                    "on_input_request is an async function of the method and the params, not 5",
                ),
                (
                    {"capabilities": ["sampling"]},
                    "capabilities is a dict, such as {\"elicitation\": {}}, not ['sampling']",
                ),
                (
                    {"capabilities": {"sampling": True}},
                    "capabilities['sampling'] is a dict, such as {}, not True",
                ),
                ({"capabilities": {5: {}}}, 'capabilities have names, such as "elicitation", unlike 5'),
                (
                    {"capabilities": {"experimental": {"a": [object()]}}},
                    "Encoding objects of type object is unsupported - at `capabilities.experimental.a[0]`",
                ),
                (
                    {"capabilities": {"experimental": {"a": float("nan")}}},
                    "JSON has no number nan - at `capabilities.experimental.a`",
                ),
                (
                    {"capabilities": {"experimental": {"a": "\ud83d"}}},
                    "write the whole character - at `capabilities.experimental.a`",
                ),
                ({"capabilities": {"experimental": CIRCLE}}, "or contains itself - at `capabilities`"),
                ({"revision": []}, "revision is []: it must be one of 2024-11-05, "),
                ({"revison": "2025-11-25"}, "has no option 'revison'; did you mean 'revision'?"),
            )
        ),
        (connect_process, "connect_process() needs 'command'"),
        (partial(connect_process, []), 'command is empty: it needs at least the program, such as ["python'),
        (
            partial(connect_process, "python server.py"),
            'such as ["python", "server.py"], and this is of type str',
        ),
        (partial(connect_process, {"python"}), 'such as ["python", "server.py"], and this is of type set'),
        (partial(connect_process, ["python", 8]), "command[1] is a text or a path, and this is of type int"),
        (
            partial(connect_process, ["python", "a\0"]),
            "command[1] cannot be given to a program: it has a null",
        ),
        (partial(connect_process, ["python", "\ud83d"]), "command[1] cannot be given to a program"),
        (
            partial(connect_process, TRUE, env=["A=b"]),
            'env is a dict, such as {"API_KEY": "..."}, and this is of type',
        ),
        (partial(connect_process, TRUE, env={5: "b"}), 'env has names, such as "API_KEY", unlike 5'),
        (partial(connect_process, TRUE, env={"A": 5}), "env['A'] is a text, and this is of type int"),
        (partial(connect_process, TRUE, env={"A=": "b"}), "env['A='] cannot be given to a program"),
        (partial(connect_process, TRUE, env={"A": "b\0"}), "env['A'] cannot be given to a program"),
        (partial(connect_process, TRUE, cwd=5), "cwd is a text or a path, not 5"),
        (partial(connect_process, TRUE, cwd="a\0"), "cwd is 'a\\x00': no folder is named so"),
        (partial(connect_http, 5), "connect_http(): url is a text, and this is of type int"),
        (
            partial(connect_http, URL, {}),
            "connect_http() takes url by position; give the rest by keyword: headers=",
        ),
        (
            partial(connect_http, URL, headers="a: b"),
            'headers is a dict, such as {"Authorization": "Bearer ..."}',
        ),
        (partial(connect_http, URL, headers={"a": 5}), "header 'a' is a text, and this is of type int"),
        (partial(connect_http, URL, headers={"a b": "c"}), "header 'a b' has no name of a header"),
        (partial(connect_http, URL, headers={5: "c"}), "header 5 has no name of a header"),
        (partial(connect_http, URL, headers={"a": "b\n"}), "header 'a' has what none can have"),
    ],
)
async def test_what_no_client_can_be_connected_with_is_told_before_anything_is_opened(opening, sentence):
    with pytest.raises((TypeError, ValueError), match=re.escape(sentence)):
        await opened(opening())


async def look_up():
    return "sun"


async def forgetful():
    return look_up()


@pytest.mark.parametrize("result", [forgetful, lambda: [look_up()]])
async def test_a_call_that_is_not_awaited_is_named(result, caplog, autojump_clock):
    server = Server("s")
    server.add_tool(result, name="forecast")
    async with open_client(server) as client:
        assert (await client.call_tool("forecast"))["isError"] is True
    assert "look_up() returned a coroutine: write await before the call of it" in caplog.text


def test_a_misspelt_option_that_is_there_is_named_alone():
    with pytest.raises(TypeError, match=r"'metric'; did you mean 'metrics'\?$"):
        Server("s").run(metric="127.0.0.1:9464")


async def test_a_resource_that_is_named_by_no_text_is_told(autojump_clock):
    server = Server("s")

    @server.tool
    async def change(ctx: Context) -> None:
        ctx.session.resource_updated(5)

    async with open_bus(server) as bus, bus.connect(revision="2025-11-25") as client:
        with pytest.raises(
            TypeError, match=r"^bus\.resource_updated\(\): uri is a text, and this is of type int$"
        ):
            bus.resource_updated(5)
        assert (await client.call_tool("change"))["isError"]
        assert bus.ledger.balance() == 0


@pytest.mark.parametrize("mounted", [False, True])
async def test_a_server_is_told_so_too_though_nobody_would_hear_of_the_change(mounted, autojump_clock):
    refused = pytest.raises(
        TypeError, match=r"^server\.resource_updated\(\): uri is a text, and this is of type int$"
    )

    @asynccontextmanager
    async def lifespan(_):
        with refused:
            server.resource_updated(5)
        yield

    outer = Server("outer", lifespan=lifespan)
    server = Server("inner") if mounted else outer
    if mounted:
        outer.mount(server, prefix="a")
    with refused:
        server.resource_updated(5)
    async with open_bus(outer):
        with refused:
            server.resource_updated(5)


@pytest.mark.parametrize("mounted", [False, True])
async def test_what_a_lifespan_that_there_is_not_has_yielded_is_told(mounted, caplog, autojump_clock):
    server = Server("s")

    @server.tool
    async def look(ctx: Context) -> str:
        return ctx.state.city

    outer = Server("outer")
    outer.mount(server)
    async with open_client(outer if mounted else server) as client:
        assert (await client.call_tool("look"))["isError"]
    assert "this server has none: write Server(..., lifespan=...)" in caplog.text


@asynccontextmanager
async def _of_nothing(_server):
    yield


async def test_a_lifespan_may_yield_nothing(autojump_clock):
    server = Server("s", lifespan=_of_nothing)

    @server.tool
    async def look(ctx: Context) -> bool:
        return ctx.state is None

    async with open_client(server) as client:
        assert (await client.call_tool("look"))["structuredContent"] is True
