"""A server that verifies tokens: slowly, if the token begins with ``slow``."""

import trio

from mcpbus import Server
from mcpbus.auth import InvalidTokenError, Principal, ResourceServer, VerifiedToken

ISSUER = "http://localhost"


class Verifier:
    """Takes the token ``honest`` and all that begin with ``good``."""

    issuers = (ISSUER,)
    local = False  # what listens for it is a descriptor, of which no address is known

    async def verify(self, token: str, resource: str, now: float) -> VerifiedToken:
        if token.startswith("slow"):
            await trio.sleep(10)
        elif token == "honest" or token.startswith("good"):
            return VerifiedToken(Principal(ISSUER, token, token, ""), now + 3600)
        raise InvalidTokenError("it is not known")


server = Server("guarded", auth=ResourceServer("http://localhost/mcp", Verifier()))


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text
