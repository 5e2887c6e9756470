"""Why a process cannot serve together with others: always something that whoever started it can change."""


class JoinError(Exception):
    """A process cannot be one of several; the message says why, in one line."""
