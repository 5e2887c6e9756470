"""What the other server says that belongs to no call: to whom of ours it is passed on."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

import trio

from mcpbus.client.errors import DisconnectedError
from mcpbus.core.outbound import ELICITATION_COMPLETE, LIST_CHANGED, MESSAGE, PROGRESS, RESOURCE_UPDATED
from mcpbus.protocol.messages import ListName
from mcpbus.upstream.connection import UpstreamConnection

_log = logging.getLogger("mcpbus")

OF_NO_CALL: Final = frozenset({*LIST_CHANGED.values(), RESOURCE_UPDATED, ELICITATION_COMPLETE})
"""What is said of no call, though it may be said in one."""
_TOGETHER_SECONDS: Final = 0.05
"""How long is waited for more changes, before lists are looked at."""
_APART_SECONDS: Final = 1.0
_RESTS: Final = 9.0
"""How long they are not looked at again: as many seconds at least, and as many times as long as it took."""
_NEVER_OF_CALLS: Final = OF_NO_CALL | {MESSAGE, PROGRESS}
"""What nobody takes for a call's that does not say of which it is."""
_LISTS: Final[dict[str, ListName]] = {method: name for name, method in LIST_CHANGED.items()}  # type: ignore[misc]


class _Changes:
    """Lists that have changed: passed on once for many changes, and not again for a while.

    Args:
        look: Takes a connection and the lists of which it has reported a change.
        rests: For how many times as long as that took no other change is passed on.
    """

    def __init__(
        self, look: Callable[[UpstreamConnection, Iterable[ListName]], Awaitable[None]], *, rests: float
    ) -> None:
        self._look = look
        self._rests = rests
        self._changed: dict[UpstreamConnection, dict[ListName, None]] = {}
        self._stirred = trio.Event()

    def note(self, pipe: UpstreamConnection, lists: Iterable[ListName]) -> None:
        """Note which lists have changed, as a connection reports."""
        self._changed.setdefault(pipe, {}).update(dict.fromkeys(lists))
        self._stirred.set()

    async def run(self) -> None:
        """Pass changes on until cancelled."""
        while True:
            await self._stirred.wait()
            await trio.sleep(_TOGETHER_SECONDS)
            self._stirred = trio.Event()
            changed, self._changed = self._changed, {}
            began = trio.current_time()
            for pipe, names in changed.items():
                if not pipe.closing:
                    await self._look(pipe, list(names))
            await trio.sleep(max(_APART_SECONDS, self._rests * (trio.current_time() - began)))


def _at_once(
    changed: Callable[[UpstreamConnection, Iterable[ListName]], object],
) -> Callable[[UpstreamConnection, Iterable[ListName]], Awaitable[None]]:
    async def look(pipe: UpstreamConnection, lists: Iterable[ListName]) -> None:
        changed(pipe, lists)

    return look


class NotificationRelay:
    """Hears what is said outside of calls, on all connections of one opened proxy.

    A connection that tells calls apart brings here only messages that belong to no call. They go to the session that owns the
    connection. On any other connection, a message of an extension goes to the call that runs there, if it is the only one. All else goes
    to the session that owns the connection, or that all its calls belong to. Changes go to the client that owns the connection, or to all
    clients where none does. The rest is dropped, and counted.

    Args:
        look: Looks at the shared lists again, by way of a connection that no client owns.
        changed: Takes lists that have changed for the client that owns a connection.
        updated: Takes a resource that was updated, and the connection that reported it.
        lost: Told where something may not have been heard, and what was subscribed to is forgotten there.

    Attributes:
        dropped: How much was said that concerns nobody, or cannot be read.
    """

    def __init__(
        self,
        look: Callable[[UpstreamConnection, Iterable[ListName]], Awaitable[None]],
        changed: Callable[[UpstreamConnection, Iterable[ListName]], object],
        updated: Callable[[UpstreamConnection, str], object],
        lost: Callable[[UpstreamConnection], object],
    ) -> None:
        self._updated = updated
        self._lost = lost
        self._shared = _Changes(look, rests=_RESTS)
        self._owned = _Changes(_at_once(changed), rests=0)
        self.dropped = 0

    async def run(self) -> None:
        """Pass on which lists have changed, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._shared.run)
            nursery.start_soon(self._owned.run)

    async def listen(self, pipe: UpstreamConnection) -> None:
        """Hear what is said on a connection, until it is lost."""
        pipe.client.handle_notification(partial(self.hear, pipe))
        while True:
            try:
                await pipe.client.next_notification()
            except DisconnectedError:
                if not pipe.client.connected:
                    return
                # Over HTTP that was the stream alone, and who waits again has it opened again.
                self._lost(pipe)
                self._note_changes(pipe, _LISTS.values())

    def _note_changes(self, pipe: UpstreamConnection, lists: Iterable[ListName]) -> None:
        (self._owned if pipe.use.owned else self._shared).note(pipe, lists)

    def hear(self, pipe: UpstreamConnection, method: str, params: dict[str, Any]) -> None:
        """Take one notification."""
        if method in _LISTS:
            self._note_changes(pipe, [_LISTS[method]])
        elif method == RESOURCE_UPDATED and isinstance(params.get("uri"), str):
            self._updated(pipe, params["uri"])
        elif method not in _NEVER_OF_CALLS and len(pipe.calls) == 1 and pipe.guesses:
            next(iter(pipe.calls))(method, params)
        elif method == MESSAGE and pipe.calls and pipe.session is None and pipe.use.owned and pipe.guesses:
            next(reversed(pipe.calls))(method, params)  # all calls are of one client
        elif not self._say(pipe, method, params):
            self.drop(method)

    def drop(self, method: str) -> None:
        """Count something that concerns nobody, or cannot be read."""
        self.dropped += 1
        _log.debug("%a of another server concerns no client, or cannot be read", method)

    def _say(self, pipe: UpstreamConnection, method: str, params: dict[str, Any]) -> bool:
        """Send it to the session that owns the connection, or that all its calls belong to; return whether that is possible."""
        session, of_calls = pipe.session, {*pipe.calls.values()}
        if session is None and len(of_calls) == 1 and pipe.guesses:
            [session] = of_calls
        if session is None:
            return False
        try:
            if method == MESSAGE:
                session.log(params["level"], params.get("data"), params.get("logger"))
            elif method == ELICITATION_COMPLETE:
                session.elicitation_complete(params["elicitationId"])
            else:
                session.notify(method, params)
        except (KeyError, TypeError, ValueError, RecursionError):
            return False
        return True
