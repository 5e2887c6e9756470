"""Bodies of requests: JSON, forms, multipart forms, texts and bytes.

Source: OpenAPI 3.1.1, "Encoding Object" and appendix C; RFC 7578; WHATWG URL, "application/x-www-form-urlencoded".
"""

import binascii
import hashlib
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote_plus

import msgspec

from mcpbus.openapi.operations import ApiBody
from mcpbus.openapi.styles import StyleError, as_text, query_pairs

_MEDIA_TYPE: Final = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w-]+=[\w.-]+)*", re.ASCII)
"""One media type, where an encoding may also have patterns, or several."""
_BINARY: Final = {"type": "string", "contentEncoding": "base64"}


def body_schema(body: ApiBody, schema: Any) -> dict[str, Any]:
    """Return the schema of the argument for a body.

    Args:
        body: The body.
        schema: The schema that its document has for it, converted; None if there is none.
    """
    described = {"description": body.description} if body.description else {}
    match body.kind:
        case "binary":
            return {**_BINARY, "description": body.description or f"{body.media_type}, in Base64"}
        case "text":
            return {"type": "string", **described}
        case "form" | "multipart":
            fields = schema if isinstance(schema, dict) else {"type": "object"}
            return {**described, **_with_files(fields, body)}
        case _:
            return {**described, **schema} if isinstance(schema, dict) else described


def file_fields(schema: Any) -> frozenset[str]:
    """Return the names of the fields that are files: binary ones, or lists of these."""
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(fields, dict):
        return frozenset()
    return frozenset(name for name, field in fields.items() if _is_file(field) or _is_file(_items(field)))


def _items(field: Any) -> Any:
    return field.get("items") if isinstance(field, dict) else None


def _is_file(field: Any) -> bool:
    if not isinstance(field, dict):
        return False
    media_type = field.get("contentMediaType", "")
    encoded = field.get("contentEncoding") is not None
    return field.get("format") == "binary" or (media_type == "application/octet-stream" and not encoded)


def _with_files(schema: dict[str, Any], body: ApiBody) -> dict[str, Any]:
    """Return the schema of a form in which files are texts in Base64."""
    files = file_fields(schema) if body.kind == "multipart" else frozenset()
    if not files:
        return schema
    fields = {
        name: field if name not in files else _as_base64(field)
        for name, field in schema["properties"].items()
    }
    return {**schema, "properties": fields}


def _as_base64(field: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {name: field[name] for name in ("title", "description") if name in field}
    return {**kept, "type": "array", "items": _BINARY} if "items" in field else {**kept, **_BINARY}


def encode_body(body: ApiBody, value: Any, files: frozenset[str]) -> tuple[str, bytes]:
    """Return the ``Content-Type`` and the bytes of a body.

    Args:
        body: The body.
        value: The argument.
        files: The fields of a multipart form that are files.

    Raises:
        StyleError: The value has no such form.
    """
    media_type = "application/json" if "*" in body.media_type else body.media_type
    match body.kind:
        case "json":
            return media_type, msgspec.json.encode(value)
        case "form":
            return media_type, _form(body, _object(value)).encode()
        case "multipart":
            return _multipart(body, _object(value), files)
        case "text":
            return media_type, as_text(value).encode(errors="replace")
        case _:
            plain = "application/octet-stream" if "*" in body.media_type else media_type
            return plain, _bytes(value)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise StyleError("a form is an object")
    return value


def _form(body: ApiBody, fields: Mapping[str, Any]) -> str:
    pairs: list[str] = []
    for name, value in fields.items():
        encoding = body.encoding.get(name)
        given = encoding if isinstance(encoding, dict) else {}
        style = given.get("style")
        if isinstance(style, str) or isinstance(given.get("explode"), bool):
            explode = given.get("explode", style in {None, "form"})
            written = query_pairs(
                name, value, style or "form", explode=explode, reserved=given.get("allowReserved") is True
            )
            pairs += (f"{key}={text}" for key, text in written)
        else:
            pairs += (f"{quote_plus(name)}={quote_plus(text)}" for text in _texts(value, given))
    return "&".join(pairs)


def _texts(value: Any, encoding: Mapping[str, Any]) -> list[str]:
    """Return the texts of a field: a list has one for each item, and an object is JSON."""
    if isinstance(value, dict) or "json" in str(encoding.get("contentType", "")):
        return [msgspec.json.encode(value).decode()]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each, encoding)]
    return [as_text(value)]


def _multipart(body: ApiBody, fields: Mapping[str, Any], files: frozenset[str]) -> tuple[str, bytes]:
    parts: list[tuple[str, bytes]] = []
    for name, value in fields.items():
        encoding = body.encoding.get(name)
        given = encoding if isinstance(encoding, dict) else {}
        wanted = given.get("contentType")
        kind = wanted if isinstance(wanted, str) and _MEDIA_TYPE.fullmatch(wanted) else None
        label = _quoted_name(name)
        if name in files:
            for each in value if isinstance(value, list) else [value]:
                disposition = f'form-data; name="{label}"; filename="{label}"'
                parts.append(
                    (f"{disposition}\r\nContent-Type: {kind or 'application/octet-stream'}", _bytes(each))
                )
            continue
        for each in value if isinstance(value, list) else [value]:
            kind_of = kind or ("application/json" if isinstance(each, dict | list) else None)
            [text] = (
                _texts(each, {"contentType": kind_of or ""})
                if not isinstance(each, list)
                else [msgspec.json.encode(each).decode()]
            )
            typed = f"\r\nContent-Type: {kind_of}" if kind_of else ""
            parts.append((f'form-data; name="{label}"{typed}', text.encode(errors="replace")))
    # Of the contents themselves, so that it is in none of them, and the same request has the same bytes.
    digest = hashlib.sha256(b"\0".join(content for _, content in parts)).hexdigest()[:32]
    lines = b"".join(
        b"--%b\r\nContent-Disposition: %b\r\n\r\n%b\r\n" % (digest.encode(), head.encode(), content)
        for head, content in parts
    )
    return f"multipart/form-data; boundary={digest}", lines + b"--%b--\r\n" % digest.encode()


def _quoted_name(name: str) -> str:
    """Return the name of a field as the WHATWG form encoding has it."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise StyleError("bytes are a text in Base64")
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise StyleError("it is no Base64") from None
