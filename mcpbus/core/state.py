"""The type of what a lifespan yields, which an author may name: ``Context[Database]``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Type checkers know it without its being installed. `Context` alone is `Context[Any]`.
    from typing_extensions import TypeVar

    StateT = TypeVar("StateT", default=Any)
else:
    from typing import TypeVar

    StateT = TypeVar("StateT")
