"""Classes with fields that pydantic does not read in full: TypedDicts, dataclasses, attrs classes, Structs, NamedTuples.

pydantic knows neither attrs classes nor Structs, and before Python 3.12 not `typing.TypedDict`. It ignores the descriptions
of fields, and constraints of `msgspec.Meta`. So these classes, and the parameters of a function, are read here, in one way:
a list of fields, each with an annotation, a default and a description. Each field's own schema comes from pydantic.

A class gives pydantic its schema by a class method. `taught` lends that method to classes while a schema is built.
"""

import copy
import dataclasses
import enum
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import attrs
import msgspec
import pydantic
import typing_extensions
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticUndefined, core_schema

from mcpbus.features.docstrings import read_class_docstring
from mcpbus.features.schemas.json_schema import RegistrationError
from mcpbus.features.schemas.metadata import descriptive, read_metadata
from mcpbus.features.schemas.parameter import MISSING, Parameter
from mcpbus.features.schemas.translation import READING, SchemaUse, with_metadata

_PYDANTIC_REFUSES: Final = ("Unable to generate pydantic-core schema for", "pydantic cannot validate")
_HOOK: Final = "__get_pydantic_core_schema__"
_JSON_HOOK: Final = "__get_pydantic_json_schema__"
_lock = threading.RLock()


def fields_schema(
    fields: Iterable[Parameter], handler: GetCoreSchemaHandler, owner: str, *, closed: bool, name: str
) -> core_schema.TypedDictSchema:
    """Return the schema of an object with these fields, which validates to a dict of them.

    Args:
        fields: The fields.
        handler: pydantic's own generator.
        owner: The function or class that messages name.
        closed: Whether other members are refused.
        name: The name of the class for pydantic's messages.

    Raises:
        RegistrationError: A field cannot be read.
    """
    read = {field.name: _field_schema(field, handler, f"{owner} {field.name!r}") for field in fields}
    return core_schema.typed_dict_schema(read, cls_name=name, extra_behavior="forbid" if closed else "ignore")


def _field_schema(field: Parameter, handler: GetCoreSchemaHandler, place: str) -> core_schema.TypedDictField:
    info = field_info(field)
    try:
        listed = info.default if _is_copied(info) else MISSING
        metadata = [*read_metadata(info.metadata, place), *descriptive(info, listed)]
        if field.description is not None:
            metadata.insert(
                0, pydantic.Field(description=field.description)
            )  # the annotation's own comes later
        schema = handler.generate_schema(with_metadata(info.annotation, metadata, place))
        if info.default is not PydanticUndefined:
            validate = bool(info.validate_default)
            schema = core_schema.with_default_schema(schema, validate_default=validate, **_default(info))
    except PydanticSchemaGenerationError as error:
        reason = str(error).partition(". Set `arb")[0].replace(*_PYDANTIC_REFUSES)
        raise TypeError(f"{place}: its type has no JSON form: {reason}") from error
    except TypeError as error:
        raise TypeError(f"{place}: {error}") from error
    alias = info.validation_alias or field.alias
    return core_schema.typed_dict_field(
        schema,
        required=info.is_required() and not field.optional,
        validation_alias=alias if alias is None or isinstance(alias, str) else alias.convert_to_aliases(),
        serialization_alias=info.serialization_alias or field.alias,
    )


def field_info(field: Parameter) -> FieldInfo:
    """Return all that an annotation and a default state about a field, merged as pydantic merges it."""
    if isinstance(field.default, FieldInfo):
        return _with_plain_default(FieldInfo.from_annotated_attribute(field.annotation, field.default))
    info = _with_plain_default(FieldInfo.from_annotation(field.annotation))
    if field.default is not MISSING:
        info = copy.copy(info)
        info.default, info.default_factory = field.default, None
    return info


def _with_plain_default(info: FieldInfo) -> FieldInfo:
    """Return a ``Field`` whose factory of an empty container is a default, which clients are shown."""
    if info.default_factory in (list, dict, set):
        info = copy.copy(info)
        info.default, info.default_factory = info.default_factory(), None  # type: ignore[call-arg, misc]
    return info


