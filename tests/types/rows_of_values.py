"""Rows for single values: builtins, numbers with bounds, text, dates, identifiers, paths, addresses, secrets."""

import datetime as dt
import decimal
import fractions
import ipaddress
import pathlib
import re
import uuid
from typing import Annotated, Any, NewType

import annotated_types as at
import pydantic as p
import typing_extensions as te
from pydantic.types import UUID6, UUID7, UUID8, PaymentCardNumber
from type_rows import Row

UserId = NewType("UserId", int)
Slug = NewType("Slug", str)
V1 = "a8098c1a-f86e-11da-bd1a-00112444be1e"
V3 = "6fa459ea-ee8a-3ca4-894e-db77e160355e"
V4 = "16fd2706-8baf-433b-82eb-8c7fada847da"
V5 = "886313e1-3b8a-5372-9b90-0c9aee199e5d"
V6 = "1d19dad6-ba7b-6810-80b4-00c04fd430c8"
V7 = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
V8 = "320c3d4d-cc00-875b-8ec9-32d5f69181c0"

ROWS = [
    # Builtins
    Row("int", int, [0, -5, 10**20, "5"], ["x", 1.5, None, [1], {}]),
    Row("float", float, [0, 1.5, -2, 1e300, "1.5"], ["x", None, [1.5], {}]),
    Row("bool", bool, [True, False, "true", "false"], ["x", 2, None, [], {}]),
    Row("str", str, ["", "a", "5", "null", "[1]"], [5, None, True, ["a"], {}]),
    Row("bytes", bytes, ["", "hi"], [5, None, ["a"]]),
    Row("bytearray", bytearray, [], [], refused="bytearray"),
    Row("None", None, [None], [0, "x", [], {}]),
    Row("type(None)", type(None), [None], [0, "x", False]),
    Row("Any", Any, [None, 1, "a", [1, {"a": None}], {"a": 1}], []),
    Row("object", object, [None, 1, "a", [1], {"a": 1}], []),
    Row("complex", complex, ["1+2j", 1.5], ["x", None, []]),
    Row("Decimal", decimal.Decimal, [5, 1.5, "1.10"], ["x", None, [1]]),
    Row("Fraction", fractions.Fraction, ["1/3", 2], ["x", None, [1]]),
    # Defaults
    Row("int = 3", int, [4], ["x", None], default=3),
    Row("int | None = None", int | None, [4, None], ["x", 1.5], default=None),
    Row("str | None = None", str | None, ["a", None, "null"], [5], default=None),
    Row("float = 0.5", float, [1, 0.25], ["x"], default=0.5),
    Row("int | None", int | None, [4, None], ["x", 1.5]),
    Row("date with a default", dt.date, ["2026-01-02"], ["x"], default=dt.date(2026, 1, 1)),
    Row("timedelta with a default", dt.timedelta, ["PT2H"], ["x"], default=dt.timedelta(hours=1)),
    Row("bytes with a default", bytes, ["a"], [5], default=b"x"),
    Row("UUID with a default", uuid.UUID, [V4], ["x"], default=uuid.UUID(V1)),
    Row("default of a field", Annotated[int, p.Field(ge=1)], [1], [0], default=p.Field(5, description="how many")),
    Row("default factory", list[int], [[1]], ["x"], default=p.Field(default_factory=list)),
    # Bounds of numbers
    Row("int in bounds", Annotated[int, p.Field(ge=1, le=9, description="how many")], [1, 9], [0, 10, "x"]),
    Row("int with at.Ge", Annotated[int, at.Ge(1)], [1], [0]),
    Row("int with at.Gt and at.Lt", Annotated[int, at.Gt(1), at.Lt(4)], [2, 3], [1, 4]),
    Row("int with at.Le", Annotated[int, at.Le(3)], [3], [4]),
    Row("int with at.Interval", Annotated[int, at.Interval(ge=0, lt=10)], [0, 9], [-1, 10]),
    Row("int with at.MultipleOf", Annotated[int, at.MultipleOf(3)], [3, 0], [4]),
    Row("float with multiple_of", Annotated[float, p.Field(multiple_of=0.5)], [1.5, 2], [1.3]),
    Row("float in bounds", Annotated[float, p.Field(gt=0, lt=1)], [0.5], [0, 1]),
    Row("Decimal in bounds", Annotated[decimal.Decimal, p.Field(ge=0, max_digits=4, decimal_places=2)], ["1.25", 3], [-1, "1.234"]),
    Row("PositiveInt", p.PositiveInt, [1], [0, -1]),
    Row("NonNegativeInt", p.NonNegativeInt, [0], [-1]),
    Row("NegativeFloat", p.NegativeFloat, [-0.5], [0]),
    Row("NonPositiveFloat", p.NonPositiveFloat, [0, -1.5], [0.5]),
    Row("conint", p.conint(ge=2, multiple_of=2), [2, 4], [3, 0]),
    Row("condecimal", p.condecimal(gt=decimal.Decimal("0.5")), ["0.6", 1], ["0.5"]),
    Row("FiniteFloat", p.FiniteFloat, [1.5], ["inf", "nan"]),
    Row("StrictInt", p.StrictInt, [5], [1.5, True]),
    Row("StrictStr", p.StrictStr, ["5"], [5]),
    Row("StrictBool", p.StrictBool, [True], [1, 0]),
    Row("StrictFloat", p.StrictFloat, [1.5], [True]),
    Row("int with Strict", Annotated[int, p.Strict()], [5], [True, 1.5]),
    Row("date with Strict", Annotated[dt.date, p.Strict()], ["2026-01-01"], ["x", 5]),
    Row("ByteSize", p.ByteSize, ["1 KiB", 5], ["x", -1]),
    # Text
    Row("str with lengths", Annotated[str, p.Field(min_length=2, max_length=4)], ["ab", "abcd"], ["a", "abcde"]),
    Row("str with at.Len", Annotated[str, at.Len(1, 3)], ["a", "abc"], ["", "abcd"]),
    Row("str with at.MinLen", Annotated[str, at.MinLen(2)], ["ab"], ["a"]),
    Row("str with a pattern", Annotated[str, p.Field(pattern=r"^[a-z]+$")], ["abc"], ["ABC", ""]),
    Row("str that is stripped", Annotated[str, p.StringConstraints(strip_whitespace=True, min_length=1)], [" a "], ["   "]),
    Row("str to upper case", Annotated[str, p.StringConstraints(to_upper=True, max_length=3)], ["abc"], ["abcd"]),
    Row("str to lower case with a pattern", Annotated[str, p.StringConstraints(to_lower=True, pattern="^[A-Z]*$")], ["ABC"], ["1"]),
    Row("constr", p.constr(min_length=1, pattern="^x"), ["xy"], ["y", ""]),
    Row("str with a text", Annotated[str, "a name"], ["a"], [5]),
    Row("str with te.Doc", Annotated[str, te.Doc("a name")], ["a"], [5]),
    Row("str with examples", Annotated[str, p.Field(examples=["a"], title="Name", deprecated=True)], ["a"], [5]),
    Row("str with json_schema_extra", Annotated[str, p.Field(json_schema_extra={"x-kind": "name"})], ["a"], [5]),
    Row("LiteralString", te.LiteralString, ["a"], [5]),
    Row("NewType of int", UserId, [5], ["x"]),
    Row("NewType of str", Slug, ["a"], [5]),
    Row("re.Pattern", re.Pattern, ["a+"], ["(", 5]),
    Row("re.Pattern[str]", re.Pattern[str], ["^a"], ["[", None]),
    Row("conbytes", p.conbytes(min_length=2), ["ab"], ["a"]),
    Row("Base64Bytes", p.Base64Bytes, ["aGk="], ["a", 5]),
    Row("Base64Str", p.Base64Str, ["aGk="], ["a"]),
    Row("Base64UrlBytes", p.Base64UrlBytes, ["_-8="], ["a"]),
    Row("Base64UrlStr", p.Base64UrlStr, ["aGk="], ["a"]),
    # Dates and times
    Row("datetime", dt.datetime, ["2026-01-01T10:00:00Z", "2026-01-01T10:00:00", "2026-01-01T10:00:00+02:00"], ["x", "2026-13-01", None]),
    Row("date", dt.date, ["2026-01-01"], ["x", "2026-02-30", None]),
    Row("time", dt.time, ["10:00:00", "10:00:00Z"], ["25:00:00", None]),
    Row("timedelta", dt.timedelta, ["PT1H", "P1DT2H", 90, 1.5], ["x", None]),
    Row("AwareDatetime", p.AwareDatetime, ["2026-01-01T00:00:00Z"], ["2026-01-01T00:00:00"]),
    Row("NaiveDatetime", p.NaiveDatetime, ["2026-01-01T00:00:00"], ["2026-01-01T00:00:00Z"]),
    Row("PastDate", p.PastDate, ["2020-01-01"], ["2999-01-01"]),
    Row("FutureDate", p.FutureDate, ["2999-01-01"], ["2020-01-01"]),
    Row("PastDatetime", p.PastDatetime, ["2020-01-01T00:00:00Z"], ["2999-01-01T00:00:00Z"]),
    Row("FutureDatetime", p.FutureDatetime, ["2999-01-01T00:00:00Z"], ["2020-01-01T00:00:00Z"]),
    Row("date in bounds", Annotated[dt.date, p.Field(ge=dt.date(2026, 1, 1))], ["2026-01-01"], ["2025-12-31"]),
    Row("condate", p.condate(lt=dt.date(2026, 1, 1)), ["2025-12-31"], ["2026-01-01"]),
    Row("datetime with at.Timezone", Annotated[dt.datetime, at.Timezone(...)], ["2026-01-01T00:00:00Z"], ["x"]),
    Row("timedelta in bounds", Annotated[dt.timedelta, p.Field(le=dt.timedelta(hours=1))], ["PT1H"], ["PT2H"]),
    Row("time in bounds", Annotated[dt.time, at.Lt(dt.time(12))], ["11:00:00"], ["13:00:00"]),
    # Identifiers
    Row("UUID", uuid.UUID, [V1, V4, V4.replace("-", "")], ["x", 5]),
    Row("UUID1", p.UUID1, [V1], [V4, "x"]),
    Row("UUID3", p.UUID3, [V3], [V4]),
    Row("UUID4", p.UUID4, [V4], [V1, "x"]),
    Row("UUID5", p.UUID5, [V5], [V4]),
    Row("UUID6", UUID6, [V6], [V4]),
    Row("UUID7", UUID7, [V7], [V4]),
    Row("UUID8", UUID8, [V8], [V4]),
    Row("PaymentCardNumber", PaymentCardNumber, ["4242424242424242"], ["4242424242424241", "x"]),
    Row("ImportString", p.ImportString, [], [], refused="lets clients import any module"),
    # Paths
    Row("Path", pathlib.Path, ["a/b", "/etc"], [5, None]),
    Row("PurePosixPath", pathlib.PurePosixPath, ["a/b"], [5]),
    Row("PureWindowsPath", pathlib.PureWindowsPath, ["a\\b"], [5]),
    Row("FilePath", p.FilePath, ["pyproject.toml"], ["tests", "no-such-file"]),
    Row("DirectoryPath", p.DirectoryPath, ["tests"], ["pyproject.toml", "no-such-folder"]),
    Row("NewPath", p.NewPath, ["tests/no-such-file"], ["tests", "no-such-folder/x"]),
    Row("Path with a default", pathlib.Path, ["a"], [5], default=pathlib.PurePosixPath("/tmp")),
    # Addresses
    Row("IPv4Address", ipaddress.IPv4Address, ["127.0.0.1"], ["::1", "x"]),
    Row("IPv6Address", ipaddress.IPv6Address, ["::1"], ["127.0.0.1"]),
    Row("IPv4Network", ipaddress.IPv4Network, ["10.0.0.0/8"], ["10.0.0.1/8", "x"]),
    Row("IPv6Interface", ipaddress.IPv6Interface, ["::1/128"], ["x"]),
    Row("IPvAnyAddress", p.IPvAnyAddress, ["127.0.0.1", "::1"], ["x"]),
    Row("IPvAnyNetwork", p.IPvAnyNetwork, ["10.0.0.0/8"], ["x"]),
    Row("AnyUrl", p.AnyUrl, ["ftp://a.example/b", "urn:x:y"], ["x", 5]),
    Row("HttpUrl", p.HttpUrl, ["https://a.example/b?c=d"], ["ftp://a.example", "x"]),
    Row("AnyHttpUrl", p.AnyHttpUrl, ["http://localhost:80/"], ["file:///x"]),
    Row("FileUrl", p.FileUrl, ["file:///etc/hosts"], ["http://a.example"]),
    Row("WebsocketUrl", p.WebsocketUrl, ["wss://a.example/"], ["https://a.example/"]),
    Row("PostgresDsn", p.PostgresDsn, ["postgresql://me:pw@localhost:5432/db"], ["mysql://localhost/db"]),
    Row("RedisDsn", p.RedisDsn, ["redis://localhost:6379/0"], ["http://localhost"]),
    Row("url with constraints", Annotated[p.AnyUrl, p.UrlConstraints(allowed_schemes=["git"], max_length=30)], ["git://a.example/x"], ["http://a.example/x"]),
    Row("EmailStr", p.EmailStr, ["ann@example.org"], ["nope", "@x"]),
    Row("NameEmail", p.NameEmail, ["Ann <ann@example.org>", "ann@example.org"], ["nope"]),
    # Secrets
    Row("SecretStr", p.SecretStr, ["s3cret"], [5]),
    Row("SecretBytes", p.SecretBytes, ["s3cret"], [5]),
    Row("Secret[int]", p.Secret[int], [5], ["x"]),
    Row("SecretStr with a length", Annotated[p.SecretStr, p.Field(min_length=8)], ["12345678"], ["1234"]),
]  # fmt: skip
