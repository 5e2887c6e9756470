"""What one client is offered: the features of the server, with tools of its own over them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from mcpbus.features.catalogue import FeatureSet
from mcpbus.features.errors import RegistrationError
from mcpbus.features.tool import Tool
from mcpbus.protocol.messages import ListName


class SessionFeatures(ABC):
    """A session's part in what its client is offered. A backend that knows features gives it those of the server."""

    __slots__ = ("_features",)

    def __init__(self) -> None:
        self._features: FeatureSet | None = None

    @property
    def features(self) -> FeatureSet:
        """What the client is offered.

        Raises:
            RegistrationError: What is served was not made with mcpbus, and has no features.
        """
        if self._features is None:
            raise RegistrationError("what is served here is no mcpbus.Server: a session has no features")
        return self._features

    @features.setter
    def features(self, features: FeatureSet) -> None:
        self._features = features

    @abstractmethod
    def check_thread(self, call: str) -> None:
        """Raise if this is not the thread that the session belongs to."""

    @abstractmethod
    def list_changed(self, name: ListName) -> None:
        """Tell the client that its list has changed."""

    def add_tool(self, tool: Tool | Callable[..., Any], **fields: Any) -> Tool:
        """Give this client a tool of its own; it takes the place of the server's of the same name.

        The client is told that its list of tools has changed, unless it is still registering.

        Args:
            tool: A function, or a tool made by `mcpbus.tool`.
            **fields: As for `Server.tool`.

        Raises:
            RegistrationError: The session has a tool of that name, or the function cannot be one.
        """
        self.check_thread("session.add_tool")
        return self._own().add_tool(tool, **fields)

    def remove_tool(self, name: str) -> None:
        """Take one of its own tools from this client, and tell it.

        Raises:
            RegistrationError: The session has no tool of that name of its own.
        """
        self.check_thread("session.remove_tool")
        if not self.features.overlaid:
            raise RegistrationError(f"tool {name!r} is not one of this session's own; it has none")
        self.features.remove_tool(name)

    def disable(self, *, names: Iterable[str] | None = None, tags: Iterable[str] | None = None) -> None:
        """Hide tools from this client, the server's or its own, as `Server.disable` hides them from all.

        What is hidden is the name: a tool of the server's that a hidden one of the session's stood before stays hidden with it,
        also once that one is removed, until `enable` is told so.

        The client is told that its list of tools has changed, unless it is still registering.

        Args:
            names: As for `Server.enable`.
            tags: As for `Server.enable`.

        Raises:
            RegistrationError: There is no such tool, or no such tag.
        """
        self.check_thread("session.disable")
        self._own().disable_tools(names, tags)

    def enable(self, *, names: Iterable[str] | None = None, tags: Iterable[str] | None = None) -> None:
        """Let this client see tools again that `disable` has hidden from it, and tell it.

        What the server hides from all clients stays hidden.

        Args:
            names: As for `Server.enable`.
            tags: As for `Server.enable`.

        Raises:
            RegistrationError: There is no such tool, or no such tag.
        """
        self.check_thread("session.enable")
        self._own().enable_tools(names, tags)

    def _own(self) -> FeatureSet:
        """Return what this client alone is offered; made only now, since most have nothing of their own."""
        if not self.features.overlaid:
            self.features = self.features.overlay()
            self.features.on_change(self.list_changed)
        return self.features
