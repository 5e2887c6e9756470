"""What is known of all requests that have one head, for a server that hands them to an endpoint without ASGI."""

from typing import Self

import attrs
import msgspec

from mcpbus.core.fairness import Pace
from mcpbus.protocol.http.messages import RequestHead
from mcpbus.serving.asgi import DirectEndpoint
from mcpbus.transports.responses import HeaderList


@attrs.frozen(eq=False)
class HeadCacheEntry:
    """How an endpoint serves all requests that have one head, as far as head and endpoint alone decide it.

    Attributes:
        endpoint: The endpoint.
        immediate: Whether turns serve it: its client does not leave HTTP with it.
        head_validated: If so, see `DirectEndpoint.is_head_valid`.
        cors: See `DirectEndpoint.cors_headers`.
        pace: How long turns take in which they are served. Such requests ask for the same, as a rule: newer clients name in
            the head which tool they call.
    """

    endpoint: DirectEndpoint
    immediate: bool
    head_validated: bool
    cors: HeaderList
    pace: Pace = attrs.field(factory=Pace)

    @classmethod
    def of(cls, endpoint: DirectEndpoint, head: "RememberedHead") -> Self:
        """Ask an endpoint."""
        judged = head.judged
        immediate = not head.leaves
        return cls(
            endpoint, immediate, immediate and endpoint.is_head_valid(judged), endpoint.cors_headers(judged)
        )


class RememberedHead(msgspec.Struct, eq=False, kw_only=True):
    """A request before its body. One that is not long is remembered: clients send the same few for ever.

    Attributes:
        judged: What is judged of it: its HTTP method; the path of its target, with what was percent-encoded decoded; its
            query; its fields.
        length: Of its body in bytes; None if that is not known before its end.
        expects: Whether its client waits for a `100 Continue` before it sends the body.
        leaves: Whether its client wants to speak something else from then on, such as a WebSocket.
        plain: The same without what it alone says, such as credentials or the length of its body; None if that is all of it. Of both
            is said the same, but for what depends on the length.
        facts: What the endpoint that served the last request with it said of them; None before that.
    """

    judged: RequestHead
    length: int | None
    expects: bool = False
    leaves: bool = False
    plain: Self | None = None
    facts: HeadCacheEntry | None = None


def learn_facts(endpoint: DirectEndpoint, head: RememberedHead) -> HeadCacheEntry:
    """Learn of an endpoint, or of another head that is like this one, how it serves such requests, and remember it."""
    plain = head.plain or head
    facts = plain.facts
    if facts is None or facts.endpoint is not endpoint:
        facts = plain.facts = HeadCacheEntry.of(endpoint, plain)
    if (head.length or 0) > endpoint.max_body_bytes:
        facts = HeadCacheEntry.of(endpoint, head)
    head.facts = facts
    return facts
