"""Results that are too large for a model's context are cut, or refused."""

from typing import Any

from mcpbus.dispatch.runner import CallNext, Invocation
from mcpbus.features.input_requests.input_required import InputRequired
from mcpbus.features.schemas import python_types
from mcpbus.middleware.base import refusal
from mcpbus.protocol.keywords import explained
from mcpbus.protocol.validators import check_positive


@explained
class ResponseLimitingMiddleware:
    """Lets no result out that is larger than so many bytes, as the model gets it.

    A text counts as it is, in UTF-8, without what JSON needs to carry it. It is cut, and says so at its end. Whatever else counts as
    the JSON that it becomes, and is refused if it is too large, with a sentence that tells the model how large.

    Args:
        max_size: How many bytes.
        truncation_suffix: What the end of a text is replaced by that was cut.
    """

    def __init__(
        self, max_size: int = 1_000_000, truncation_suffix: str = "\n\n[The rest was left out.]"
    ) -> None:
        check_positive(type(self).__name__, max_size=max_size)
        if max_size <= len(truncation_suffix.encode()):
            raise ValueError(f"max_size is a number of bytes, more than the suffix has, not {max_size}")
        self._max_size = max_size
        self._suffix = truncation_suffix

    async def __call__(self, invocation: Invocation, call_next: CallNext) -> Any:
        """Call, and cut or refuse the result; see `mcpbus.Middleware`."""
        result = await call_next(invocation)
        if isinstance(result, str):
            return self._cut(result)
        if isinstance(result, InputRequired):
            return result
        size = len(python_types.encode(result))
        if size > self._max_size:
            raise refusal(
                invocation,
                f"The result of {invocation.name} has {size:,} bytes, and at most {self._max_size:,} are let out; ask for less",
            )
        return result

    def _cut(self, text: str) -> str:
        encoded = text.encode(errors="replace")
        if len(encoded) <= self._max_size:
            return text
        rest = self._max_size - len(self._suffix.encode())
        return encoded[:rest].decode(errors="ignore") + self._suffix
