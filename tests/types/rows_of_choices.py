"""Rows for choices: Literals of every kind of value and enumerations of every kind."""

# Authors write these.
# ruff: noqa: PYI051, PYI061

import enum
from typing import Annotated, Literal

import pydantic as p
from type_rows import Row


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    HIGH = 3
    LOW = 1


class Size(enum.StrEnum):
    SMALL = "small"
    LARGE = "large"


class Old(str, enum.Enum):  # noqa: UP042 -- older programs write it so
    B = "b"
    A = "a"


class Mixed(enum.Enum):
    X = "x"
    ONE = 1


class Opt(enum.Enum):
    OFF = None
    ON = "on"


class Half(enum.Enum):
    HALF = 0.5
    ONE = 1.0


class Truth(enum.Enum):
    YES = True
    NO = False


class Single(enum.Enum):
    ONLY = "only"


class Flags(enum.IntFlag):
    READ = 1
    WRITE = 2


class Described(enum.Enum):
    """A speed, from slow to fast."""

    SLOW = "slow"
    FAST = "fast"


class Auto(enum.Enum):
    FIRST = enum.auto()
    SECOND = enum.auto()


class Pairs(enum.Enum):
    HOME = (0, 0)
    AWAY = (1, 2)


ROWS = [
    # Literals
    Row("Literal of strings", Literal["small", "medium", "large"], ["small", "large"], ["x", 5, None]),
    Row("Literal of one string", Literal["only"], ["only"], ["x"]),
    Row("Literal of numbers", Literal[3, 2, 1], [3, 1], [4, "x", 1.5]),
    Row("Literal of one number", Literal[7], [7], [8]),
    Row("Literal of booleans", Literal[True, False], [True, False], ["x", 2]),
    Row("Literal[True]", Literal[True], [True], [False]),
    Row("Literal[None]", Literal[None], [None], [0, "x"]),
    Row("Literal of mixed kinds", Literal["auto", 1, 2], ["auto", 1], ["x", 3]),
    Row("Literal with None", Literal["a", "b", None], ["a", None], ["c"]),
    Row("Literal with a bool and a str", Literal["auto", True], ["auto", True], ["x", False]),
    Row("Literal | None = None", Literal["b", "a"] | None, ["a", None], ["c"], default=None),
    Row("Literal with a default", Literal["b", "a"], ["a"], ["c"], default="b"),
    Row("Literal with a description", Annotated[Literal["b", "a"], p.Field(description="which")], ["a"], ["c"]),
    Row("Literals in a union", Literal["x"] | Literal["y"], ["x", "y"], ["z"]),  # noqa: PYI030 -- authors write it
    Row("Literal or int", Literal["auto"] | int, ["auto", 5], ["x"]),
    Row("Literal or str", Literal["auto"] | str, ["auto", "x"], [5]),
    Row("Literal of Literals", Literal[Literal["a"], "b"], ["a", "b"], ["c"]),  # noqa: RUF041
    Row("Literal of an enum member", Literal[Color.RED], ["red"], ["blue", "x"]),
    Row("Literal of enum members", Literal[Color.RED, Color.BLUE], ["red", "blue"], ["x"]),
    Row("Literal of an IntEnum member", Literal[Level.LOW], [1], [3]),
    Row("Literal of a float", Literal[0.5, 1.0], [0.5, 1.0], [0.7, "x"]),
    Row("Literal of bytes", Literal[b"a", b"b"], [], [], refused="no choice for clients"),
    Row("dict of Literals", dict[Literal["x", "y"], Literal[1, 2]], [{"x": 1}], [{"z": 1}, {"x": 3}]),
    # Enumerations
    Row("Enum", Color, ["red", "blue"], ["green", "RED", 5]),
    Row("IntEnum", Level, [3, 1], [2, "x"]),
    Row("StrEnum", Size, ["small"], ["x"]),
    Row("str and Enum", Old, ["b"], ["c"]),
    Row("Enum of mixed values", Mixed, ["x", 1], ["y", 2]),
    Row("Enum with None", Opt, [None, "on"], ["off"]),
    Row("Enum of floats", Half, [0.5, 1.0, 1], [0.7]),
    Row("Enum of booleans", Truth, [True, False], ["x"]),
    Row("Enum with one member", Single, ["only"], ["x"]),
    Row("Enum of flags", Flags, [1, 2, 3], ["x", None]),
    Row("Enum with a docstring", Described, ["slow"], ["x"]),
    Row("Enum with auto()", Auto, [1], [3]),
    Row("Enum of tuples", Pairs, [], [], refused="no choice for clients"),
    Row("Enum | None = None", Color | None, ["red", None], ["x"], default=None),
    Row("Enum with a default", Color, ["red"], ["x"], default=Color.BLUE),
    Row("Enum or str", Color | str, ["red", "x"], [5]),
    Row("Enum or int", Color | int, ["red", 5], ["x"]),
    Row("list[Enum]", list[Color], [["red"]], [["x"]]),
    Row("list[Enum] = [...]", list[Color], [["red"]], [["x"]], default=[Color.RED]),
    Row("set[Enum]", set[Color], [["red"]], [["x"]]),
    Row("dict[Enum, int]", dict[Color, int], [{"red": 1}], [{"x": 1}]),
    Row("dict[str, Enum]", dict[str, Color], [{"a": "red"}], [{"a": "x"}]),
    Row("Enum with a description", Annotated[Color, p.Field(description="which")], ["red"], ["x"]),
    Row("tuple[Enum, Enum]", tuple[Color, Color], [["red", "blue"]], [["red", "x"]]),
]  # fmt: skip
