"""The types of what a lifespan yields and of principals, which an author may name: ``Context[Database]``, ``Context[Database, Principal]``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Type checkers know it without its being installed. `Context` alone is `Context[Any, Any]`.
    from typing_extensions import TypeVar

    StateT = TypeVar("StateT", default=Any)
    PrincipalT = TypeVar("PrincipalT", default=Any)
else:
    from typing import TypeVar

    StateT = TypeVar("StateT")
    PrincipalT = TypeVar("PrincipalT")
