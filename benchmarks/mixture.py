"""Calls as the real world makes them: of many tools, by clients of several kinds in both eras, from behind a proxy.

They are drawn by a seed, the same for all servers, in blocks that each hold the same shares of everything: a slow server, which
comes to few blocks, has the same mixture as a fast one.
"""

from itertools import product
from random import Random

from benchmarks.calls import MARK, Call
from benchmarks.dialect import Client, uuid

SEED = 20260728
BLOCKS = 10
TOOLS = 50
LEAST_BYTES, MOST_BYTES = 100, 50_000
NOTIFICATIONS = 3

_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/149.0.0.0 Safari/537.36",
    "python-httpx/0.28.1",
    "node",
    "Go-http-client/1.1",
    "reqwest/0.12.24",
    "Java-http-client/21.0.9",
    "okhttp/5.3.0",
    "curl/8.17.0",
    "Bun/1.3.2",
    "Python/3.13 aiohttp/3.13.2",
)
_CAPABILITIES = ({}, {"roots": {}}, {"elicitation": {}}, {"sampling": {}, "roots": {}, "elicitation": {}})

CLIENTS = tuple(
    Client(
        name=f"client-{agent.split('/')[0].lower()}",
        version=f"{number}.2.1",
        capabilities=_CAPABILITIES[number % len(_CAPABILITIES)],
        fields=(
            f"User-Agent: {agent}",
            "Accept-Encoding: gzip, deflate" if number % 2 else "Accept-Encoding: gzip, deflate, br, zstd",
            *(("Accept-Language: *", "Sec-Fetch-Mode: cors") if number % 3 == 2 else ()),
            *(("Connection: keep-alive",) if number % 3 else ()),
        ),
        lowercase=number % 3 == 2,
        uuids=number % 2 == 1,
    )
    for number, agent in enumerate(_AGENTS)
)
"""Ten kinds of clients: they differ in what they say of themselves, in their fields and in their ids."""

_PROSE = (
    "the of and to in is that it for was on are as with be at one have this from or had by but some what there we can "
    'Bergen naïve £20 “quoted” it\'s x<y&z {} C:\\tmp über Straße 東京 \n \t "so" /usr/bin — ok'
)


def tool_name(number: int) -> str:
    """Return the name of one of the tools of the mixture; what it does, its last digit says (`benchmarks.peers.peer`)."""
    return f"tool_{number:02}"


def proxy_fields(first: int = 7, second: int = 0) -> tuple[str, ...]:
    """Return what a proxy adds to a head, of which two are unique to each request, for a client of two numbers up to 255."""
    address = f"203.0.{second}.{first}"
    return (
        f"X-Request-Id: {uuid(int(MARK), first)}",
        f"Traceparent: {traceparent(first)}",
        f"X-Forwarded-For: {address}, 10.2.{first}.{second}",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: mcp.example.com",
        "X-Forwarded-Port: 443",
        f"X-Real-IP: {address}",
        "Via: 1.1 edge",
    )


def traceparent(number: int = 0) -> str:
    """Return a trace context (W3C) that is unique to each call, of one of 65,536 kinds."""
    return f"00-4bf92f3577b34da6a3{number:04x}{MARK}-00f067{MARK}-01"


def mixture(seed: int = SEED) -> list[Call]:
    """Return the calls."""
    random = Random(seed)  # noqa: S311  the same for all is what is wanted
    prose = " ".join(random.choices(_PROSE.split(" "), k=2 * MOST_BYTES)).encode()
    return [call for _ in range(BLOCKS) for call in _block(random, prose)]


def _block(random: Random, prose: bytes) -> list[Call]:
    """Return calls of each tool in both eras, of sizes that are spread evenly over the logarithm."""
    kinds = list(product(range(TOOLS), (True, False)))
    grown = MOST_BYTES / LEAST_BYTES
    sizes = [round(LEAST_BYTES * grown ** (step / (len(kinds) - 1))) for step in range(len(kinds))]
    random.shuffle(kinds)
    random.shuffle(sizes)
    clients = [random.randrange(len(CLIENTS)) for _ in kinds]
    return [
        Call(
            tool=tool_name(tool),
            text=_text(random, prose, size),
            meta={
                "progressToken": uuid(int(MARK), random.randrange(2**16)),
                "traceparent": traceparent(random.randrange(2**16)),
            },
            fields=proxy_fields(random.randrange(256), random.randrange(256)),
            notifications=NOTIFICATIONS if tool % 10 == 6 else 0,
            client=CLIENTS[client],
            pool=client if in_session else None,
        )
        for (tool, in_session), size, client in zip(kinds, sizes, clients, strict=True)
    ]


def _text(random: Random, prose: bytes, size: int) -> str:
    size -= len(MARK)
    begin = random.randrange(len(prose) - size)
    return MARK + prose[begin : begin + size].decode(errors="ignore")
