"""What is told of an author's program that failed: what was raised, and where in the author's own files."""

import gc
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import click

from mcpbus.cli.terminal import made_safe, show_traceback

_OURS: Final = "mcpbus"
_ACTORS: Final = "mcpbus_actors"


class ExplainingGroup(click.Group):
    """Commands that run programs of authors: what those raise is told in a sentence, without what was going on inside of libraries.

    Each option is an environment variable, named as the option is. A command is imported when it is asked for.

    Args:
        places: The module and the name of each command.
        **given: As for `click.Group`.
    """

    def __init__(self, *, places: Mapping[str, str], **given: Any) -> None:
        super().__init__(**given)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click asks so
        """Return the names of all commands."""
        return sorted(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, if there is one of that name."""
        if cmd_name in self._places and cmd_name not in self.commands:
            module, _, name = self._places[cmd_name].rpartition(".")
            self.add_command(getattr(_import_at_once(module), name))
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is asked for.

        Raises:
            click.UsageError: There is none; the message names those that there are, and the nearest.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchOption:
            raise
        except click.UsageError as error:
            import difflib  # noqa: PLC0415 - only who has made a mistake waits for it

            known = self.list_commands(ctx)
            # Click proposes one too since 8.4, of those that are imported.
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"{error.message}{hint} There are {', '.join(known)}.", ctx) from None

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Enter a command."""
        super().add_command(cmd, name)
        for option in cmd.params:
            if isinstance(option, click.Option) and option.envvar is None:
                words = ("mcpbus", name or cmd.name, max(option.opts, key=len).lstrip("-"))
                option.envvar = "_".join(map(str, words)).upper().replace("-", "_")

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command.

        Raises:
            click.ClickException: The author's program failed.
        """
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            made_safe(error)
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            from mcpbus.protocol.errors import sole_cause  # noqa: PLC0415 - few commands fail so, and each would wait

            told = explain(sole_cause(error))
            if told is None:
                sys.excepthook = show_traceback
                raise
            raise made_safe(click.ClickException(told)) from None


def _import_at_once(module: str) -> ModuleType:
    """Import a module, and all that it imports, without a look for garbage: there is none, and it takes a tenth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if collects:
            gc.enable()


def explain(error: BaseException) -> str | None:
    """Tell what was raised and where in files that belong to no library, innermost last; None if that is nowhere."""
    libraries = ("<", *_libraries())
    places = [
        f"{frame.filename}, line {frame.lineno}, in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(libraries)
    ]
    said = str(error)
    if isinstance(error, SyntaxError):
        said = error.msg
        places.append(f"{error.filename}, line {error.lineno}")
    if not places:
        return None
    kind = type(error)
    sentence = said if kind.__module__.partition(".")[0] == _OURS else f"{kind.__name__}: {said}"
    return "\n  ".join([sentence.rstrip(": "), *places])


def _libraries() -> set[str]:
    paths = sysconfig.get_paths()
    actors = find_spec(_ACTORS)
    return {
        str(Path(__file__).parents[1]),
        *(actors.submodule_search_locations if actors and actors.submodule_search_locations else ()),
        *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    }
