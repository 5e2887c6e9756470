"""What an issuer says of itself (RFC 8414, OpenID Connect Discovery)."""

from typing import Any

from mcpbus.auth.verifier import VerifierUnavailableError
from mcpbus.auth.web import IssuerHttp, ask
from mcpbus.protocol.http.addresses import issuer_metadata, read_address


async def find_endpoint(web: IssuerHttp, issuer: str, name: str) -> str:
    """Find out where an issuer has something.

    Args:
        web: Who asks it.
        issuer: Who it is.
        name: What is looked for, such as ``jwks_uri``.

    Raises:
        VerifierUnavailableError: It does not say, or what it says is no address to be asked.
    """
    address = (await _find_metadata(web, issuer)).get(name)
    if not isinstance(address, str):
        raise VerifierUnavailableError(f"the metadata of {issuer} has no {name}")
    try:
        read_address(address, name)
    except ValueError as error:
        raise VerifierUnavailableError(f"in the metadata of {issuer}, {error}") from None
    return address


async def _find_metadata(web: IssuerHttp, issuer: str) -> dict[str, Any]:
    """Ask an issuer for its metadata, at one place after the other.

    Raises:
        VerifierUnavailableError: There is none, or it is somebody else's.
    """
    failure = VerifierUnavailableError(f"{issuer} has no metadata")
    for place in issuer_metadata(issuer):
        try:
            document = await ask(web, "GET", place)
        except VerifierUnavailableError as error:
            failure = error
            continue
        if document.get("issuer") == issuer:
            return document
        failure = VerifierUnavailableError(f"{place} is the metadata of another issuer")
    raise failure
