"""A case for each public name of pydantic's types and validators and of annotated_types.

A name is either enforced, with values that prove it, or refused at registration.
"""

import dataclasses
import datetime as dt
import decimal
from typing import Annotated, Any, Literal, Self

import annotated_types as at
import attrs
import pydantic as p
from pydantic import functional_validators, networks, types
from pydantic_core import core_schema

V1, V3 = "a8098c1a-f86e-11da-bd1a-00112444be1e", "6fa459ea-ee8a-3ca4-894e-db77e160355e"
V4, V5 = "16fd2706-8baf-433b-82eb-8c7fada847da", "886313e1-3b8a-5372-9b90-0c9aee199e5d"
V6, V7 = "1d19dad6-ba7b-6810-80b4-00c04fd430c8", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
V8 = "320c3d4d-cc00-875b-8ec9-32d5f69181c0"
FAR, LONG_AGO = "2999-01-01", "2020-01-01"


@attrs.frozen
class Enforced:
    """A name that is enforced.

    Attributes:
        annotation: An annotation that uses the name.
        good: Values that are accepted, each with the text of the argument.
        bad: Values that are rejected. It is empty if the name only changes values.
        instead_of: The annotation without the name, if the name accepts more: this one rejects the good values.
    """

    annotation: Any
    good: dict[str | int | float, str]
    bad: list[Any]
    instead_of: Any = None


@attrs.frozen
class Refused:
    """A name that is refused at registration.

    Attributes:
        annotation: An annotation that uses the name.
        says: A pattern for the text of the error.
    """

    annotation: Any
    says: str


def takes(annotation: Any, good: Any, bad: Any, text: str | None = None) -> Enforced:
    """Return a case with one good and one bad value, whose argument shows as the value itself unless `text` is given."""
    return Enforced(annotation, {good: repr(good) if text is None else text}, [bad])


def url(annotation: Any, good: str, bad: str) -> Enforced:
    """Return a case for a kind of URL, which shows as its class with its text."""
    return takes(annotation, good, bad, f"{annotation.__name__}({good!r})")


class Named(p.BaseModel):
    name: str


class Numbered(p.BaseModel):
    number: int


class Even(p.BaseModel):
    n: int

    @p.field_validator("n")
    @classmethod
    def even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value


class Ordered(p.BaseModel):
    low: int
    high: int = 5

    @p.model_validator(mode="after")
    def ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


@dataclasses.dataclass(frozen=True)
class Small(at.BaseMetadata):
    """Metadata of an author's own, which no validator knows."""


@dataclasses.dataclass(frozen=True)
class Digit(at.GroupedMetadata):
    """A group of bounds of an author's own."""

    def __iter__(self):
        return iter([at.Ge(0), at.Le(9)])


class NoneEncoder(types.EncoderProtocol):
    @classmethod
    def decode(cls, data: bytes) -> bytes:
        if data == b"bad":
            raise ValueError("bad")
        return data[::-1]

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value[::-1]

    @classmethod
    def get_json_format(cls) -> Literal["reversed"]:
        return "reversed"


def inside(path: str) -> str:
    if ".." in path:
        raise ValueError("leaves the folder")
    return path


def tag_of(value: Any) -> str:
    return (
        "named" if isinstance(value, Named) or (isinstance(value, dict) and "name" in value) else "numbered"
    )


TAGGED = Annotated[
    Annotated[Named, p.Tag("named")] | Annotated[Numbered, p.Tag("numbered")], p.Discriminator(tag_of)
]
OBJECT = core_schema.int_schema(ge=2)

