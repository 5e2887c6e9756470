"""The values that a watch returns: texts and numbers alone, so that each can be kept, and made JSON."""

from typing import Literal, TypeAlias

import msgspec

State: TypeAlias = Literal["running", "waiting", "asking", "suspended", "task", "ended"]


class StackFrame(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of code at which a handler is.

    Attributes:
        file: The path of the file.
        line: The number of the line.
        function: The name of the function.
        own: Whether it is the author's code: no part of mcpbus, of trio, of the standard library, or of an installed package.
        depth: How many tasks it is below the handler: 1 in a task that the handler started.
        thread: Whether it runs in a worker thread.
    """

    file: str
    line: int
    function: str
    own: bool = False
    depth: int = 0
    thread: bool = False

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line} in {self.function}"


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a client, as it is or was.

    Attributes:
        number: Counts the requests of the bus.
        method: Its method.
        name: The name of its tool or prompt; None for another method.
        id: Its JSON-RPC id, as text.
        session: The first eight characters of the id of its session; None if it has none.
        owner: The client whose share of the limits it uses.
        client: The name and the version of the client's program.
        revision: The protocol revision.
        transport: How its client is connected.
        began: When it arrived, in seconds since 1970.
        seconds: How old it is, or how long it took.
        state: ``running`` in a thread, ``waiting``, ``asking`` its client, ``suspended``, a ``task``, or ``ended``.
        outcome: See `Life.outcome`; None until it has ended.
        error: See `Life.error`.
        question: The question that waits for an answer, at most 200 characters.
        messages: How many messages its handler has sent, without the reply.
        reply: The fate of its reply; None until that is known.
        resumes: The number of the request that began its call, if it brings answers to a suspended call.
        where: The line of the author's code at which it waits, as ``shop.py:17 in poll_shelf``.
    """

    number: int
    method: str
    name: str | None
    id: str
    session: str | None
    owner: str
    client: str
    revision: str
    transport: str
    began: float
    seconds: float
    state: State
    outcome: str | None = None
    error: str | None = None
    question: str | None = None
    messages: int = 0
    reply: str | None = None
    resumes: int | None = None
    where: str | None = None


class LimitView(msgspec.Struct, frozen=True):
    """A limit that was reached.

    Attributes:
        time: When, the last time, in seconds since 1970.
        limit: The name of the option that sets it.
        owner: The client that reached it; None for no client in particular.
        consequence: What followed, for people.
        times: How often that was, one after the other.
    """

    time: float
    limit: str
    owner: str | None
    consequence: str
    times: int = 1


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """A message to a client, as it is now.

    Attributes:
        number: Counts the messages of the bus.
        method: Its method; of a reply, that of the request.
        reply: Whether it is a reply.
        made: When it was made, in seconds since 1970.
        seconds: How old it is, or how long it took to its fate.
        location: Where it is pending; None once it has a fate.
        fate: What became of it; None while it is pending.
        reason: Why it was discarded or refused.
        request: The number of the request that caused it.
        tool: The name of its tool or prompt.
        target: The session or the listen that it is for, as ``session VvtoSnv8`` or ``listen 5``; None of what a handler sends to its
            own client.
    """

    number: int
    method: str
    reply: bool
    made: float
    seconds: float
    location: str | None
    fate: str | None
    reason: str | None
    request: int | None
    tool: str | None
    target: str | None
