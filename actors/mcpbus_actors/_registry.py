"""Names under which actors can be found, for as long as they live."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import trio

from mcpbus_actors._address import Address
from mcpbus_actors._errors import LifecycleError, NameTakenError


class NameRegistry(Mapping[Hashable, Address[Any]]):
    """A mapping from names to the addresses of living actors.

    A registration vanishes in the same turn in which its actor ends, so that what is found here was
    alive when it was looked up. It may end right after: `Address.tell` says so.

    ```python
    system.registry.register("printer", address)
    system.registry["printer"].tell(Print(page))
    ```
    """

    __slots__ = ("_addresses", "_names")

    def __init__(self) -> None:
        self._addresses: dict[Hashable, Address[Any]] = {}
        self._names: dict[Address[Any], set[Hashable]] = {}

    @trio.lowlevel.enable_ki_protection
    def register(self, name: Hashable, address: Address[Any]) -> None:
        """Register an actor. It may have several names; to do it twice is harmless.

        Raises:
            NameTakenError: The name belongs to another living actor.
            LifecycleError: The actor has stopped.
        """
        if address.stopped:
            raise LifecycleError(f"{address.name} has stopped and cannot be registered as {name!r}")
        holder = self._addresses.setdefault(name, address)
        if holder is not address:
            raise NameTakenError(f"{name!r} is registered to {holder.name}; unregister it first")
        self._names.setdefault(address, set()).add(name)

    @trio.lowlevel.enable_ki_protection
    def unregister(self, name: Hashable) -> None:
        """Take a name back.

        Raises:
            KeyError: Nobody has it.
        """
        address = self._addresses.pop(name)
        names = self._names[address]
        names.remove(name)
        if not names:
            del self._names[address]

    def forget(self, address: Address[Any]) -> None:
        """Take back every name of an actor that has ended."""
        for name in self._names.pop(address, ()):
            del self._addresses[name]

    def __getitem__(self, name: Hashable) -> Address[Any]:
        return self._addresses[name]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._addresses)

    def __len__(self) -> int:
        return len(self._addresses)
