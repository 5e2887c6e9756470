"""What is known of all requests that have one head, for a server that hands them to an endpoint without ASGI."""

from typing import Self

import attrs

from mcpbus.protocol.http.messages import Head
from mcpbus.serving.asgi import Endpoint
from mcpbus.serving.http1.reactor import Pace
from mcpbus.transports.answers import HeaderList


@attrs.frozen(eq=False)
class HeadFacts:
    """How an endpoint serves all requests that have one head, as far as head and endpoint alone decide it.

    Attributes:
        endpoint: The endpoint.
        immediate: See `Endpoint.is_immediate`.
        cleared: If so, see `Endpoint.clears`.
        cors: See `Endpoint.cors_headers`.
        pace: How long turns take in which they are served. Such requests ask for the same, as a rule: newer clients name in
            the head which tool they call.
    """

    endpoint: Endpoint
    immediate: bool
    cleared: bool
    cors: HeaderList
    pace: Pace = attrs.field(factory=Pace)

    @classmethod
    def of(cls, endpoint: Endpoint, head: Head) -> Self:
        """Ask an endpoint."""
        immediate = endpoint.is_immediate(head)
        return cls(endpoint, immediate, immediate and endpoint.clears(head), endpoint.cors_headers(head))
