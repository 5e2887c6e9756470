"""What happened to connections, in numbers."""

import attrs


@attrs.define
class Counters:
    """Connections since the start; pass one to `serve` to read it while serving.

    Attributes:
        accepted: Connections accepted.
        open: Connections open now.
        failed: Connections ended by an exception inside them, most often a malformed request.
        stalled: Connections ended because the client accepted nothing for the write deadline.
    """

    accepted: int = 0
    open: int = 0
    failed: int = 0
    stalled: int = 0