PYDANTIC_TYPES: dict[str, Enforced | Refused] = {
    "Strict": takes(Annotated[int, p.Strict()], 5, True),
    "StrictStr": takes(p.StrictStr, "a", 5),
    "SocketPath": takes(types.SocketPath, "a.sock", "a.txt", "PosixPath('a.sock')"),
    "conbytes": takes(p.conbytes(min_length=2), "ab", "a", "b'ab'"),
    "conlist": Enforced(p.conlist(int, min_length=1), {}, [[], ["x"]]),
    "conset": Enforced(p.conset(int, min_length=1), {}, [[], ["x"]]),
    "confrozenset": Enforced(p.confrozenset(int, min_length=1), {}, [[], ["x"]]),
    "constr": takes(p.constr(min_length=2), "ab", "a"),
    "ImportString": Refused(p.ImportString, "ImportString"),
    "conint": takes(p.conint(ge=2), 2, 1),
    "PositiveInt": takes(p.PositiveInt, 1, 0),
    "NegativeInt": takes(p.NegativeInt, -1, 0),
    "NonNegativeInt": takes(p.NonNegativeInt, 0, -1),
    "NonPositiveInt": takes(p.NonPositiveInt, 0, 1),
    "confloat": takes(p.confloat(multiple_of=0.5), 1.5, 1.2),
    "PositiveFloat": takes(p.PositiveFloat, 0.5, 0.0),
    "NegativeFloat": takes(p.NegativeFloat, -0.5, 0.0),
    "NonNegativeFloat": takes(p.NonNegativeFloat, 0.0, -0.5),
    "NonPositiveFloat": takes(p.NonPositiveFloat, 0.0, 0.5),
    "FiniteFloat": takes(p.FiniteFloat, 0.5, "inf"),
    "condecimal": takes(p.condecimal(max_digits=2), "1.5", "1.55", "Decimal('1.5')"),
    "UUID1": takes(types.UUID1, V1, V4, f"UUID('{V1}')"),
    "UUID3": takes(types.UUID3, V3, V4, f"UUID('{V3}')"),
    "UUID4": takes(types.UUID4, V4, V1, f"UUID('{V4}')"),
    "UUID5": takes(types.UUID5, V5, V4, f"UUID('{V5}')"),
    "UUID6": takes(types.UUID6, V6, V4, f"UUID('{V6}')"),
    "UUID7": takes(types.UUID7, V7, V4, f"UUID('{V7}')"),
    "UUID8": takes(types.UUID8, V8, V4, f"UUID('{V8}')"),
    "FilePath": takes(p.FilePath, "a.txt", "no-such-file", "PosixPath('a.txt')"),
    "DirectoryPath": takes(p.DirectoryPath, "folder", "a.txt", "PosixPath('folder')"),
    "NewPath": takes(p.NewPath, "new.txt", "a.txt", "PosixPath('new.txt')"),
    "Json": takes(p.Json[list[int]], "[1]", '["x"]', "[1]"),
    "Secret": takes(p.Secret[int], 5, "x", "Secret(5)"),
    "SecretStr": takes(p.SecretStr, "a", 5, "SecretStr('a')"),
    "SecretBytes": takes(p.SecretBytes, "a", 5, "SecretBytes(b'a')"),
    "StrictBool": takes(p.StrictBool, True, 1),
    "StrictBytes": takes(p.StrictBytes, "a", 5, "b'a'"),
    "StrictInt": takes(p.StrictInt, 5, True),
    "StrictFloat": takes(p.StrictFloat, 1.5, True),
    "PaymentCardNumber": takes(types.PaymentCardNumber, "4242424242424242", "4242424242424241"),
    "ByteSize": takes(p.ByteSize, "1 KiB", "x", "1024"),
    "PastDate": takes(p.PastDate, LONG_AGO, FAR, "datetime.date(2020, 1, 1)"),
    "FutureDate": takes(p.FutureDate, FAR, LONG_AGO, "datetime.date(2999, 1, 1)"),
    "PastDatetime": takes(p.PastDatetime, f"{LONG_AGO}T00:00:00", f"{FAR}T00:00:00", "datetime.datetime(2020, 1, 1, 0, 0)"),
    "FutureDatetime": takes(p.FutureDatetime, f"{FAR}T00:00:00", f"{LONG_AGO}T00:00:00", "datetime.datetime(2999, 1, 1, 0, 0)"),
    "condate": takes(p.condate(lt=dt.date(2026, 1, 1)), LONG_AGO, FAR, "datetime.date(2020, 1, 1)"),
    "AwareDatetime": takes(p.AwareDatetime, f"{FAR}T00:00:00Z", f"{FAR}T00:00:00", "datetime.fromisoformat('2999-01-01T00:00:00+00:00')"),
    "NaiveDatetime": takes(p.NaiveDatetime, f"{FAR}T00:00:00", f"{FAR}T00:00:00Z", "datetime.datetime(2999, 1, 1, 0, 0)"),
    "AllowInfNan": takes(Annotated[float, p.AllowInfNan(False)], 1.5, "nan"),
    "EncoderProtocol": takes(Annotated[str, p.EncodedStr(encoder=NoneEncoder)], "ab", "bad", "'ba'"),
    "EncodedBytes": takes(Annotated[bytes, p.EncodedBytes(encoder=NoneEncoder)], "ab", "bad", "b'ba'"),
    "EncodedStr": takes(Annotated[str, p.EncodedStr(encoder=p.Base64Encoder)], "aGk=", "a", "'hi'"),
    "Base64Encoder": takes(Annotated[bytes, p.EncodedBytes(encoder=p.Base64Encoder)], "aGk=", "a", "b'hi'"),
    "Base64Bytes": takes(p.Base64Bytes, "aGk=", "a", "b'hi'"),
    "Base64Str": takes(p.Base64Str, "aGk=", "a", "'hi'"),
    "Base64UrlBytes": takes(p.Base64UrlBytes, "_-8=", "a", r"b'\xff\xef'"),
    "Base64UrlStr": takes(p.Base64UrlStr, "aGk=", "a", "'hi'"),
    "GetPydanticSchema": takes(Annotated[int, p.GetPydanticSchema(lambda _source, _handler: OBJECT)], 2, 1),
    "StringConstraints": takes(Annotated[str, p.StringConstraints(strip_whitespace=True, min_length=1)], " a ", "  ", "'a'"),
    "Tag": Enforced(TAGGED, {}, [{"name": 1}, {"number": "x"}]),
    "Discriminator": Enforced(TAGGED, {}, [{"name": 1}, {"number": "x"}]),
    "JsonValue": Enforced(dict[str, p.JsonValue], {}, [[], 5]),
    "OnErrorOmit": Enforced(list[p.OnErrorOmit[int]], {}, [5]),
    "FailFast": Enforced(Annotated[list[int], p.FailFast()], {}, [["x", "y"]]),
}  # fmt: skip

