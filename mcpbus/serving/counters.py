"""What happened to connections and their streams, in numbers."""

import msgspec


class ServerCounters(msgspec.Struct):
    """Figures since the start; pass one to `serve` to read it while serving.

    Attributes:
        accepted: Connections accepted.
        open: Connections open now.
        displaced: Connections closed while they were idle, to make room for others.
        turned_away: Connections for which there was no room.
        failed: Connections ended by an exception inside them, most often a malformed request.
        stalled: Connections ended because the client accepted nothing for the write deadline.
        abusive: HTTP/2 connections ended with ENHANCE_YOUR_CALM: their clients asked for nothing too often, or for too much.
        malformed: HTTP/2 requests whose stream was reset because they are malformed.
        refused: HTTP/2 requests that were not begun, because as many as may be were under way in their connection, or the
            server is about to end.
        withheld: HTTP/2 responses given up because their client opened no window for the write deadline.
        buffered: Bytes of HTTP/2 responses that wait for their clients' windows now.
    """

    accepted: int = 0
    open: int = 0
    displaced: int = 0
    turned_away: int = 0
    failed: int = 0
    stalled: int = 0
    abusive: int = 0
    malformed: int = 0
    refused: int = 0
    withheld: int = 0
    buffered: int = 0
