"""The servers that are attacked."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs


@attrs.frozen
class Target:
    """A server to attack.

    Attributes:
        arguments: The arguments of ``mcpbus serve`` that name it.
        go: The file at whose appearance its hostile upstream server, if there is one, attacks.
    """

    arguments: Sequence[str]
    go: Path = Path(os.devnull)


@asynccontextmanager
async def server(name: str) -> AsyncIterator[Target]:
    """A server that is a file beside this one."""
    yield Target([str(Path(__file__).with_name(name))])
