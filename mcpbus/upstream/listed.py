"""One list of the upstream server, as the proxy offers it to all clients."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from mcpbus.client.yielding import Yielder
from mcpbus.features.errors import RegistrationError
from mcpbus.features.left_out import LeftOut
from mcpbus.features.registry import ItemRegistry
from mcpbus.protocol.errors import quoted
from mcpbus.upstream.target import told

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
        turn, left_out = Yielder(), LeftOut(_log)
        for each in described:
            await turn.pause()
            key, text = str(each.get(self._key)), msgspec.json.encode(each)
            place = self._registry.place(key)
            if place in spellings:
                left_out.note(
                    "%s lists the %s %s twice; the second one is left out",
                    self._server,
                    self._noun,
                    quoted(key),
                )
            elif self.taken.get(key) == text:
                kept[key], spellings[place] = text, key
            elif (item := self._try(key, each, left_out)) is not None:
                kept[key], made[key], spellings[place] = text, item, key
        left_out.log()
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

    async def read(self, described: Iterable[Described]) -> dict[str, bytes]:
        """Return what one client's connection lists, by key, without what is not this list's to give. Other tasks run in between.

        What the shared list has too is the same object as there: a key, a text, or the whole dict.
        """
        read: dict[str, bytes] = {}
        turn = Yielder()
        for each in described:
            await turn.pause()
            key = self._shared_key(each)
            if key in self.taken or not self._registry.knows(key):
                text, shared = msgspec.json.encode(each), self.taken.get(key)
                read[key] = shared if shared == text else text
        return self.taken if read == self.taken else read

    def _shared_key(self, described: Described) -> str:
        """Return the key of what one client's connection lists, as the shared list spells it if it has it."""
        key = str(described.get(self._key))
        return self._spellings.get(self._registry.place(key), key)

    def make(self, text: bytes, left_out: LeftOut) -> Any:
        """Make what is offered of its description; None if it cannot be offered."""
        try:
            return self._make(msgspec.json.decode(text))
        except RegistrationError as error:
            self._note(error, left_out)
            return None

    def _note(self, error: RegistrationError, left_out: LeftOut) -> None:
        left_out.note("what %s offers is left out: %s", self._server, told(error))

    def _try(self, key: str, described: Described, left_out: LeftOut) -> Any:
        try:
            if self._registry.place(key) not in self._spellings:
                self._registry.check_free(key)
            return self._make(described)
        except RegistrationError as error:
            self._note(error, left_out)
            return None
