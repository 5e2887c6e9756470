"""A server of the official SDK that checks tokens, and has a web route."""

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from starlette.requests import Request
from starlette.responses import JSONResponse

TOKENS = {
    "ada-1": ("ada", ["read"]),
    "ada-2": ("ada", ["read"]),
    "bob-1": ("bob", ["read"]),
    "eve-1": ("eve", []),
}


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        if token not in TOKENS:
            return None
        client, scopes = TOKENS[token]
        return AccessToken(token=token, client_id=client, scopes=scopes)


mcp = MCPServer(
    "tokens",
    token_verifier=Verifier(),
    auth=AuthSettings(
        issuer_url="https://issuer.example",
        resource_server_url="http://127.0.0.1:8000/mcp",
        required_scopes=["read"],
        validate_token_resource=False,
    ),
)


@mcp.tool()
async def who(ctx: Context) -> str:
    request = ctx.request_context.request
    token = get_access_token()
    return f"{token.client_id} {request.user.username} {request.headers['x-trace']} {request.method} {request.url.path}"


@mcp.custom_route("/hello", methods=["GET", "POST"])
async def hello(request: Request) -> JSONResponse:
    return JSONResponse({"n": request.query_params.get("n"), "body": (await request.body()).decode()})


@mcp.custom_route("/broken", methods=["GET"])
async def broken(request: Request) -> JSONResponse:
    raise ValueError("out of order")


if __name__ == "__main__":
    mcp.run("streamable-http")
