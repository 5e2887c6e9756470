"""What is told of an author's program that failed: what was raised, and where in the author's own files."""

import sysconfig
import traceback
from pathlib import Path
from typing import Any, Final

import click
import mcpbus_actors

from mcpbus.features.function import sole_cause

_PATHS = sysconfig.get_paths()
_LIBRARIES: Final = tuple(
    {
        str(Path(__file__).parents[1]),
        str(Path(mcpbus_actors.__file__).parent),
        *(_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    }
)
_OURS: Final = "mcpbus"


class ExplainingGroup(click.Group):
    """Commands that run programs of authors: what those raise is told in a sentence, without what was going on inside of libraries.

    Each option is an environment variable, named as the option is.
    """

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
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            told = explain(sole_cause(error))
            if told is None:
                raise
            raise click.ClickException(told) from None


def explain(error: BaseException) -> str | None:
    """Tell what was raised and where in files that belong to no library, innermost last; None if that is nowhere."""
    places = [
        f"{frame.filename}, line {frame.lineno}, in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<", *_LIBRARIES))
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
