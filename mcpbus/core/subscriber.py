"""A client that has subscribed to resources."""

from collections.abc import Hashable

import attrs


@attrs.frozen
class Subscriber:
    """A client that has subscribed to resources: a session, or one without a session in all its listens.

    Attributes:
        key: The id of the session, or the `RequestContext.state_key`; by it two subscribers are one client.
        owner: The owner to which its subscriptions are counted.
        client: The `Session`, or the `RequestContext` of a listen.
    """

    key: Hashable
    owner: Hashable = attrs.field(eq=False)
    client: object = attrs.field(eq=False, repr=False)