NETWORKS: dict[str, Enforced | Refused] = {
    "AnyUrl": url(networks.AnyUrl, "ftp://a.example/b", "x"),
    "AnyHttpUrl": url(networks.AnyHttpUrl, "http://a.example/", "ftp://a.example/"),
    "FileUrl": url(networks.FileUrl, "file:///a", "http://a.example/"),
    "FtpUrl": url(networks.FtpUrl, "ftp://a.example/", "http://a.example/"),
    "HttpUrl": url(networks.HttpUrl, "https://a.example/", "ftp://a.example/"),
    "WebsocketUrl": url(networks.WebsocketUrl, "ws://a.example/", "http://a.example/"),
    "AnyWebsocketUrl": url(networks.AnyWebsocketUrl, "wss://a.example/", "http://a.example/"),
    "UrlConstraints": takes(Annotated[networks.AnyUrl, networks.UrlConstraints(max_length=20)], "git://a.example/x", "git://a.example/xyzxyz", "AnyUrl('git://a.example/x')"),
    "EmailStr": takes(networks.EmailStr, "ann@example.org", "nope"),
    "NameEmail": takes(networks.NameEmail, "Ann <ann@example.org>", "nope", "NameEmail(name='Ann', email='ann@example.org')"),
    "IPvAnyAddress": takes(networks.IPvAnyAddress, "::1", "x", "IPv6Address('::1')"),
    "IPvAnyInterface": takes(networks.IPvAnyInterface, "::1/128", "x", "IPv6Interface('::1/128')"),
    "IPvAnyNetwork": takes(networks.IPvAnyNetwork, "10.0.0.0/8", "x", "IPv4Network('10.0.0.0/8')"),
    "PostgresDsn": url(networks.PostgresDsn, "postgresql://a.example/b", "http://a.example/"),
    "CockroachDsn": url(networks.CockroachDsn, "cockroachdb://a.example/b", "http://a.example/"),
    "AmqpDsn": url(networks.AmqpDsn, "amqp://a.example/b", "http://a.example/"),
    "RedisDsn": takes(networks.RedisDsn, "redis://a.example/0", "http://a.example/", "RedisDsn('redis://a.example:6379/0')"),
    "MongoDsn": takes(networks.MongoDsn, "mongodb://a.example/b", "http://a.example/", "MongoDsn('mongodb://a.example:27017/b')"),
    "KafkaDsn": takes(networks.KafkaDsn, "kafka://a.example/b", "http://a.example/", "KafkaDsn('kafka://a.example:9092/b')"),
    "NatsDsn": takes(networks.NatsDsn, "nats://a.example/b", "http://a.example/", "NatsDsn('nats://a.example:4222/b')"),
    "validate_email": takes(Annotated[str, p.AfterValidator(lambda v: networks.validate_email(v)[1])], "Ann <ann@example.org>", "nope", "'ann@example.org'"),
    "MySQLDsn": takes(networks.MySQLDsn, "mysql://a.example/b", "http://a.example/", "MySQLDsn('mysql://a.example:3306/b')"),
    "MariaDBDsn": takes(networks.MariaDBDsn, "mariadb://a.example/b", "http://a.example/", "MariaDBDsn('mariadb://a.example:3306/b')"),
    "ClickHouseDsn": takes(networks.ClickHouseDsn, "clickhouse://a.example/b", "http://a.example/", "ClickHouseDsn('clickhouse://a.example:9000/b')"),
    "SnowflakeDsn": url(networks.SnowflakeDsn, "snowflake://me:pw@a.example/b", "http://a.example/"),
}  # fmt: skip

