"""Every difference between mcpbus and both of its peers that is intended, with its reason."""

import re

import attrs


@attrs.frozen
class Difference:
    """One intended difference.

    Attributes:
        rows: A pattern for the names of the rows that it concerns.
        lines: A pattern for the beginning of the lines that it explains: the path of a keyword, or the JSON
            text of arguments.
        reason: The reason for it.
    """

    rows: str
    lines: str
    reason: str

    def explains(self, row: str, line: str) -> bool:
        """Return whether this is the reason for a difference in a row."""
        return bool(re.fullmatch(self.rows, row)) and bool(re.match(self.lines, line))


DIFFERENCES: list[Difference] = [
    # Values
    Difference(
        ".*",
        r'\{"v": (true|false)\} -> None, not ',
        "a boolean is no number, as in JSON Schema: both peers read true as 1",
    ),
    Difference(
        r"values: bool|unions: bool \| str",
        r'\{"v": (0|1|1\.0)\} -> None, not (True|False)',
        "a number is no boolean, as in JSON Schema: both peers read 1 as true",
    ),
    Difference(
        "values: (StrictInt|int with Strict|IP.*)|generics: IP addresses|models: model with a before validator|checks: Field with strict",
        r'\{"v": 1\.0\} -> .*, not None',
        "1.0 is an integer, as in JSON Schema",
    ),
    Difference(
        "choices: Literal of (an enum member|enum members)",
        r'\{"v": "(red|blue)"\}',
        "both peers list the value of a member, and reject it",
    ),
    Difference(
        "values: date with Strict",
        r'\{"v": "2026-01-01"\}',
        "both peers list a date as a text, and reject each text where it is strict",
    ),
    Difference(
        "choices: Enum of flags|models: model with a before validator",
        r'\{"v": "5"\}',
        "a text is read as JSON where the schema allows no text",
    ),
    Difference(
        r"containers: Iterable\[int\]",
        r"\{",
        "the function gets a list: both peers give it an iterator that fails while the function runs",
    ),
    Difference(
        "values: datetime with at.Timezone",
        r'\{"v": "2026-01-01"\}',
        "both peers ignore the time zone that the author requires",
    ),
    # Schemas
    Difference(
        r"containers: Annotated\[list\[int\] \| str\]",
        "/properties/v/minLength",
        "the bound is listed at each member of the union, as minItems and as minLength",
    ),
    Difference(
        "unions: bounded union of numbers",
        "/properties/v/le",
        "the bound is listed at each member of the union as a maximum: le is no keyword",
    ),
    Difference(
        "checks: bounds after a validator",
        "/properties/v/ge",
        "the bound is listed as a minimum: ge is no keyword",
    ),
    Difference(
        "models: dataclass with bounds",
        "/properties/v/description",
        "descriptions of fields in a docstring are listed at the fields",
    ),
    Difference(
        "models: dataclass with keywords",
        "/properties/v/properties: the order",
        "fields are in the order of the author",
    ),
    Difference(
        "models: dataclass with a field that is not set",
        "/properties/v/properties/made",
        "a client cannot set the field: both peers list it",
    ),
    Difference(
        "unions: models with a default tag",
        "/properties/v/oneOf/1/required",
        "a tag with a default is optional: FastMCP lists it as required",
    ),
    # Results
    Difference(
        "results: datetime",
        "/format",
        "RFC 3339 requires an offset, and a datetime of the author may have none",
    ),
    Difference(
        "results: described model",
        "/description",
        "the description of the result is listed: the SDK lists the one of its class",
    ),
    Difference(
        "results: (union of models|model or str)",
        "/anyOf/0/(properties/first_name|required)",
        "results have the aliases of fields: FastMCP has their names",
    ),
]


def explained(name: str, line: str) -> bool:
    """Return whether a difference in a row is intended."""
    return any(each.explains(name, line) for each in DIFFERENCES)


TEXT_IS_READ_OTHERWISE = {
    "containers: Sequence bare": "a text is a sequence of anything, as both peers have it",
    "unions: float | int | None": "the text of a number is read by the first type of the union, as both peers have it",
}
"""The rows that read a text in another way than the value that it holds, with the reason."""

BEYOND_THE_SCHEMA = {
    "containers: list with OnErrorOmit": "faulty items are dropped, as the author asks",
    "containers: set[str]": "an item that is there twice is dropped: a model cannot be expected to count",
    "choices: Enum of flags": "pydantic lists the single flags, and takes combinations of them",
    "models: model with generated aliases": "the author allows the names of fields, and pydantic lists the aliases",
    "models: model with a before validator": "code of the author takes other values",
    "checks: BeforeValidator": "code of the author takes other values",
    "checks: BeforeValidator in a list": "code of the author takes other values",
    "checks: WrapValidator": "code of the author takes other values",
    "checks: SkipValidation": "the author asks for no validation",
    "checks: SkipJsonSchema": "the author hides what is accepted too",
}
"""The rows of which a server with strict arguments accepts values that the schema forbids, with the reason."""

NOT_READ_FROM_TEXT = {
    **dict.fromkeys(
        [
            "values: StrictInt",
            "values: StrictBool",
            "values: StrictFloat",
            "values: int with Strict",
            "checks: Field with strict",
        ],
        "the author asks for values of the very type",
    ),
    **dict.fromkeys(
        ["choices: Literal of booleans", "choices: Literal[True]", "choices: Enum of booleans"],
        "a choice is taken as it is listed, and both peers reject the text",
    ),
}
"""The rows of which a value is not read from a text, with the reason."""
