"""How long to wait for what a client sends: a pause has an end, and so has a trickle."""

import msgspec


class MinDataRate(msgspec.Struct, frozen=True):
    """The time that a client has to send something long, such as the body of a request.

    It has so many seconds in the beginning. What comes gives it as much time back as that may take at the least speed, but never
    more than it had in the beginning: then it may not pause for longer, and one that now and then sends a byte is not waited
    for, whatever it has sent before.

    Attributes:
        seconds: How long it may pause.
        bytes_per_second: The least speed on the whole.
    """

    seconds: float
    bytes_per_second: float

    def begin(self, now: float) -> float:
        """Return until when to wait for the first of it."""
        return now + self.seconds

    def next_read(self, until: float, now: float, received: int) -> float:
        """Return until when to wait for more, now that so many bytes have come which were waited for until then."""
        return min(max(until, now) + received / self.bytes_per_second, now + self.seconds)
