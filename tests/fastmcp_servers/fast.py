"""A FastMCP 4 server with all that its authors use: middleware, lifespan, a mounted server, state, visibility, tools that grow."""

from contextlib import asynccontextmanager

from fastmcp import Context, FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.dependencies import get_access_token, get_http_headers, get_http_request
from fastmcp.server.middleware import Middleware
from starlette.responses import PlainTextResponse

seen = []


class Noting(Middleware):
    async def on_initialize(self, context, call_next):
        seen.append("initialize")
        return await call_next(context)

    async def on_call_tool(self, context, call_next):
        seen.append(f"call {context.message.name}")
        return await call_next(context)


@asynccontextmanager
async def lifespan(_server):
    yield {"database": "open"}


def make(auth=None):
    mcp = FastMCP("fast", version="4.2", lifespan=lifespan, middleware=[Noting()], auth=auth)
    below = FastMCP("below")

    @below.tool
    def deep() -> str:
        return "from below"

    mcp.mount(below, namespace="sub")

    @mcp.tool
    def add(a: int, b: int) -> int:
        return a + b

    @mcp.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", response_type=str)
        return f"{type(answer).__name__} {getattr(answer, 'data', None)}"

    @mcp.tool
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        await ctx.info("half")
        return f"{ctx.transport} {ctx.request_context.lifespan_context['database']}"

    @mcp.tool
    async def count(ctx: Context) -> int:
        number = (await ctx.get_state("count") or 0) + 1
        await ctx.set_state("count", number)
        return number

    @mcp.tool
    async def grow(ctx: Context) -> str:
        mcp.add_tool(add_more)
        return "grown"

    @mcp.tool
    async def who() -> str:
        token, request = get_access_token(), get_http_request()
        client = token.client_id if token else None
        return f"{client} {get_http_headers().get('x-trace')} {request.url.path}"

    @mcp.custom_route("/hello", methods=["GET"])
    async def hello(_request):
        return PlainTextResponse("hello")

    return mcp


def add_more(a: int) -> int:
    return a + 1


mcp = make()
guarded = make(
    StaticTokenVerifier({"ada-1": {"client_id": "ada", "scopes": ["read"]}}, required_scopes=["read"])
)

if __name__ == "__main__":
    mcp.run()
