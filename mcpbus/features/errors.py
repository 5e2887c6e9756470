"""What can go wrong with what an author writes: one class for each side whose fault it is."""

from mcpbus.features.schemas.json_schema import RegistrationError

__all__ = ["CallTimeoutError", "RegistrationError", "ResourceNotFoundError", "ToolError"]


class ToolError(Exception):
    """A tool failed, and the model may read why.

    Raise it in a tool: its text becomes the tool's result with ``isError`` set, so that the model can correct
    itself. Any other exception, and one without a text, is logged on the server, and the model hears only that the tool failed.
    """


class ResourceNotFoundError(Exception):
    """What a URI names does not exist.

    Raise it in a resource function; the client gets its text, and the code that its revision gives to a missing resource
    (-32002 before 2026-07-28, -32602 since), with the URI in ``data.uri``.
    """


class CallTimeoutError(Exception):
    """A function did not end within the `timeout` it was registered with."""

    def __init__(self, seconds: float) -> None:
        """Say how long was waited, in seconds."""
        super().__init__(f"timed out after {seconds:g} s")
        self.seconds = seconds
