"""The differences between a direct connection and one through a gateway that are intended, in one table; all others are faults."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import attrs

ABSENT: Final = "(absent)"
Path = tuple[str, ...]
_TIME: Final = re.compile(r"\d{1,2}:\d\d:\d\d [AP]M")
"""A time of day in a text, of which nothing is compared."""


@attrs.frozen
class Row:
    """An intended difference.

    Args:
        where: The path of values, by the keys that lead to them: ``*`` is one key, ``**`` is any number of them.
        direct: The value that a direct connection shows, as JSON unless it is text; ``{x}`` is any text, and the same in both columns.
        through: The value that a gateway shows.
        reason: The reason for the difference.
        servers: The upstream servers at which it is seen; ``*`` for all.
        clients: The clients that see it, such as ``python-legacy``.
        gateways: The gateways: ``file`` for that of many servers, ``single`` for that of one.
    """

    where: Path
    direct: str
    through: str
    reason: str
    servers: str = "*"
    clients: str = "*"
    gateways: str = "*"

    def is_for(self, server: str, client: str, gateway: str) -> bool:
        """Whether the row is about what this client sees of a server through a gateway."""
        pairs = ((server, self.servers), (client, self.clients), (gateway, self.gateways))
        return all(any(fnmatchcase(name, each) for each in given.split()) for name, given in pairs)

    def explains(self, server: str, path: Path, direct: str, through: str) -> bool:
        """Whether the row is about this difference."""
        if not _leads(self.where, path):
            return False
        found = _pattern(self.direct, server).fullmatch(direct)
        if found is None:
            return False
        expected = _pattern(self.through, server).fullmatch(through)
        return expected is not None and all(
            expected[name] == value
            for name, value in found.groupdict().items()
            if name in expected.groupdict()
        )


def compare(
    rows: Iterable[Row], server: str, client: str, gateway: str, *, direct: Any, through: Any
) -> list[str]:
    """Return what is wrong: differences that no row explains, and rows that explain none."""
    chosen = {row: False for row in rows if row.is_for(server, client, gateway)}
    wrong = []
    left, right = dict(flatten(direct)), dict(flatten(through))
    for path in sorted(left | right):
        values = left.get(path, ABSENT), right.get(path, ABSENT)
        if values[0] == values[1]:
            continue
        explaining = [row for row in chosen if row.explains(server, path, *values)]
        chosen |= dict.fromkeys(explaining, True)
        if not explaining:
            wrong.append(f"{' / '.join(path)}:\n    direct:  {values[0]}\n    gateway: {values[1]}")
    unused = [row for row, used in chosen.items() if not used]
    return wrong + [f"a row explains no difference: {row}" for row in unused]


def flatten(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield each value in JSON by its path, as text."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from flatten(inner, (*path, name))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from flatten(inner, (*path, str(index)))
    else:
        yield path, _TIME.sub("(time)", value) if isinstance(value, str) else json.dumps(value)


def _leads(where: Path, path: Path) -> bool:
    if not where:
        return not path
    if where[0] == "**":
        return any(_leads(where[1:], path[begin:]) for begin in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], where[0]) and _leads(where[1:], path[1:])


def _pattern(template: str, server: str) -> re.Pattern[str]:
    parts = re.split(r"\{([a-z]+)\}", template.replace("{server}", server))
    named = (f"(?P<{part}>.*)" if index % 2 else re.escape(part) for index, part in enumerate(parts))
    return re.compile("".join(named), re.DOTALL)


# Where rows hold. A server of npm, and the one in bare JSON-RPC, has legacy revisions alone, also for a client of 2026-07-28.
_LEGACY_SERVERS = "everything files floods"
_OFFICIAL = "official remote replicas"
_LEGACY, _MODERN = "*-legacy", "*-modern"
_ANY = ("**",)

TABLE: Final = (
    # -- the prefixes of a gateway of several servers
    Row(
        ("tools", "items", "*", "name"),
        "{x}",
        "{server}_{x}",
        "the server's name is the prefix",
        gateways="file",
    ),
    Row(
        ("prompts", "items", "*", "name"),
        "{x}",
        "{server}_{x}",
        "the server's name is the prefix",
        servers="everything official remote replicas",
        gateways="file",
    ),
    Row(
        ("changes", "grown", "*"),
        "{x}",
        "{server}_{x}",
        "the server's name is the prefix",
        servers="official",
    ),
    Row(
        (*_ANY, "uri"),
        "memo://shared",
        "memo://{server}/shared",
        "a URI of two servers is under the prefix of each",
        servers="official remote",
        gateways="file",
    ),
    *(
        Row(
            (kind, *more),
            direct,
            through,
            "a gateway has prompts and resources, if not of this server",
            servers="files floods",
        )
        for kind in ("prompts", "resources", "templates")
        for more, direct, through in ((("error", "*"), "{x}", ABSENT), (("items",), ABSENT, "{}"))
    ),
    # -- tasks
    Row(
        ("tools", "items", "*", "execution", "taskSupport"),
        "forbidden",
        ABSENT,
        "tasks are not passed on, and a tool without the field forbids them",
        servers="everything files",
    ),
    Row(
        ("tools", "items", "simulate-research-query", *_ANY),
        "{x}",
        ABSENT,
        "tasks are not passed on, and a tool that requires them is not listed",
        servers="everything",
    ),
    Row(
        ("about", "capabilities", "tasks", *_ANY),
        "{x}",
        ABSENT,
        "tasks are not passed on",
        servers="everything",
        gateways="single",
    ),
    # -- what a proxy declares
    Row(
        ("about", "capabilities", "logging"),
        ABSENT,
        "{}",
        "log lines of calls are passed on, and chosen by their level",
        servers="remote replicas",
        gateways="single",
    ),
    Row(
        ("about", "capabilities", "*", "listChanged"),
        "false",
        "true",
        "the proxy itself announces changes that it notices",
        servers="remote replicas",
        clients=_LEGACY,
        gateways="single",
    ),
    Row(
        ("level", *_ANY),
        "{x}",
        ABSENT,
        "the proxy leaves out log lines itself",
        servers=_OFFICIAL,
        clients=_LEGACY,
    ),
    Row(
        ("level",), ABSENT, "{}", "the proxy leaves out log lines itself", servers=_OFFICIAL, clients=_LEGACY
    ),
    # -- revisions
    Row(
        ("about", "revision"),
        "2025-11-25",
        "2026-07-28",
        "the proxy speaks 2026-07-28 for a server that does not",
        servers="everything",
        clients=_MODERN,
        gateways="single",
    ),
    Row(
        (*_ANY, "_meta", "io.modelcontextprotocol/serverInfo", "*"),
        "{x}",
        "{y}",
        "the server that answers is the gateway",
        clients=_MODERN,
        gateways="file",
    ),
    Row(
        (*_ANY, "_meta", "io.modelcontextprotocol/serverInfo", "*"),
        ABSENT,
        "{x}",
        "2026-07-28 names the server in each result",
        servers="everything",
        clients=_MODERN,
        gateways="single",
    ),
    Row(
        (*_ANY, "resultType"),
        ABSENT,
        "complete",
        "2026-07-28 names the type of each result",
        servers=_LEGACY_SERVERS,
        clients="python-modern",
    ),
    Row(
        ("read *", "result", "cacheScope"),
        ABSENT,
        "private",
        "2026-07-28 states how long a result may be kept",
        servers="everything",
        clients=_MODERN,
    ),
    Row(
        ("read *", "result", "ttlMs"),
        ABSENT,
        "0",
        "2026-07-28 states how long a result may be kept",
        servers="everything",
        clients=_MODERN,
    ),
    Row(
        ("call page", "asked", "0", "params", "elicitationId"),
        "id-1",
        ABSENT,
        "2026-07-28 has no ids of elicitations",
        servers="everything",
        clients=_MODERN,
    ),
    Row(
        ("call refuse", "error", "code"),
        "-32050",
        "-32603",
        "2026-07-28 reserves the code, and does not define it",
        servers=_OFFICIAL,
        clients=_MODERN,
    ),
    Row(
        ("read *nowhere", "error", "code"),
        "-32602",
        "-32002",
        "the code that legacy revisions have for it",
        servers="everything official remote replicas",
        clients="python-legacy",
    ),
    # -- texts and defaults
    Row(
        ("read *nowhere", "error", "message"),
        "{x}",
        "Resource not found: '{y}'",
        "mcpbus asks all servers that may have it, and answers itself",
        servers="everything official remote replicas",
    ),
    Row(
        ("read *nowhere", "error", "data", "uri"),
        ABSENT,
        "demo://nowhere",
        "mcpbus names the URI, as the specification has it",
        servers="everything",
    ),
    Row(
        ("call *", "result", "isError"),
        "false",
        ABSENT,
        "false is what a result without the field has",
        servers=_OFFICIAL,
    ),
    Row(
        ("complete *", "result", "completion", "hasMore"),
        ABSENT,
        "false",
        "mcpbus states whether there is more than the total",
        servers=_OFFICIAL,
    ),
)