def find_factory(field: Parameter, place: str) -> Callable[[], Any] | None:
    """Return the function that makes the default of a parameter, or None.

    Raises:
        RegistrationError: The function takes the other arguments.
    """
    if not isinstance(field.default, FieldInfo) and get_origin(field.annotation) is not Annotated:
        return None
    info = field_info(field)
    if info.default_factory_takes_validated_data:
        raise RegistrationError(
            f"{place}: the default_factory of a Field takes no arguments here; compute the value in the function"
        )
    return info.default_factory  # type: ignore[return-value]


def _is_copied(info: FieldInfo) -> bool:
    """Whether each call gets a copy of a default, so that it does not see changes of other calls."""
    return info.default is not PydanticUndefined and not isinstance(
        info.default, (type(None), bool, int, float, str, bytes, enum.Enum)
    )


def _default(info: FieldInfo) -> dict[str, Any]:
    if not _is_copied(info):
        return {"default": info.default}
    try:
        copy.deepcopy(info.default)
    except Exception as error:
        raise TypeError(
            f"each call gets a copy of the default {info.default!r}, which cannot be copied: {error}"
        ) from error
    return {"default_factory": partial(copy.deepcopy, info.default)}


def is_record(kind: Any) -> bool:
    """Whether a class is read here, and not by pydantic."""
    if not isinstance(kind, type) or hasattr(kind, _HOOK) or hasattr(kind, "__pydantic_config__"):
        return False
    return (
        typing_extensions.is_typeddict(kind)
        or dataclasses.is_dataclass(kind)
        or attrs.has(kind)
        or issubclass(kind, msgspec.Struct)
        or _is_named_tuple(kind)
    )


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and hasattr(kind, "_field_defaults")


@contextmanager
def taught(kinds: Iterable[type], reading: SchemaUse) -> Iterator[None]:
    """Lend these classes the methods by which pydantic reads them, for a use of their schemas."""
    with _lock:
        lent = list(kinds)
        token = READING.set(reading)
        for kind in lent:
            setattr(kind, _HOOK, classmethod(_schema_of))
            setattr(kind, _JSON_HOOK, classmethod(_json_schema_of))
        try:
            yield
        finally:
            READING.reset(token)
            for kind in lent:
                delattr(kind, _HOOK)
                delattr(kind, _JSON_HOOK)


def fields_of(source: Any) -> list[Parameter]:
    """Return the fields of a class that `is_record`, or of such a class with type arguments.

    Raises:
        RegistrationError: An annotation of the class cannot be resolved.
    """
    kind = get_origin(source) or source
    described = describe_fields(kind)
    substitute = partial(_substituted, arguments=_type_arguments(source))
    try:
        found = _read_fields(kind, get_type_hints(kind, include_extras=True))
    except NameError as error:
        raise RegistrationError(
            f"{kind.__name__}: an annotation cannot be resolved ({error}); what it names must be importable from the "
            f"top level of the module and not only under TYPE_CHECKING"
        ) from error
    return [
        attrs.evolve(
            field,
            annotation=substitute(field.annotation),
            description=field.description or described.get(field.name),
        )
        for field in found
    ]


def _read_fields(kind: Any, hints: Mapping[str, Any]) -> list[Parameter]:
    if issubclass(kind, msgspec.Struct):
        return _of_struct(kind)
    if attrs.has(kind):
        return _of_attrs(kind, hints)
    if dataclasses.is_dataclass(kind):
        return _of_dataclass(kind, hints)
    if _is_named_tuple(kind):
        given = inspect.signature(kind).parameters.values()
        return [Parameter(each.name, hints.get(each.name, Any), each.default) for each in given]
    return [_of_typed_dict(kind, name, hint) for name, hint in hints.items()]


