"""What an issuer says of itself (RFC 8414, OpenID Connect Discovery)."""

from typing import Any

from mcpbus.auth.verifier import UnavailableError
from mcpbus.auth.web import Web, ask
from mcpbus.protocol.http.addresses import issuer_metadata, read_address


async def find_endpoint(web: Web, issuer: str, name: str) -> str:
    """Find out where an issuer has something.

    Args:
        web: Who asks it.
        issuer: Who it is.
        name: What is looked for, such as ``jwks_uri``.

    Raises:
        UnavailableError: It does not say, or what it says is no address to be asked.
    """
    address = (await _find_metadata(web, issuer)).get(name)
    if not isinstance(address, str):
        raise UnavailableError(f"the metadata of {issuer} has no {name}")
    try:
        read_address(address, name)
    except ValueError as error:
        raise UnavailableError(f"in the metadata of {issuer}, {error}") from None
    return address


async def _find_metadata(web: Web, issuer: str) -> dict[str, Any]:
    """Ask an issuer for its metadata, at one place after the other.

    Raises:
        UnavailableError: There is none, or it is somebody else's.
    """
    failure = UnavailableError(f"{issuer} has no metadata")
    for place in issuer_metadata(issuer):
        try:
            document = await ask(web, "GET", place)
        except UnavailableError as error:
            failure = error
            continue
        if document.get("issuer") == issuer:
            return document
        failure = UnavailableError(f"{place} is the metadata of another issuer")
    raise failure
