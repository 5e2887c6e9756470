"""What a docstring says: the description of a function, and those of its parameters, in Google's, NumPy's or Sphinx's style."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

# The part of a docstring that is about parameters; the library that reads it is loaded only where there is one.
_PARAMETERS = re.compile(
    r"""
    ^(?:Args|Arguments|Parameters|Params):[ ]*\n (?:[ \t]+\S.*\n|[ \t]*\n)+    # Google: what is indented below
  | ^Parameters\n-{3,}\n (?:(?!\S.*\n-{3,}\n).*\n)+                            # NumPy: up to the next heading
  | ^:(?:param|parameter|arg|argument|type)\b.*\n (?:[ \t]+\S.*\n)*            # Sphinx: field by field
    """,
    re.MULTILINE | re.VERBOSE,
)


class Docstring(msgspec.Struct, frozen=True):
    """What a docstring says.

    Attributes:
        description: All of it but what is about parameters; None if nothing is left.
        parameters: What it says of each.
    """

    description: str | None
    parameters: Mapping[str, str]


def read_docstring(function: Callable[..., Any]) -> Docstring:
    """Read the docstring of `function`; of one without any, there is nothing to say."""
    text = (inspect.getdoc(function) or "") + "\n"
    described: dict[str, str] = {}
    for part in _PARAMETERS.findall(text):
        described |= _read_parameters(part)
    if described:
        text = re.sub(r"\n{3,}", "\n\n", _PARAMETERS.sub("", text))
    return Docstring(text.strip() or None, described)


def _read_parameters(part: str) -> dict[str, str]:
    import docstring_parser  # noqa: PLC0415

    parsed = docstring_parser.parse("\n" + part)  # it takes a first line for the summary
    return {each.arg_name: " ".join(each.description.split()) for each in parsed.params if each.description}