def _of_typed_dict(kind: Any, name: str, hint: Any) -> Parameter:
    bare, qualifiers = _unqualified(hint)
    if typing_extensions.NotRequired in qualifiers:
        return Parameter(name, bare, optional=True)
    required = typing_extensions.Required in qualifiers or name in kind.__required_keys__
    return Parameter(name, bare, optional=not required)


def _unqualified(hint: Any) -> tuple[Any, list[Any]]:
    """Return the type of a TypedDict's field without ``Required`` and the like, and these."""
    origin = get_origin(hint)
    if origin in {typing_extensions.Required, typing_extensions.NotRequired, typing_extensions.ReadOnly}:
        bare, qualifiers = _unqualified(get_args(hint)[0])
        return bare, [origin, *qualifiers]
    if origin is Annotated:
        inner, *extras = get_args(hint)
        bare, qualifiers = _unqualified(inner)
        return Annotated[(bare, *extras)], qualifiers
    return hint, []


def _of_dataclass(kind: Any, hints: Mapping[str, Any]) -> list[Parameter]:
    declared = {field.name: field for field in dataclasses.fields(kind)}
    found = []
    for name, parameter in inspect.signature(kind).parameters.items():
        hint = hints.get(name, Any)
        annotation = hint.type if isinstance(hint, dataclasses.InitVar) else hint
        field = declared.get(name)
        description = None if field is None else field.metadata.get("description")
        default, made = parameter.default, False
        if field is not None and field.default_factory is not dataclasses.MISSING:
            default, made = _made_default(field.default_factory)
        found.append(Parameter(name, annotation, default, description, optional=made))
    return found


def _of_attrs(kind: Any, hints: Mapping[str, Any]) -> list[Parameter]:
    found = []
    for attribute in attrs.fields(kind):
        default, made = attribute.default, False
        if default is attrs.NOTHING:
            default = MISSING
        elif isinstance(default, attrs.Factory):  # type: ignore[arg-type]
            default, made = _made_default(default.factory)
        if attribute.init:
            annotation = hints.get(attribute.name, Any)
            description = attribute.metadata.get("description")
            found.append(Parameter(attribute.alias, annotation, default, description, optional=made))
    return found


def _of_struct(kind: type[msgspec.Struct]) -> list[Parameter]:
    found = []
    tag, tag_field = kind.__struct_config__.tag, kind.__struct_config__.tag_field
    if tag is not None and tag_field is not None:
        found.append(Parameter(tag_field, Literal[tag]))
    for field in msgspec.structs.fields(kind):
        default, made = field.default, False
        if field.default_factory is not msgspec.NODEFAULT:
            default, made = _made_default(field.default_factory)
        elif default is msgspec.UNSET:
            default, made = MISSING, True
        elif default is msgspec.NODEFAULT:
            default = MISSING
        alias = None if field.encode_name == field.name else field.encode_name
        found.append(Parameter(field.name, field.type, default, optional=made, alias=alias))
    return found


def _made_default(factory: Any) -> tuple[Any, bool]:
    """Return a default that clients are shown, or `MISSING`, and whether the class makes it."""
    return (factory(), False) if factory in (list, dict, set) else (MISSING, True)


def _type_arguments(source: Any) -> dict[Any, Any]:
    kind = get_origin(source)
    return {} if kind is None else dict(zip(kind.__parameters__, get_args(source), strict=False))


def _substituted(annotation: Any, arguments: Mapping[Any, Any]) -> Any:
    if isinstance(annotation, TypeVar):
        return arguments.get(annotation, annotation)
    parameters = getattr(annotation, "__parameters__", ())
    if isinstance(annotation, type) or not any(each in arguments for each in parameters):
        return annotation
    return annotation[tuple(arguments.get(each, each) for each in parameters)]


def describe_fields(kind: type) -> dict[str, str]:
    """Return the descriptions that the docstrings of a class and of its bases have for fields."""
    return {
        name: text
        for base in reversed(kind.__mro__)
        for name, text in read_class_docstring(base).parameters.items()
    }