VALIDATORS: dict[str, Enforced | Refused] = {
    "AfterValidator": takes(Annotated[str, p.AfterValidator(inside)], "a", "../x"),
    "BeforeValidator": takes(
        Annotated[int, p.BeforeValidator(lambda v: len(v) if isinstance(v, str) else v)], "abc", None, "3"
    ),
    "PlainValidator": takes(Annotated[str, p.PlainValidator(inside)], "a", "../x"),
    "WrapValidator": takes(
        Annotated[str, p.WrapValidator(lambda v, handler: inside(handler(v)))], "a", "../x"
    ),
    "field_validator": Enforced(Even, {}, [{"n": 3}]),
    "model_validator": Enforced(Ordered, {}, [{"low": 6}]),
    "InstanceOf": takes(p.InstanceOf[int], 5, "x"),
    "SkipValidation": Enforced(p.SkipValidation[int], {"x": "'x'"}, [], instead_of=int),
    "ValidateAs": takes(
        Annotated[dt.date, p.ValidateAs(int, dt.date.fromordinal)], 1, "x", "datetime.date(1, 1, 1)"
    ),
}

ANNOTATED: dict[str, Enforced | Refused] = {
    "BaseMetadata": Refused(Annotated[int, Small()], "Small"),
    "GroupedMetadata": takes(Annotated[int, Digit()], 9, 10),
    "Gt": takes(Annotated[int, at.Gt(1)], 2, 1),
    "Ge": takes(Annotated[int, at.Ge(1)], 1, 0),
    "Lt": takes(Annotated[int, at.Lt(1)], 0, 1),
    "Le": takes(Annotated[decimal.Decimal, at.Le(1)], 1, 2, "Decimal('1')"),
    "Interval": takes(Annotated[float, at.Interval(gt=0, le=1)], 0.5, 0),
    "MultipleOf": takes(Annotated[int, at.MultipleOf(3)], 3, 4),
    "MinLen": takes(Annotated[str, at.MinLen(2)], "ab", "a"),
    "MaxLen": takes(Annotated[str, at.MaxLen(2)], "ab", "abc"),
    "Len": takes(Annotated[str, at.Len(1, 2)], "ab", ""),
    "Timezone": takes(
        Annotated[dt.datetime, at.Timezone(None)],
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:00Z",
        "datetime.datetime(2026, 1, 1, 0, 0)",
    ),
    "Predicate": takes(Annotated[int, at.Predicate(lambda n: n % 2 == 0)], 2, 3),
    "LowerCase": takes(at.LowerCase[str], "a", "A"),
    "UpperCase": takes(at.UpperCase[str], "A", "a"),
    "IsDigits": takes(at.IsDigits[str], "1", "a"),
    "IsFinite": takes(at.IsFinite[float], 1.5, "inf"),
    "IsNotFinite": takes(at.IsNotFinite[float], "inf", 1.5, "inf"),
    "IsNan": takes(at.IsNan[float], "nan", 1.5, "nan"),
    "IsNotNan": takes(at.IsNotNan[float], 1.5, "nan"),
    "IsInfinite": takes(at.IsInfinite[float], "inf", 1.5, "inf"),
    "IsNotInfinite": takes(at.IsNotInfinite[float], 1.5, "inf"),
    "doc": takes(Annotated[int, at.doc("a number")], 5, "x"),
    "DocInfo": takes(Annotated[int, at.DocInfo("a number")], 5, "x"),
}

NOT_TYPES = {
    "pydantic.functional_validators": {
        # Types of functions, for the annotations of validators.
        "FieldValidatorModes", "ModelWrapValidatorHandler", "ModelWrapValidatorWithoutInfo", "ModelWrapValidator",
        "FreeModelBeforeValidatorWithoutInfo", "ModelBeforeValidatorWithoutInfo", "FreeModelBeforeValidator",
        "ModelBeforeValidator", "ModelAfterValidatorWithoutInfo", "ModelAfterValidator",
        "AnyType",  # a type variable
    },
    "annotated_types": {"__version__"},
}  # fmt: skip
"""Names that no annotation is made with."""

CASES: dict[str, dict[str, Enforced | Refused]] = {
    types.__name__: PYDANTIC_TYPES,
    networks.__name__: NETWORKS,
    functional_validators.__name__: VALIDATORS,
    at.__name__: ANNOTATED,
}
