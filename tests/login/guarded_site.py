"""A server behind a login, with an issuer that agrees to everything, over sockets: ``python guarded_site.py`` prints where the two are.

The issuer tells at /pages how many pages were opened, and takes back all that it has issued when it is asked for /take-back.
"""

import sys
import time
from urllib.parse import parse_qsl

import trio

from examples.agreeable import AgreeableIssuer
from mcpbus import Context, ServeOptions, Server
from mcpbus.auth import IntrospectionVerifier, ResourceServer
from mcpbus.serving import serve
from mcpbus.testing.issuer import InMemoryIssuer


class Guard(AgreeableIssuer):
    """That issuer, which can take back what it has issued, and tells of its pages."""

    pages = 0

    @property
    def metadata(self):
        return {**super().metadata, "revocation_endpoint": f"{self._issuer.url}/revoke"}

    async def _answer(self, scope, body):
        if (scope["method"], scope["path"]) == ("POST", "/revoke"):
            form = dict(parse_qsl(body.decode()))
            self._issuer.revoke(form["token"])
            self._refreshing.pop(form["token"], None)
            return 200, [], b""
        if scope["path"] == "/pages":
            return 200, [], b"%d" % self.pages
        if scope["path"] == "/take-back":
            self._refreshing.clear()
            self._issuer._issued.clear()
            return 200, [], b""
        self.pages += scope["path"] == "/authorize"
        return await super()._answer(scope, body)


async def main():
    [site] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    [id_site] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url, issuer_url = (f"http://127.0.0.1:{each.socket.getsockname()[1]}" for each in (site, id_site))
    issuer = InMemoryIssuer(issuer_url, clock=time.time)
    issuer.resource = f"{url}/mcp"
    verifier = IntrospectionVerifier(issuer.url, client_id="server", client_secret="x", web=issuer)
    auth = ResourceServer(issuer.resource, verifier, scopes=["read"])
    auth._remembered.keep = lambda *_: None  # so that what is taken back is so at once
    server, guard = Server("vault", auth=auth), Guard(issuer)

    @server.tool
    async def read(ctx: Context) -> str:
        return ctx.principal.subject

    @server.tool(scopes=["write"])
    async def write() -> str:
        return "written"

    async with trio.open_nursery() as nursery:
        bind = f"fd://{id_site.socket.detach()}"
        await nursery.start(
            lambda task_status: serve(guard, ServeOptions(bind=bind), task_status=task_status)
        )
        bind = f"fd://{site.socket.detach()}"
        await nursery.start(lambda task_status: server.serve(bind=bind, task_status=task_status))
        sys.stdout.write(f"{url}/mcp {issuer_url}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    trio.run(main)