_building: set[str] = set()
"""The classes whose schema is being built, under the lock of `taught`: a recursive class refers to itself."""


def _schema_of(kind: Any, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    ref = f"{kind.__module__}.{kind.__qualname__}:{id(kind)}"
    if arguments := get_args(source):
        ref += f"[{','.join(map(repr, arguments))}]"
    if ref in _building:
        return core_schema.definition_reference_schema(ref)
    _building.add(ref)
    try:
        schema = _build(kind, source, handler)
    finally:
        _building.discard(ref)
    return {**schema, "ref": ref}  # type: ignore[typeddict-item, typeddict-unknown-key, unused-ignore]


def _build(kind: Any, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    fields = fields_of(source)
    name = kind.__name__
    if _is_named_tuple(kind) or _is_array(kind):
        parameters = [_positional(field, handler, name) for field in fields]
        # A tuple is itself in Python.
        return core_schema.call_schema(core_schema.arguments_schema(parameters), kind)
    closed = _is_closed(kind)
    members = fields_schema(fields, handler, f"{name}, field", closed=closed, name=name)
    if typing_extensions.is_typeddict(kind):
        return members
    made = core_schema.no_info_after_validator_function(partial(_construct, kind), members)
    if not READING.get().instances:
        return made
    return core_schema.no_info_wrap_validator_function(
        lambda value, handler: value if isinstance(value, kind) else handler(value),
        made,
        serialization=core_schema.plain_serializer_function_ser_schema(
            partial(_members_of, kind, fields), return_schema=members
        ),
    )


def _positional(
    field: Parameter, handler: GetCoreSchemaHandler, owner: str
) -> core_schema.ArgumentsParameter:
    read = _field_schema(field, handler, f"{owner}, field {field.name!r}")
    return core_schema.arguments_parameter(field.name, read["schema"])


def _is_array(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct) and kind.__struct_config__.array_like


def _is_closed(kind: Any) -> bool:
    if issubclass(kind, msgspec.Struct):
        return bool(kind.__struct_config__.forbid_unknown_fields)
    return getattr(kind, "__closed__", None) is True


def _construct(kind: Callable[..., Any], members: dict[str, Any]) -> Any:
    config = getattr(kind, "__struct_config__", None)
    if config is not None and config.tag is not None:
        members = {name: value for name, value in members.items() if name != config.tag_field}
    try:
        return kind(**members)
    except TypeError as error:
        # A validator of attrs raises it. Its text may be about anything.
        raise ValueError(f"these are not the values of a {kind.__name__}") from error


def _members_of(kind: Any, fields: Iterable[Parameter], value: Any) -> Any:
    """Return the fields of an instance, for pydantic to serialize."""
    if not isinstance(value, kind):
        return value
    config = getattr(kind, "__struct_config__", None)
    found = {} if config is None or config.tag is None else {config.tag_field: config.tag}
    kept = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else None
    names = [each.name for each in fields if each.name not in found and (kept is None or each.name in kept)]
    attributes = {each.alias: each.name for each in attrs.fields(kind)} if attrs.has(kind) else {}
    for name in names:
        member = getattr(value, attributes.get(name, name), msgspec.UNSET)
        if member is not msgspec.UNSET:
            found[name] = member
    return found


def _json_schema_of(kind: Any, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
    found = handler(schema)
    document = handler.resolve_ref_schema(found)
    described = read_class_docstring(kind).description
    if _is_named_tuple(kind) or _is_array(kind):
        _make_positional(document)
    document.setdefault("title", kind.__name__)
    if described is not None:
        document.setdefault("description", described)
    return found


def _make_positional(document: dict[str, Any]) -> None:
    """Turn the schema of an object with these members into that of an array of them, in place."""
    properties = document.pop("properties", {})
    required = document.pop("required", [])
    document.pop("additionalProperties", None)
    document |= {"type": "array", "prefixItems": list(properties.values())}
    document |= {"minItems": len(required), "maxItems": len(properties)}
