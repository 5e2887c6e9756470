"""What a server declares of extensions, refused at once if clients could not be told."""

from collections.abc import Mapping
from typing import Any

from mcpbus.features.keywords import check_told
from mcpbus.protocol.extensions import is_identifier
from mcpbus.protocol.task_extension import TASKS


def check_extensions(extensions: Any) -> None:
    """Refuse what is no settings by identifier.

    Raises:
        TypeError: it is another kind of thing.
        ValueError: a name is no identifier, or that of tasks.
        RegistrationError: JSON cannot say it.
    """
    if not isinstance(extensions, Mapping):
        raise TypeError(
            f"extensions is a dict of settings by identifier: write extensions={{'com.example/search': {{}}}}, not {extensions!r}"
        )
    for identifier, settings in extensions.items():
        if not is_identifier(identifier):
            raise ValueError(
                f"extensions: {identifier!r} is no identifier: write a domain of yours turned round, a slash and a name, "
                f"such as 'com.example/search'"
            )
        if identifier == TASKS:
            raise ValueError(
                f"extensions: {TASKS} is declared by itself: write @server.tool(task='optional')"
            )
        if not isinstance(settings, Mapping):
            raise TypeError(
                f"extensions: the settings of {identifier!r} are a dict, {{}} if there are none, not {settings!r}"
            )
        check_told(f"extension {identifier!r}", settings)
