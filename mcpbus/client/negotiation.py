"""Which revision a client and its server speak: the newest that both know, found out as revision 2026-07-28 has it.

A modern request is sent first, `server/discover`. A server that answers it, or with an error that only modern servers know, is
modern. Any other one, be it by an error, by a status or by silence, is of an older revision and is greeted by the handshake.
Source: specification 2026-07-28, basic/versioning; requirements D-12, D-13 and M-16.
"""

import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import attrs
import trio

from mcpbus.client.client import Client
from mcpbus.client.errors import ClientError, MalformedAnswerError, StatusError
from mcpbus.protocol.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    SERVER_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    ProtocolError,
)
from mcpbus.protocol.revisions import LATEST, LATEST_LEGACY, REVISIONS, Era, Revision

_CREDENTIALS: Final = {401, 403, 407}
"""Statuses that say nothing about revisions."""

_NOT_IN_THIS_REVISION: Final = {
    INVALID_REQUEST,
    INVALID_PARAMS,
    SERVER_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
}
"""The errors with which servers refuse ``initialize`` of a revision that they do not know, instead of offering another one."""

_OLDER: Final = (
    f"; the server may know only revisions before {LATEST_LEGACY.name}: fix an older one, as by revision='2025-06-18' "
    "(--revision on the command line)"
)


async def negotiate(client: Client, fixed: Revision | None, *, probe_seconds: float = math.inf) -> None:
    """Have a client that has said nothing yet speak a revision that its server speaks.

    Args:
        client: The client.
        fixed: The only revision that will do; None for the newest that both know.
        probe_seconds: How long a server may take to answer the first modern request, if silence says that it is of an
            older revision.

    Raises:
        ProtocolError: The server refused.
        ClientError: There is no answer, or no revision that both know.
    """
    if fixed is not None:
        await _insist(client, fixed)
    elif not await _discover(client, LATEST, probe_seconds):
        try:
            await _greet(client, LATEST_LEGACY)
        except ProtocolError as error:
            # A server that was slow to answer the first request may have taken that for its client's choice.
            if error.code == UNSUPPORTED_PROTOCOL_VERSION and await _discover(client, LATEST, math.inf):
                return
            if error.code not in _NOT_IN_THIS_REVISION:
                raise
            raise ProtocolError(error.code, f"{error.message}{_OLDER}", error.data) from None
        except StatusError as error:
            if error.status != HTTPStatus.BAD_REQUEST:
                raise
            raise StatusError(error.status, f"{error}{_OLDER}") from None


async def _insist(client: Client, revision: Revision) -> None:
    if revision.era is Era.LEGACY:
        await _greet(client, revision)
        if client.revision is not revision:
            raise ClientError(f"the server does not speak {revision.name}: it offers {client.revision.name}")
    elif not await _discover(client, revision, math.inf):
        raise ClientError(f"the server does not speak {revision.name}")


async def _greet(client: Client, revision: Revision) -> None:
    client.adopt(revision)
    await client.initialize()


async def _discover(client: Client, revision: Revision, seconds: float) -> bool:
    """Ask a server what it offers in a modern revision; tell whether it speaks that."""
    client.adopt(revision)
    found = await _ask_for_versions(client, seconds)
    if found.refused and revision.name in found.versions:
        # It names the very revision that it has refused: it is believed once.
        found = await _ask_for_versions(client, seconds)
    return not found.refused and revision.name in found.versions


@attrs.frozen
class _Found:
    """Which revisions a server says that it speaks, and whether it said so to refuse the one that it was asked in."""

    versions: Sequence[object] = ()
    refused: bool = False


async def _ask_for_versions(client: Client, seconds: float) -> _Found:
    with trio.move_on_after(seconds):
        try:
            client.discovery = await client.request("server/discover")
            return _Found(_list(client.discovery.get("supportedVersions")))
        except ProtocolError as error:
            if error.code in {HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY}:
                raise
            if error.code == UNSUPPORTED_PROTOCOL_VERSION:
                versions = _list(error.data.get("supported") if isinstance(error.data, dict) else None)
                _check_common(versions)
                return _Found(versions, refused=True)
        except StatusError as error:
            if error.status in _CREDENTIALS:
                raise
        except MalformedAnswerError:
            pass
    return _Found()


def _list(versions: object) -> Sequence[object]:
    return versions if isinstance(versions, list) else ()


def _check_common(versions: Sequence[object]) -> None:
    """Refuse where a server has said which revisions it speaks, and none of them is known here."""
    if versions and not any(version in REVISIONS for version in versions):
        raise ClientError(
            f"the server speaks {', '.join(map(str, versions))}, and this client {', '.join(REVISIONS)}"
        )
