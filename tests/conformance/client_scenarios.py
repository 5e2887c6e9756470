"""What a client does in each scenario of the official conformance suite: by its public names, as any program would."""

import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import uuid4

import httpx2
import msgspec
from joserfc import jwt
from joserfc.jwk import ECKey

from mcpbus.client import ClientCredentials, LoginError, OAuth, connect_http

Scenario = Callable[[str], Awaitable[None]]

REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION")


def context() -> dict[str, Any]:
    """What a scenario says beside the address of its server."""
    found: dict[str, Any] = msgspec.json.decode(os.environ["MCP_CONFORMANCE_CONTEXT"])
    return found


async def accept(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Answer a form with what it is filled in with, or else with a confirmation."""
    fields = params["requestedSchema"]["properties"]
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    return {"action": "accept", "content": content or {"confirmed": True}}


async def call_first_tool(url: str) -> None:
    """List the tools, and call the first of them."""
    async with connect_http(url, revision=REVISION) as client:
        for tool in (await client.list_tools())[:1]:
            await client.call_tool(tool["name"], {"a": 2, "b": 3})


async def list_tools(url: str) -> None:
    """List the tools."""
    async with connect_http(url, revision=REVISION) as client:
        await client.list_tools()


async def find_revision(url: str) -> None:
    """Find out which revision to speak, and list the tools."""
    async with connect_http(url) as client:
        await client.list_tools()


async def answer(url: str) -> None:
    """Call each tool, and answer what it asks."""
    capabilities: dict[str, Any] = {"elicitation": {}}
    async with connect_http(
        url, revision=REVISION, capabilities=capabilities, on_input_request=accept
    ) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool["name"])


async def use_everything(url: str) -> None:
    """Call each tool, read each resource, and get each prompt."""
    async with connect_http(url, revision=REVISION) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool["name"])
        for resource in await client.list_resources():
            await client.read_resource(resource["uri"])
        for prompt in await client.list_prompts():
            await client.get_prompt(prompt["name"])


async def call_as_told(url: str) -> None:
    """List the tools, and call those that the scenario names."""
    async with connect_http(url, revision=REVISION) as client:
        await client.list_tools()
        for call in context()["toolCalls"]:
            await client.call_tool(call["name"], call["arguments"])


async def call_each_tool(url: str) -> None:
    """Call each tool that may be."""
    async with connect_http(url, revision=REVISION) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool["name"], dict.fromkeys(tool["inputSchema"]["properties"], "x"))


async def echo_schema(url: str) -> None:
    """Give back the schema of a tool as it came."""
    async with connect_http(url, revision=REVISION) as client:
        schemas = {tool["name"]: tool["inputSchema"] for tool in await client.list_tools()}
        await client.call_tool("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


async def agree(page: str) -> None:
    """Be the person at the browser: go wherever the page leads to."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        (await browser.get(page)).raise_for_status()


async def log_in(url: str, **known: Any) -> None:
    """Do what takes a login: list the tools, and call each."""
    async with connect_http(url, revision=REVISION, auth=OAuth(open_page=agree, **known)) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool["name"])


async def log_in_as_known(url: str) -> None:
    """Log in as a client that the issuer knows."""
    known = context()
    await log_in(url, client_id=known["client_id"], client_secret=known["client_secret"])


async def log_in_in_vain(url: str) -> None:
    """Be told that there is no login to be had, or not one that allows enough."""
    try:
        await log_in(url)
    except LoginError:
        return
    raise AssertionError("there is a login all the same")


async def log_in_by_itself(url: str) -> None:
    """Log in as a program, by a secret, or by what is signed with a key."""
    known = context()
    key = known.get("private_key_pem")

    def make_assertion(issuer: str) -> str:
        now = int(time.time())
        name = known["client_id"]
        claims = {"iss": name, "sub": name, "aud": issuer, "iat": now, "exp": now + 60, "jti": str(uuid4())}
        return jwt.encode({"alg": known["signing_algorithm"]}, claims, ECKey.import_key(key))

    auth = ClientCredentials(
        client_id=known["client_id"],
        client_secret=known.get("client_secret"),
        make_assertion=make_assertion if key else None,
    )
    async with connect_http(url, revision=REVISION, auth=auth) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool["name"])


SCENARIOS: dict[str, Scenario] = {
    "initialize": list_tools,
    "tools_call": call_first_tool,
    "elicitation-sep1034-client-defaults": answer,
    "sse-retry": call_first_tool,
    "request-metadata": find_revision,
    "sep-2322-client-request-state": answer,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_each_tool,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
    **dict.fromkeys(
        (
            *(f"auth/metadata-{place}" for place in ("default", "var1", "var2", "var3")),
            *(f"auth/scope-{how}" for how in ("from-www-authenticate", "from-scopes-supported", "step-up")),
            "auth/scope-omitted-when-undefined",
            *(f"auth/token-endpoint-auth-{how}" for how in ("basic", "post", "none")),
            *(f"auth/offline-access-{how}" for how in ("scope", "not-supported")),
            *(f"auth/2025-03-26-oauth-{how}" for how in ("metadata-backcompat", "endpoint-fallback")),
            *(f"auth/iss-{how}" for how in ("supported", "not-advertised")),
            "auth/authorization-server-migration",
        ),
        log_in,
    ),
    **dict.fromkeys(
        (
            *(f"auth/iss-{how}" for how in ("supported-missing", "wrong-issuer", "unexpected", "normalized")),
            "auth/metadata-issuer-mismatch",
            "auth/resource-mismatch",
            "auth/scope-retry-limit",
        ),
        log_in_in_vain,
    ),
    "auth/basic-cimd": partial(
        log_in, client_metadata_url="https://conformance-test.local/client-metadata.json"
    ),
    "auth/pre-registration": log_in_as_known,
    "auth/client-credentials-basic": log_in_by_itself,
    "auth/client-credentials-jwt": log_in_by_itself,
}
"""What to do in each scenario."""
