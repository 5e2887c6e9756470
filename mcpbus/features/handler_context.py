"""How a signature knows the contexts of handlers, of which it need not know what they can do."""

from typing import ClassVar


class HandlerContext:
    """What a handler may be given beside its arguments: its parameter is annotated with a type that derives from this.

    Attributes:
        asynchronous: Whether it is for async functions; otherwise its methods wait, in the thread of a plain one.
    """

    __slots__ = ()

    asynchronous: ClassVar[bool]
