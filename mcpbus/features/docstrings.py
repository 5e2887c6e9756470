"""The parts of a docstring: a description, and those of parameters or fields, in the styles of Google, NumPy and Sphinx."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

# The part of a docstring that is about parameters. The library that reads it is loaded only where there is one.
_PARAMETERS = re.compile(
    r"""
    ^(?:Args|Arguments|Parameters|Params|Attributes):[ ]*\n (?:[ \t]+\S.*\n|[ \t]*\n)+  # Google: the indented lines below
  | ^(?:Parameters|Attributes)\n-{3,}\n (?:(?!\S.*\n-{3,}\n).*\n)+                      # NumPy: up to the next heading
  | ^:(?:param|parameter|arg|argument|type|ivar|var|cvar|vartype)\b.*\n (?:[ \t]+\S.*\n)*  # Sphinx: field by field
    """,
    re.MULTILINE | re.VERBOSE,
)
_ATTRIBUTE = re.compile(r"^:(?:ivar|var|cvar)\b", re.MULTILINE)


class Docstring(msgspec.Struct, frozen=True):
    """The parts of a docstring.

    Attributes:
        description: All of it but the part about parameters; None if nothing is left.
        parameters: The description of each parameter or field.
    """

    description: str | None
    parameters: Mapping[str, str]


def read_docstring(function: Callable[..., Any]) -> Docstring:
    """Read the docstring of a function."""
    return _read(inspect.getdoc(function) or "")


def read_class_docstring(kind: type) -> Docstring:
    """Read the docstring of a class, but not one that its bases or a decorator have given it."""
    text = vars(kind).get("__doc__") or ""
    # Dataclasses and NamedTuples have their signature there.
    return _read(
        ""
        if kind.__module__ == "builtins" or text.startswith(f"{kind.__name__}(")
        else inspect.cleandoc(text)
    )


def _read(text: str) -> Docstring:
    text += "\n"
    described: dict[str, str] = {}
    for part in _PARAMETERS.findall(text):
        described |= _read_parameters(part)
    if described:
        text = re.sub(r"\n{3,}", "\n\n", _PARAMETERS.sub("", text))
    return Docstring(text.strip() or None, described)


def _read_parameters(part: str) -> dict[str, str]:
    import docstring_parser  # noqa: PLC0415

    part = _ATTRIBUTE.sub(":param", part)
    parsed = docstring_parser.parse("\n" + part)  # it takes a first line for the summary
    return {each.arg_name: " ".join(each.description.split()) for each in parsed.params if each.description}
