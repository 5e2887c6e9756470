"""Features on an upstream server that the shared lists do not show: one client alone has them, or they are too new."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs

from mcpbus.features.completion import Completer
from mcpbus.features.prompt import RegisteredPrompt
from mcpbus.features.tool import Tool
from mcpbus.protocol.messages import ListName

Refresh: TypeAlias = Callable[[Any], Awaitable[None]]
"""Asks an upstream server for a list, unless what is known of it is fresh. Takes the memory budget in which the list counts."""
Kind: TypeAlias = Literal["tools", "prompts", "resources", "templates"]
KINDS: Final[tuple[Kind, ...]] = ("tools", "prompts", "resources", "templates")


@attrs.frozen(eq=False)
class Difference:
    """The difference between the lists that one client sees and the shared ones.

    Attributes:
        new: The items that it has alone, or that are described otherwise to it: by kind and key.
        gone: The keys of shared items that it does not have, by kind.
    """

    new: Mapping[Kind, Mapping[str, Any]]
    gone: Mapping[Kind, frozenset[str]]

    def __bool__(self) -> bool:
        return any(self.new.values()) or any(self.gone.values())


class Elsewhere(Protocol):
    """An upstream server, as a server above it asks for features that are in no list.

    A client is a request with all that is known of it. This package passes it on, and reads nothing of it.
    """

    @property
    def present(self) -> bool:
        """Whether there is any: a server that is mounted may have none itself."""

    def refreshing(self, client: Any, name: ListName, /) -> list[Refresh]:
        """Return what asks for a list on behalf of a client. It ends in time, and raises nothing."""

    def difference(self, client: Any, /) -> Difference | None:
        """Return what a client sees otherwise than all do, as far as that is known."""

    def rank(self, name: str, /) -> int | None:
        """Return how specific the prefix is by which a name is this server's; None if the name cannot be its own."""

    def tool(self, name: str, /) -> Tool | None:
        """Return a tool that calls what has this name there; None if all clients are refused."""

    def prompt(self, name: str, /) -> RegisteredPrompt | None:
        """Return a prompt that gets what has this name there; None if all clients are refused."""

    def completer(self, ref: str, argument: str, /) -> Completer | None:
        """Return what asks there for values of an argument; None if it has none."""


def owner_of_name(elsewhere: Sequence[Elsewhere], name: str) -> Elsewhere | None:
    """Return the upstream server that a name in no list belongs to: that of the longest prefix, if it is one.

    Of several servers without a prefix none is asked: what a client sends must not reach the one that it is not for.
    """
    ranked = [(rank, each) for each in elsewhere if each.present and (rank := each.rank(name)) is not None]
    longest = max((rank for rank, _ in ranked), default=None)
    found = [each for rank, each in ranked if rank == longest]
    return found[0] if len(found) == 1 else None
