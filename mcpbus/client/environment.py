"""What a program that is started has of this one's environment."""

import os
from collections.abc import Mapping
from typing import Final

_ANY_PROGRAM: Final = frozenset(
    [
        "HOME",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "USER",
        "TMPDIR",
        "TZ",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "APPDATA",
        "COMSPEC",
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATHEXT",
        "PROCESSOR_ARCHITECTURE",
        "PROGRAMDATA",
        "PROGRAMFILES",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "TEMP",
        "TMP",
        "USERNAME",
        "USERPROFILE",
        "WINDIR",
    ]
)
"""What a program needs to find its user, its files and others, on POSIX systems and on Windows; none holds a secret."""


def environment_of_a_program(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program: what is given to it, and what any program needs.

    Others of ours may be secrets, which are no concern of a program that somebody else wrote.
    """
    inherited = {name: os.environ[name] for name in _ANY_PROGRAM if name in os.environ}
    return {**inherited, **given}
