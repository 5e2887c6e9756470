"""The text of an OpenAPI document, read into plain values within limits, and the parts of it that references name.

JSON is read by msgspec. YAML takes PyYAML, the extra ``openapi``; its scalars are read as YAML 1.2 has them, so that ``on`` and a date
remain texts. A reference leads within its document, or to a document beside it: `ApiReferences` asks a function for that, and this
function decides what may be read.

Source: OpenAPI 3.0.4 and 3.1.1, "Reference Object" and "Relative References in URIs"; RFC 6901.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

import attrs
import msgspec

from mcpbus.protocol.nesting import MOST_NESTED
from mcpbus.protocol.printable import quoted

_MOST_DOCUMENTS: Final = 100
"""How many documents one may consist of."""
_MOST_HOPS: Final = 32
"""How many references may follow one another until there is something else."""
_LONGEST_QUOTE: Final = 200


class OpenApiError(ValueError):
    """An OpenAPI document cannot be used: the message names the place, the rule, and the way out."""


class AddressError(OpenApiError):
    """A document does not say at which address its API is, so that none of its operations can be called."""


@attrs.frozen
class Located:
    """A part of a document.

    Attributes:
        value: The part.
        base: The address of its document, against which references in it are resolved.
        address: Its own address, with the pointer to it.
    """

    value: Any
    base: str
    address: str

    def get(self, *names: str) -> "Located | None":
        """Return the member under a path of names, or None if there is none, or it is null."""
        value = self.value
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        steps = "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in names)
        return None if value is None else Located(value, self.base, f"{self.address}{steps}")

    def mapping(self) -> dict[str, Any]:
        """Return the part, which is an object.

        Raises:
            OpenApiError: It is something else.
        """
        if not isinstance(self.value, dict):
            raise OpenApiError(
                f"{self.place} is an object in OpenAPI, and here it is of type {type(self.value).__name__}"
            )
        return self.value

    @property
    def place(self) -> str:
        """Its address within its document, safe to show: the whole one may contain a login."""
        name = self.base.partition("?")[0].rpartition("/")[2]
        return quoted(f"{name}#{self.address.partition('#')[2]}", _LONGEST_QUOTE)


def items_of(part: Located | None) -> list[Located]:
    """Return the items of a list; none if there is no list.

    Raises:
        OpenApiError: It is something else.
    """
    if part is None:
        return []
    if not isinstance(part.value, list):
        raise OpenApiError(f"{part.place} is a list in OpenAPI")
    return [Located(each, part.base, f"{part.address}/{index}") for index, each in enumerate(part.value)]


class ApiReferences:
    """The document, and those that it refers to.

    Args:
        root: The document.
        base: Its address; empty if it has none.
        load: Returns the document at an address.
    """

    def __init__(self, root: Any, base: str, load: Callable[[str], Any]) -> None:
        self.root = Located(root, base, f"{base}#")
        self._documents = {base: root}
        self._load = load

    def resolve(self, reference: Any, base: str) -> Located:
        """Return the part that a reference names.

        Args:
            reference: The value of ``$ref``.
            base: The address of the document that contains it.

        Raises:
            OpenApiError: It names nothing, or a document that may not be read.
        """
        if not isinstance(reference, str):
            raise OpenApiError(f"a $ref is a text, not {type(reference).__name__}")
        address, fragment = urldefrag(urljoin(base, reference) if base or reference[:1] != "#" else reference)
        if address not in self._documents:
            if len(self._documents) == _MOST_DOCUMENTS:
                raise OpenApiError(f"the document refers to more than {_MOST_DOCUMENTS} others")
            self._documents[address] = self._load(address)
        value = self._documents[address]
        if fragment and not fragment.startswith("/"):
            raise OpenApiError(
                f"$ref {quoted(reference, _LONGEST_QUOTE)} names an anchor: write the path to it, such as #/components/schemas/Pet"
            )
        for step in unquote(fragment).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and name in value:
                value = value[name]
            elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                value = value[int(name)]
            else:
                raise OpenApiError(f"$ref {quoted(reference, _LONGEST_QUOTE)} names nothing")
        return Located(value, address, f"{address}#{unquote(fragment)}")

    def follow(self, part: Located) -> Located:
        """Return the part itself, or the one that it refers to, over any number of references.

        Raises:
            OpenApiError: As for `resolve`; or the references have no end.
        """
        for _ in range(_MOST_HOPS):
            if not (isinstance(part.value, dict) and "$ref" in part.value):
                return part
            part = self.resolve(part.value["$ref"], part.base)
        raise OpenApiError(f"{part.place} leads from reference to reference, more than {_MOST_HOPS} times")


def read_text(text: bytes, name: str) -> Any:
    """Return the value of a document in JSON or YAML.

    Args:
        text: The document.
        name: What messages call it.

    Raises:
        OpenApiError: It is neither, or values lie too deep within each other.
        ImportError: It is YAML, and the extra is not installed.
    """
    if text.lstrip()[:1] == b"{":
        try:
            return _checked(msgspec.json.decode(text), name)
        except (msgspec.DecodeError, RecursionError) as error:
            raise OpenApiError(f"{name} is no JSON: {error}") from None
    return _checked(_read_yaml(text, name), name)


def check_version(document: Any, name: str) -> tuple[bool, Mapping[str, Any]]:
    """Return whether a document is of OpenAPI 3.0, with the document.

    Raises:
        OpenApiError: It is no OpenAPI document of 3.0 or 3.1.
    """
    if not isinstance(document, dict):
        raise OpenApiError(f"{name} is no OpenAPI document, which is an object with a member 'openapi'")
    version = document.get("openapi")
    if "swagger" in document and version is None:
        raise OpenApiError(
            f"{name} is of Swagger {quoted(document['swagger'], 20)}: convert it to OpenAPI 3.0 or 3.1 first, for instance with swagger2openapi"
        )
    if not isinstance(version, str) or not re.match(r"3\.[01]\.", version):
        raise OpenApiError(
            f"{name} is of no known version: 'openapi' is 3.0.x or 3.1.x, not {quoted(version, 20)}"
        )
    return version.startswith("3.0."), document


def _checked(value: Any, name: str) -> Any:
    """Refuse values that lie too deep within each other, or in themselves."""
    levels: list[list[Any]] = [[value]]
    while levels[-1]:
        if len(levels) > MOST_NESTED:
            raise OpenApiError(f"{name}: arrays and objects are nested more than {MOST_NESTED} levels deep")
        inner: dict[int, Any] = {}  # each once: aliases of YAML share what they name
        for each in levels[-1]:
            for part in each.values() if isinstance(each, dict) else each if isinstance(each, list) else ():
                if isinstance(part, dict | list):
                    inner[id(part)] = part
        levels.append([*inner.values()])
    return value


def _read_yaml(text: bytes, name: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
    except ImportError:
        raise ImportError(
            f"{name} is YAML, which takes PyYAML: pip install 'mcpbus-server[openapi]', or give it as JSON"
        ) from None
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class _Yaml12Loader(base):  # type: ignore[misc]  # the base is of either kind
        """Reads scalars as the JSON schema of YAML 1.2 does."""

        yaml_implicit_resolvers: Mapping[str, Any] = {}

    for tag, pattern, first in _SCALARS:
        _Yaml12Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", pattern, first)
    try:
        return _with_text_keys(yaml.load(text, Loader=_Yaml12Loader))  # noqa: S506 - it is a safe loader
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError) as error:
        problem = str(error).partition("\n")[0]
        raise OpenApiError(f"{name} is neither JSON nor YAML: {quoted(problem, _LONGEST_QUOTE)}") from None


_SCALARS: Final = (
    ("bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789")),
    (
        "float",
        re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"),
        list("-+0123456789."),
    ),
)
"""Which plain scalars are no texts: YAML 1.2.2, section 10.2.1, without infinities, which JSON has not."""


def _with_text_keys(value: Any) -> Any:
    """Return a value whose keys are texts, as those of JSON are: YAML reads the status ``200:`` as a number."""
    memo: dict[int, Any] = {}

    def copy(part: Any) -> Any:
        if not isinstance(part, dict | list):
            return part
        if id(part) not in memo:
            made: Any = {} if isinstance(part, dict) else []
            memo[id(part)] = made
            if isinstance(part, dict):
                made.update(
                    (key if isinstance(key, str) else str(key), copy(each)) for key, each in part.items()
                )
            else:
                made.extend(map(copy, part))
        return memo[id(part)]

    return copy(value)
