"""The address of an API: the servers that a document names, with their variables.

Source: OpenAPI 3.1.1, "Server Object" and "Server Variable Object".
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urljoin, urlsplit

from mcpbus.openapi.document import Located, OpenApiError
from mcpbus.protocol.printable import quoted

_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")
_LONGEST: Final = 200
_WAY_OUT: Final = "give base_url='https://...'"


def check_base_url(url: str, what: str = "base_url") -> str:
    """Return the address of an API without the slash at its end.

    Raises:
        OpenApiError: It is no address. It is not quoted, since it may contain a password.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise OpenApiError(f"{what} is an address such as 'https://api.example.com/v1'")
    if parts.query or parts.fragment:
        raise OpenApiError(f"{what} has a query or a fragment, which an address of an API has not")
    return url.rstrip("/")


def address_of(servers: Located | None, base: str, variables: Mapping[str, str]) -> str:
    """Return the address of the first server that a document names.

    Args:
        servers: The list of servers, if there is one.
        base: The address of the document, against which that of a server may be relative.
        variables: Values for variables, by name. The document has one for each that is left out.

    Raises:
        OpenApiError: There is none, or a variable has a value that it may not have.
    """
    first = (
        servers.value[0]
        if servers is not None and isinstance(servers.value, list) and servers.value
        else None
    )
    given = first if isinstance(first, dict) else {}
    template = given.get("url", "/")
    if not isinstance(template, str):
        raise OpenApiError("the address of a server is a text")
    described = given.get("variables")
    described = described if isinstance(described, dict) else {}

    def value(found: re.Match[str]) -> str:
        variable = described.get(found[1])
        variable = variable if isinstance(variable, dict) else {}
        chosen = variables.get(found[1], variable.get("default"))
        if not isinstance(chosen, str):
            raise OpenApiError(
                f"the address of the server needs a value for {quoted(found[1], 50)}: {_WAY_OUT}"
            )
        allowed = variable.get("enum")
        if isinstance(allowed, list) and allowed and chosen not in allowed:
            shown = ", ".join(quoted(each, 50) for each in allowed[:8])
            raise OpenApiError(f"server_variables: {quoted(found[1], 50)} is one of {shown}")
        return chosen

    address = urljoin(base, _VARIABLE.sub(value, template))
    if urlsplit(address).scheme not in {"http", "https"}:
        raise OpenApiError(
            f"the document does not name the host of the API, only {quoted(template, _LONGEST)}: {_WAY_OUT}"
        )
    return check_base_url(address, "the address of the server in the document")
