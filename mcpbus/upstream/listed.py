"""One list of the upstream server, as the proxy offers it to all clients."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from mcpbus.client.yielding import Yielder
from mcpbus.features.errors import RegistrationError
from mcpbus.features.registry import ItemRegistry
from mcpbus.protocol.errors import quoted
from mcpbus.upstream.errors import told

_log = logging.getLogger("mcpbus")

Described: TypeAlias = Mapping[str, Any]


class Listed:
    """One list of the upstream server, in one registry of the proxy.

    Attributes:
        taken: The items that are offered, as they were described, by key.
        version: The number of times that it was taken.
    """

    def __init__(
        self,
        noun: str,
        key: str,
        registry: ItemRegistry[Any],
        make: Callable[[Described], Any],
        replace: Callable[[Iterable[str], Mapping[str, Any]], None],
        *,
        server: str,
    ) -> None:
        self._server = server
        self._noun = noun
        self._key = key
        self._registry = registry
        self._make = make
        self._replace = replace
        self.taken: dict[str, bytes] = {}
        # How the upstream server spells each, by the form that all spellings of a key share.
        self._spellings: dict[str, str] = {}
        self.version = 0

    async def take(self, described: Iterable[Described]) -> None:
        """Offer what is described, and nothing else that was; what is described as before stays as it is. Other tasks run in between."""
        made: dict[str, Any] = {}
        kept: dict[str, bytes] = {}
        spellings: dict[str, str] = {}
        turn = Yielder()
        for each in described:
            await turn.pause()
            key, text = str(each.get(self._key)), msgspec.json.encode(each)
            place = self._registry.place(key)
            if place in spellings:
                _log.warning(
                    "%s lists the %s %s twice; the second one is left out",
                    self._server,
                    self._noun,
                    quoted(key),
                )
            elif self.taken.get(key) == text:
                kept[key], spellings[place] = text, key
            elif (item := self._try(key, each)) is not None:
                kept[key], made[key], spellings[place] = text, item, key
        gone = [key for key in self.taken if key not in kept or key in made]
        self._offer(gone, kept, spellings, made)

    def clear(self) -> None:
        """Offer nothing."""
        self._offer([*self.taken], {}, {}, {})

    def _offer(
        self, gone: Iterable[str], kept: dict[str, bytes], spellings: dict[str, str], made: Mapping[str, Any]
    ) -> None:
        self.taken, self._spellings = kept, spellings
        self.version += 1
        self._replace(gone, made)

    async def read(self, described: Iterable[Described]) -> dict[str, tuple[bytes, Described]]:
        """Return what one client's connection lists, by key, without what is not this list's to give. Other tasks run in between."""
        read: dict[str, tuple[bytes, Described]] = {}
        turn = Yielder()
        for each in described:
            await turn.pause()
            key = self._shared_key(each)
            if key in self.taken or not self._registry.knows(key):
                read[key] = msgspec.json.encode(each), each
        return read

    def _shared_key(self, described: Described) -> str:
        """Return the key of what one client's connection lists, as the shared list spells it if it has it."""
        key = str(described.get(self._key))
        return self._spellings.get(self._registry.place(key), key)

    def make(self, described: Described) -> Any:
        """Make what is offered; None if it cannot be offered, and the log says why."""
        try:
            return self._make(described)
        except RegistrationError as error:
            _log.warning("what %s offers is left out: %s", self._server, told(error))
            return None

    def _try(self, key: str, described: Described) -> Any:
        try:
            if self._registry.place(key) not in self._spellings:
                self._registry.check_free(key)
            return self._make(described)
        except RegistrationError as error:
            _log.warning("what %s offers is left out: %s", self._server, told(error))
            return None
