"""What the other server says that belongs to no call: to whom of ours it is passed on."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

import trio

from mcpbus.client.errors import Disconnected
from mcpbus.core.notification import ELICITATION_COMPLETE, LIST_CHANGED, MESSAGE, PROGRESS, RESOURCE_UPDATED
from mcpbus.protocol.messages import ListName
from mcpbus.upstream.pipe import Pipe

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


class Hearing:
    """Hears what is said outside of calls, on all connections of one opened proxy.

    A connection that tells calls apart brings here only messages that belong to no call. They go to the session that owns the
    connection. On any other connection, a message of an extension goes to the call that runs there, if it is the only one. All else goes
    to the session that owns the connection, or that all its calls belong to. Changes go to all clients. The rest is dropped, and counted.

    Args:
        look: Looks at lists anew, by way of a connection.
        updated: Tells clients that a resource was updated.
        lost: Told where something may not have been heard, and what was subscribed to is forgotten there.

    Attributes:
        dropped: How much was said that concerns nobody, or cannot be read.
    """

    def __init__(
        self,
        look: Callable[[Pipe, Iterable[ListName]], Awaitable[None]],
        updated: Callable[[str], object],
        lost: Callable[[Pipe], object],
    ) -> None:
        self._look = look
        self._updated = updated
        self._lost = lost
        # Which lists have changed, and by which connection it was told last.
        self._changed: dict[ListName, Pipe] = {}
        self._stirred = trio.Event()
        self.dropped = 0

    async def run(self) -> None:
        """Look at lists that have changed, until cancelled: however often they did, and whoever told of it, once, and not again for a while."""
        while True:
            await self._stirred.wait()
            await trio.sleep(_TOGETHER_SECONDS)
            self._stirred = trio.Event()
            changed, self._changed = self._changed, {}
            began = trio.current_time()
            for pipe in {*changed.values()}:
                if not pipe.closing:
                    await self._look(pipe, [name for name, teller in changed.items() if teller is pipe])
            await trio.sleep(max(_APART_SECONDS, _RESTS * (trio.current_time() - began)))

    async def listen(self, pipe: Pipe, *, anew: bool) -> None:
        """Hear what is said on a connection, until it is lost.

        Args:
            pipe: The connection.
            anew: Whether to look at all lists first: they may have changed since it was last done.
        """
        if anew:
            self._note_changes(pipe, _LISTS.values())
        pipe.client.hear(partial(self.hear, pipe))
        while True:
            try:
                await pipe.client.next_notification()
            except Disconnected:
                if not pipe.client.connected:
                    return
                # Over HTTP that was the stream alone, and who waits again has it opened again.
                self._lost(pipe)
                self._note_changes(pipe, _LISTS.values())

    def _note_changes(self, pipe: Pipe, lists: Iterable[ListName]) -> None:
        if not pipe.legacy:  # else it is heard of where lists are looked at
            self._changed.update(dict.fromkeys(lists, pipe))
            self._stirred.set()

    def hear(self, pipe: Pipe, method: str, params: dict[str, Any]) -> None:
        """Take one notification."""
        if method in _LISTS:
            self._note_changes(pipe, [_LISTS[method]])
        elif method == RESOURCE_UPDATED and isinstance(params.get("uri"), str):
            self._updated(params["uri"])
        elif method not in _NEVER_OF_CALLS and len(pipe.calls) == 1 and pipe.guesses:
            next(iter(pipe.calls))(method, params)
        elif method == MESSAGE and pipe.calls and pipe.session is None and pipe.use.owned:
            next(reversed(pipe.calls))(method, params)  # all calls are of one client
        elif not self._say(pipe, method, params):
            self.drop(method)

    def drop(self, method: str) -> None:
        """Count something that concerns nobody, or cannot be read."""
        self.dropped += 1
        _log.debug("%a of another server concerns no client, or cannot be read", method)

    def _say(self, pipe: Pipe, method: str, params: dict[str, Any]) -> bool:
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
