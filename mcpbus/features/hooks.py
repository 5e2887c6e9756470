"""What runs beside requests: as sessions begin and end, and for what clients tell."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from mcpbus.features.errors import RegistrationError
from mcpbus.features.tool import check_timeout
from mcpbus.protocol.keywords import explained_as

F = TypeVar("F", bound=Callable[..., Any])

_OF_THE_BUS = frozenset({"notifications/cancelled"})

SessionHook: TypeAlias = Callable[[Any], Awaitable[object]]


class NotificationHook(msgspec.Struct, frozen=True):
    """What runs for a client's notification, and for how long at most, in seconds."""

    function: Callable[[Any], Any]
    timeout: float


class Hooks:
    """The hooks of a server, and of those that are mounted in it."""

    def __init__(self) -> None:
        self._mounted: list[Hooks] = []
        self._session_hooks: list[SessionHook] = []
        self._session_end_hooks: list[SessionHook] = []
        self._notification_hooks: dict[str, NotificationHook] = {}

    @property
    def session_hooks(self) -> Sequence[SessionHook]:
        """What runs while a legacy session registers; those of mounted servers come last."""
        below = [hook for each in self._below() for hook in each._session_hooks]  # noqa: SLF001 - its own kind
        return [*self._session_hooks, *below]

    @property
    def session_end_hooks(self) -> Sequence[SessionHook]:
        """What runs when a session has ended, in the same order."""
        below = [hook for each in self._below() for hook in each._session_end_hooks]  # noqa: SLF001 - its own kind
        return [*self._session_end_hooks, *below]

    def _below(self) -> "list[Hooks]":
        """All that is mounted in it, and in that, and so on: each once, though it may be offered in several ways."""
        ways = [each for below in self._mounted for each in (below, *below._below())]  # noqa: SLF001 - its own kind
        return [*dict.fromkeys(ways)]

    def notification_hooks(self, method: str) -> Sequence[NotificationHook]:
        """What runs when a client sends a notification of this method: its own, and those of mounted servers."""
        found = (each._notification_hooks.get(method) for each in (self, *self._below()))  # noqa: SLF001 - its own kind
        return [hook for hook in found if hook is not None]

    def on_session(self, hook: F) -> F:
        """Have `hook`, an async function of the session, run while a legacy session registers.

        Raises:
            RegistrationError: it is not async.
        """
        _check_async("on_session", hook)
        self._session_hooks.append(hook)
        return hook

    def on_session_end(self, hook: F) -> F:
        """Have `hook`, an async function of the session, run when a legacy session has ended, in whatever way.

        It runs for each session that was registered. Its `state` is there still; nothing can be said to the client any more. It is
        cancelled after `Limits.on_session_timeout`, which all hooks have together; where the whole server is cancelled it does not run.

        Raises:
            RegistrationError: it is not async.
        """
        _check_async("on_session_end", hook)
        self._session_end_hooks.append(hook)
        return hook

    @explained_as("@server.on_notification")
    def on_notification(self, method: str, *, timeout: float = 10.0) -> Callable[[F], F]:
        """Have an async function of a `ClientNotification` run when a client sends a notification of this method.

        Each runs in a task of its own, so that one may overtake another. What it raises is logged. As many run at once as there may
        be requests, with which they are counted; what comes beyond that is dropped.

        Args:
            method: ``notifications/roots/list_changed``, say, or one of an extension.
            timeout: seconds after which the function is cancelled.

        Raises:
            RegistrationError: it is not async, the method is no notification that is left to a server's author, or has a function
                already, or the timeout is no time.
        """
        if not isinstance(method, str):
            raise TypeError(
                'on_notification needs a method: write @server.on_notification("notifications/...")'
            )
        owner = f"on_notification({method!r})"
        if not method.startswith("notifications/") or method in _OF_THE_BUS:
            raise RegistrationError(f"{owner}: that is no notification, or one that the bus itself takes")
        if method in self._notification_hooks:
            raise RegistrationError(f"{owner} is registered already")
        check_timeout(timeout, owner)

        def register(hook: F) -> F:
            _check_async(owner, hook)
            self._notification_hooks[method] = NotificationHook(hook, timeout)
            return hook

        return register


def _check_async(owner: str, hook: Any) -> None:
    """Refuse a hook that is not async.

    Raises:
        RegistrationError: it is not.
    """
    if not inspect.iscoroutinefunction(hook):
        raise RegistrationError(f"{owner}: {hook!r} is not an async function")
