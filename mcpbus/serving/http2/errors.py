"""What is wrong with what a client sends, as it is told (RFC 9113, sections 5.4 and 7)."""

from enum import IntEnum


class ErrorCode(IntEnum):
    """Why a stream was reset, or a connection ended."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class ConnectionFault(Exception):  # noqa: N818 - a fault of the client's, as the standard distinguishes it from one of a stream
    """The client has broken the connection, which ends.

    Args:
        text: How.
        code: What it is told.
    """

    def __init__(self, text: str, code: ErrorCode = ErrorCode.PROTOCOL_ERROR) -> None:
        super().__init__(text)
        self.code = code


class AbuseFault(ConnectionFault):
    """It sends too much of what is cheap to send and not to take.

    Args:
        text: Of what.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text, ErrorCode.ENHANCE_YOUR_CALM)
