"""How a signature knows the contexts of handlers, of which it need not know what they can do."""

from types import GenericAlias
from typing import TYPE_CHECKING, ClassVar, Never

from mcpbus.protocol.other_names import missing


class HandlerContext:
    """What a handler may be given beside its arguments: its parameter is annotated with a type that derives from this.

    Attributes:
        asynchronous: Whether it is for async functions; otherwise its methods wait, in the thread of a plain one.
    """

    __slots__ = ()

    asynchronous: ClassVar[bool]

    if not TYPE_CHECKING:
        # What types an author names are for type checkers alone. The last of them may be left out, of which `typing` knows from Python
        # 3.13 on.
        __class_getitem__ = classmethod(GenericAlias)

        def __getattr__(self, name: str) -> Never:
            raise missing("Context", name, self)
