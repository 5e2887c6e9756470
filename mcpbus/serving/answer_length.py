"""How long the body of an answer is, as an application says it in the head, and what it is held to."""

from typing import Final

from mcpbus.transports.answers import HeaderList

WITHOUT_BODY: Final = frozenset({204, 304})
"""Answers of these statuses have no body, nor say how long it is."""


class ContentLengthCheck:
    """What is left of the body of one answer.

    Args:
        method: The HTTP method of the request.
        status: The status of the answer.
        fields: Its header fields, their names in lower case.

    Attributes:
        bodiless: Whether such an answer has no body, whatever is said of it.
        left: How many bytes of it are still to come; None if nobody has said that.

    Raises:
        ValueError: They do not say it in one number: who reads them in another way would find a second answer in this one.
    """

    __slots__ = ("bodiless", "left")

    def __init__(self, method: str, status: int, fields: HeaderList) -> None:
        lengths = [value for name, value in fields if name == b"content-length"]
        if lengths and (len(lengths) > 1 or not lengths[0].isdigit()):
            raise ValueError(f"Content-Length is not one number of bytes: {lengths}")
        self.left = int(lengths[0]) if lengths else None
        self.bodiless = method == "HEAD" or status in WITHOUT_BODY

    @property
    def measured(self) -> bool:
        """Whether the head says where the body ends, if only that there is none."""
        return self.bodiless or self.left is not None

    def take(self, data: bytes, *, more: bool) -> bytes:
        """Return what is to be sent of a piece, the last one unless `more`.

        Raises:
            RuntimeError: The body is not as long as was said.
        """
        if self.bodiless:
            return b""
        if self.left is not None:
            self.left -= len(data)
            if self.left < 0 or (self.left and not more):
                raise RuntimeError("the body of a response is not as long as its Content-Length says")
        return data
