"""The types of what a lifespan yields and of principals, which an author may name: ``Context[Database]``, ``Context[Database, Principal]``."""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    # Type checkers know it without its being installed. `Context` alone is `Context[Any, Any]`.
    from typing_extensions import TypeVar

    StateT = TypeVar("StateT", default=Any)
    PrincipalT = TypeVar("PrincipalT", default=Any)
else:
    from typing import TypeVar

    StateT = TypeVar("StateT")
    PrincipalT = TypeVar("PrincipalT")

NO_STATE: Final = object()
"""What stands for it where there is no lifespan: that may well yield None."""


def state_of(yielded: Any) -> Any:
    """Return what a lifespan has yielded, to a handler.

    Raises:
        RuntimeError: There is none; the message says where it is given.
    """
    if yielded is NO_STATE:
        raise RuntimeError(
            "ctx.state is what the server's lifespan yields, and this server has none: write Server(..., lifespan=...)"
        )
    return yielded
