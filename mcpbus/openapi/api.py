"""An OpenAPI document as the parts of a server: its tools, its presentation, and the client that its calls share."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from os import PathLike

import attrs

from mcpbus.client.http_library import httpx2
from mcpbus.features.tool import Tool
from mcpbus.openapi.addresses import check_base_url
from mcpbus.openapi.api_client import ApiClient, CallLimits, OpenTransport, open_api_client, open_pool
from mcpbus.openapi.choosing import read_operation_patterns
from mcpbus.openapi.document import check_version
from mcpbus.openapi.loading import AnyDocument, DocumentLoader
from mcpbus.openapi.resources import PlannedResource, scheme_of
from mcpbus.openapi.security import Credential, read_security
from mcpbus.openapi.tools import ApiAddress, ToolChoice, make_tools, report
from mcpbus.protocol.printable import printable
from mcpbus.protocol.validators import check_positive, check_text

_OWNER = "Server.from_openapi()"


@attrs.frozen(kw_only=True)
class ApiOptions:
    """How a document becomes a server; see `mcpbus.Server.from_openapi`.

    Raises:
        TypeError: An option is of another type.
        ValueError: An option cannot be right.
    """

    owner: str
    name: str | None = None
    base_url: str | None = None
    server_variables: Mapping[str, str] | None = None
    client: httpx2.AsyncClient | None = None
    credentials: Mapping[str, Credential] | None = None
    include: Iterable[str] | None = None
    exclude: Iterable[str] = ()
    rename: Mapping[str, str] | None = None
    resources: Iterable[str] = ()
    references: Iterable[str | PathLike[str]] = ()
    timeout: float = 30.0
    max_response_bytes: int = 1024 * 1024

    def __attrs_post_init__(self) -> None:
        check_positive(self.owner, timeout=self.timeout, max_response_bytes=self.max_response_bytes)
        for option in ("server_variables", "rename"):
            given = getattr(self, option) or {}
            if not isinstance(given, Mapping) or not all(
                isinstance(text, str) for pair in given.items() for text in pair
            ):
                raise TypeError(f"{self.owner}: {option} is a dict of texts")
        if not isinstance(self.credentials or {}, Mapping):
            raise TypeError(
                f"{self.owner}: credentials is a dict: the name of a security scheme, and its secret"
            )
        if isinstance(self.references, str | bytes | PathLike) or not isinstance(self.references, Iterable):
            raise TypeError(f"{self.owner}: references is a list: write references=[...]")
        if self.client is None:
            return
        if not isinstance(self.client, httpx2.AsyncClient):
            raise TypeError(
                f"{self.owner}: client is a httpx2.AsyncClient(...), not {type(self.client).__name__}"
            )
        if self.credentials:
            raise TypeError(
                f"{self.owner}: credentials are for the client that mcpbus makes: give your client= its own headers=, params= or auth="
            )

    def address(self) -> ApiAddress:
        """Return the address of the API, as far as the options have it.

        Raises:
            OpenApiError: It is none.
        """
        variables = self.server_variables or {}
        if self.base_url is not None:
            check_text(self.owner, base_url=self.base_url)
            return ApiAddress(check_base_url(self.base_url), variables)
        if self.client is not None and self.client.base_url.host:
            return ApiAddress(str(self.client.base_url).rstrip("/"), variables)
        return ApiAddress(None, variables)

    def choice(self, title: str) -> ToolChoice:
        """Return which operations become tools and resources of a document with this title.

        Raises:
            TypeError: The patterns are no texts.
        """
        include = read_operation_patterns(self.owner, "include", self.include)
        exclude = read_operation_patterns(self.owner, "exclude", self.exclude)
        resources = read_operation_patterns(self.owner, "resources", self.resources)
        scheme = scheme_of(self.name or title)
        return ToolChoice(include, exclude or (), self.rename or {}, resources or (), scheme)


@attrs.frozen
class ApiParts:
    """The parts of a server that calls an API.

    Attributes:
        title: The title of the document.
        version: Its version.
        tools: The tools.
        resources: The resources.
        open: Opens the client; the tools expect it as the state of their server.
    """

    title: str
    version: str
    tools: tuple[Tool, ...]
    resources: tuple[PlannedResource, ...]
    open: Callable[[], AbstractAsyncContextManager[ApiClient]]


def read_api(document: AnyDocument, options: ApiOptions, transport: OpenTransport = open_pool) -> ApiParts:
    """Return the parts of a server for a document.

    Args:
        document: The document itself, its path, or its address.
        options: The author's options.
        transport: Opens what sends the requests, if the author has no client.

    Raises:
        OpenApiError: The document cannot be used.
        TypeError: An option is of another type.
        ValueError: An option does not fit the document.
    """
    address = options.address()
    options.choice("")  # a mistake in it is refused before anything is read
    references = DocumentLoader(options.references).load(document)
    legacy, root = check_version(references.root.value, "the document")
    info = root.get("info")
    info = info if isinstance(info, dict) else {}
    title, version = (
        printable(info.get(each) or "", lines=False, longest=100) for each in ("title", "version")
    )
    security = read_security(references, options.credentials or {})
    made = make_tools(references, options.choice(title), address, security, legacy=legacy)
    report(options.name or title or "document", made, chosen=options.include is not None)
    limits = CallLimits(options.timeout, options.max_response_bytes)
    return ApiParts(
        title or "api",
        version or "0.0.0",
        made.tools,
        made.resources,
        partial(open_api_client, transport, options.client, security, limits),
    )
