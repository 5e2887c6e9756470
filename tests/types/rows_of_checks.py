"""Rows for annotations with code: validators, predicates, schemas by hand, types that describe themselves."""

import datetime as dt
import pathlib
from typing import Annotated, Any

import annotated_types as at
import pydantic as p
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import core_schema
from type_rows import Row


def inside(path: str) -> str:
    """Return a path that does not leave its folder."""
    if not isinstance(path, str) or ".." in path:
        raise ValueError("leaves the folder")
    return path


def split(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


def length(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    raise ValueError("is no text")


def clamp(value: Any, handler: p.ValidatorFunctionWrapHandler) -> int:
    try:
        return handler(value)
    except p.ValidationError:
        return 0


def inside_root(path: pathlib.Path) -> pathlib.Path:
    if path.is_absolute():
        raise ValueError("is absolute")
    return path


def seven(value: Any) -> int:
    return 7


def with_name(value: str, info: p.ValidationInfo) -> str:
    return f"{info.field_name or 'none'}: {value}" if value != "bad" else _refuse()


def _refuse() -> str:
    raise AssertionError("bad")


Safe = Annotated[str, p.AfterValidator(inside)]
Csv = Annotated[list[str], p.BeforeValidator(split)]


class Version:
    """A class that describes itself to pydantic."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Version({self.text!r})"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: p.GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls, core_schema.str_schema(pattern=r"^\d+\.\d+$")
        )


class Checked(p.BaseModel):
    path: Safe
    paths: list[Safe] = []


ROWS = [
    Row("AfterValidator", Safe, ["a"], ["../x", 5]),
    Row("AfterValidator and a description", Annotated[str, p.Field(description="d"), p.AfterValidator(inside)], ["a"], ["../x"]),
    Row("AfterValidator in a list", list[Safe], [["a"]], [["../x"]]),
    Row("AfterValidator in a dict", dict[str, Safe], [{"a": "b"}], [{"a": "../x"}]),
    Row("AfterValidator on keys", dict[Safe, int], [{"a": 1}], [{"../x": 1}]),
    Row("AfterValidator or None", Safe | None, ["a", None], ["../x"], default=None),
    Row("AfterValidator in a model", Checked, [{"path": "a", "paths": ["b"]}], [{"path": "../x"}, {"path": "a", "paths": ["../x"]}]),
    Row("AfterValidator of a path", Annotated[pathlib.Path, p.AfterValidator(inside_root)], ["a/b"], ["/etc"]),
    Row("AfterValidator that changes", Annotated[str, p.AfterValidator(str.upper)], ["abc"], [5]),
    Row("AfterValidator with an assertion", Annotated[str, p.AfterValidator(with_name)], ["a"], ["bad"]),
    Row("AfterValidator on a list", Annotated[list[int], p.AfterValidator(sorted)], [[2, 1]], [["x"]]),
    Row("BeforeValidator", Csv, ["a,b", ["a"]], [5, [5]]),
    Row("BeforeValidator in a list", list[Csv], [["a,b", ["c"]]], [[5]]),
    Row("BeforeValidator with a schema", Annotated[int, p.BeforeValidator(length, json_schema_input_type=str)], ["abc"], [5]),
    Row("PlainValidator", Annotated[int, p.PlainValidator(seven)], [3, "x"], []),
    Row("PlainValidator with a schema", Annotated[Any, p.PlainValidator(inside, json_schema_input_type=str)], ["a"], ["../x"]),
    Row("WrapValidator", Annotated[int, p.WrapValidator(clamp)], [3, "x"], []),
    Row("two validators", Annotated[str, p.AfterValidator(inside), p.AfterValidator(str.title)], ["abc"], ["../x"]),
    Row("bounds after a validator", Annotated[int, p.BeforeValidator(lambda v: v), p.Field(ge=2)], [2], [1]),
    Row("SkipValidation", p.SkipValidation[int], [1, "x"], []),
    Row("ValidateAs", Annotated[dt.date, p.ValidateAs(int, dt.date.fromordinal)], [1], ["x"]),
    Row("at.Predicate", Annotated[int, at.Predicate(lambda n: n % 2 == 0)], [2], [3]),
    Row("at.Not", Annotated[str, at.Predicate(at.Not(str.isdigit))], ["a"], ["5"]),
    Row("at.LowerCase", at.LowerCase[str], ["abc"], ["ABC"]),
    Row("at.UpperCase", at.UpperCase[str], ["ABC"], ["abc"]),
    Row("at.IsDigit", at.IsDigit[str], ["12"], ["a"]),
    Row("at.IsAscii", at.IsAscii[str], ["a"], ["é"]),
    Row("at.IsFinite", at.IsFinite[float], [1.5], ["inf"]),
    Row("at.doc", Annotated[int, at.doc("a number")], [1], ["x"]),
    Row("at.Unit", Annotated[float, at.Unit("m")], [], [], refused="Unit"),
    Row("at.GroupedMetadata", Annotated[str, at.Len(2)], ["ab"], ["a"]),
    Row("WithJsonSchema", Annotated[dict, p.WithJsonSchema({"type": "object", "properties": {"a": {"type": "integer"}}})], [{"a": 1}], [[]]),
    Row("SkipJsonSchema", int | SkipJsonSchema[None], [1, None], ["x"], default=None),
    Row("Field with strict", Annotated[int, p.Field(strict=True)], [1], [True, 1.5]),
    Row("Field with allow_inf_nan", Annotated[float, p.Field(allow_inf_nan=False)], [1.5], ["nan"]),
    Row("AllowInfNan", Annotated[float, p.AllowInfNan(False)], [1.5], ["nan"]),
    Row("Field with an alias", Annotated[int, p.Field(title="Number", description="a number")], [1], ["x"]),
    Row("GetPydanticSchema", Annotated[int, p.GetPydanticSchema(lambda source, handler: core_schema.int_schema(ge=2))], [2], [1]),
    Row("class that describes itself", Version, ["1.2"], ["x", 5]),
    Row("list of a class that describes itself", list[Version], [["1.2"]], [["x"]]),
    Row("EncodedStr", Annotated[str, p.EncodedStr(encoder=p.Base64Encoder)], ["aGk="], ["a"]),
    Row("EncodedBytes", Annotated[bytes, p.EncodedBytes(encoder=p.Base64Encoder)], ["aGk="], ["a"]),
    Row("validators on a union", Annotated[int | str, p.AfterValidator(lambda v: v)], [1, "a"], [None]),
    Row("validator on a model", Annotated[Checked, p.AfterValidator(lambda v: v)], [{"path": "a"}], [{"path": "../x"}]),
    Row("validator on a default", Annotated[str, p.Field(validate_default=True), p.AfterValidator(inside)], ["a"], ["../x"], default="b"),
]  # fmt: skip
