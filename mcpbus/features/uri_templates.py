r"""URI templates (RFC 6570) read backwards: from a URI that a client asks for to the template's variables.

An expansion loses information, so not every template can be inverted. Those that can are matched exactly; the
others are refused when they are registered, never guessed at while a client waits. What can be inverted:

- ``{var}``: one or more characters other than ``/``, ``?`` and ``#``; in a query other than ``&`` and ``#``.
- ``{+var}`` once, as the last variable of the path: anything, ``/`` too.
- ``{/var}`` and, once, ``{/list*}``: path segments, each with its ``/``.
- ``{?a,b}`` or ``{&a,b}`` once, at the end: a query, in any order; absent ones are left to the function's defaults.

A URI matches in whatever spelling a client sends it, see `mcpbus.protocol.uris`. An escaped character belongs to a
value: ``a%2Fb`` is the value ``a/b`` of any variable. So is a reserved character that separates nothing. Between two
variables of a path stands at least one reserved character (``/``, ``:``, ...). If it is none of ``/?#``, its last place
separates them. The variable behind it holds no such character unless it is escaped; before ``{+var}``, which holds
any, the first place separates them, and the variable before it holds none.

A variable receives its value percent-decoded, once. Joined to a directory the value stays below it, on every system:
one that begins with ``/`` or ``\`` or a drive letter such as ``C:``, has a ``..`` between slashes of either kind, or
holds a NUL, names nothing. The same holds if such a value appears when the value is decoded again, however often. A URL
is a value like any other. A template with `unsafe_paths` hands over whatever a URI contains.
Source: RFC 6570 section 3; requirements R-5 and R-7.
"""

import enum
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

import attrs
import uritemplate
from uritemplate.variable import Operator, URIVariable

from mcpbus.features.errors import RegistrationError
from mcpbus.features.uris import check_uri
from mcpbus.protocol.uris import PATH_DELIMITERS, QUERY_DELIMITERS, RESERVED, normalize_escapes

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_CONTROLS = r"\x00-\x1f\x7f"
_ANYTHING = f"[^{_CONTROLS}]+"
# A value ends before a literal, and never within an escape.
_NO_ESCAPE = "(?<!%)(?<!%[0-9A-F])"
_PIECE = re.compile("%[0-9A-F]{2}|.", re.DOTALL)
# An absolute path of POSIX or Windows, or of a Windows drive; a climb; an end of the name for the C below; and the
# beginning of an overlong form of UTF-8, which a careless decoder takes for one of these.
_LEADS_OUT = re.compile(
    rb"\A[/\\]|\A[A-Za-z]:|(?:\A|[/\\])\.\.(?:[/\\]|\Z)|\0|[\xc0\xc1\xf8-\xff]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]"
)
_ESCAPED = frozenset(RESERVED).difference("/")
_OF_AUTHORITY = len("//")
_MOST_LAYERS = 8
"""How often a value may be percent-encoded."""


@attrs.frozen
class Template:
    """A compiled template."""

    text: str
    variables: frozenset[str]
    optional: frozenset[str]
    """The variables that a URI may leave out: those of a query."""
    _pattern: re.Pattern[str] = attrs.field(repr=False)
    _lists: frozenset[str] = attrs.field(repr=False)
    _wide: frozenset[str] = attrs.field(repr=False)
    """The groups in which reserved characters stand for themselves."""
    _query: frozenset[str] = attrs.field(repr=False)
    _unsafe: bool = attrs.field(repr=False)

    def match(self, uri: str) -> dict[str, str | list[str]] | None:
        """The variables from which the template expands to `uri`, or None if it does not, or would not safely."""
        found = self._pattern.fullmatch(normalize_escapes(uri))
        if found is None:
            return None
        values: dict[str, str | list[str]] = {}
        try:
            for group, text in found.groupdict().items():
                if group == _QUERY:
                    if text and not self._read_query(text[1:], values):
                        return None
                elif (name := group.removeprefix(_VARIABLE)) in self._lists:
                    values[name] = [self._decode(segment) for segment in text[1:].split("/")]
                else:
                    values[name] = self._decode(text)
        except ValueError:
            return None
        return values

    def is_loose(self, uri: str) -> bool:
        """Return whether a value of a URI that matches holds a reserved character that an expansion escapes."""
        found = self._pattern.fullmatch(normalize_escapes(uri))
        return found is not None and any(
            not _ESCAPED.isdisjoint(text)
            for group, text in found.groupdict(default="").items()
            if group not in self._wide
        )

    def moved(self, text: str, owner: str) -> "Template":
        """The same under another text, for another owner; see `compile_template`."""
        return compile_template(text, owner, unsafe_paths=self._unsafe)

    def expand(self, values: Mapping[str, Any]) -> str:
        """The URI for these values."""
        return uritemplate.expand(self.text, dict(values))

    def _read_query(self, query: str, values: dict[str, str | list[str]]) -> bool:
        for pair in query.split("&"):
            name, equals, text = pair.partition("=")
            if not equals or name not in self._query or name in values:
                return False
            values[name] = self._decode(text)
        return True

    def _decode(self, text: str) -> str:
        """Percent-decode one value; ValueError for one that could leave its place."""
        value = unquote(text, errors="strict")
        if not self._unsafe and _leads_out(value):
            raise ValueError(text)
        return value


def _leads_out(value: str) -> bool:
    """Return whether a value, or any that it decodes to, joined to a directory may be a place outside it."""
    data = value.encode()
    for _ in range(_MOST_LAYERS):
        if _LEADS_OUT.search(data) is not None:
            return True
        inner = unquote_to_bytes(data)
        if inner == data:
            return False
        data = inner
    return True


# Names of groups; the prefix keeps a variable that is called "query" apart from the query.
_QUERY = "query"
_VARIABLE = "v_"


def compile_template(text: str, owner: str, *, unsafe_paths: bool = False) -> Template:
    """Compile the template `text` for `owner`, the thing that messages name.

    Args:
        text: the template.
        owner: what it belongs to.
        unsafe_paths: whether variables may hold what, as a path, leads out of a directory.

    Raises:
        RegistrationError: it is not a template of RFC 6570, or it cannot be inverted; the message says why.
    """
    return _Compiler(text, owner, unsafe_paths).compile()


class _Place(enum.Enum):
    """The part of a URI that a piece of a template stands in."""

    SCHEME = enum.auto()
    HOST = enum.auto()
    """The authority of an HTTP URI. In other schemes it is a name like all that follows."""
    PATH = enum.auto()
    QUERY = enum.auto()

    @property
    def delimiters(self) -> str:
        """The characters that mean something else percent-encoded."""
        return QUERY_DELIMITERS if self is _Place.QUERY else PATH_DELIMITERS


@attrs.define
class _Value:
    """A variable of one segment, or of a list of segments, whose end is not known yet."""

    name: str
    excluded: str
    """The characters that end the value."""
    segments: bool = False
    listed: bool = False

    def pattern(self) -> str:
        """Return what matches the value, with the slashes before its segments."""
        text = f"[^{_CONTROLS}{re.escape(self.excluded)}]+"
        group = f"?P<{_VARIABLE}{self.name}>"
        if self.listed:
            return f"({group}(?:/{text})+){_NO_ESCAPE}"
        return f"{'/' if self.segments else ''}({group}{text}){_NO_ESCAPE}"


@attrs.define
class _Compiler:
    text: str
    owner: str
    unsafe_paths: bool
    parts: list[str] = attrs.field(factory=list)
    names: list[str] = attrs.field(factory=list)
    lists: set[str] = attrs.field(factory=set)
    wide: set[str] = attrs.field(factory=lambda: {_QUERY})
    query: set[str] = attrs.field(factory=set)
    place: _Place = _Place.SCHEME
    slashes: int = 0
    """How many of those before the authority have been read."""
    open_value: _Value | None = None
    """The last variable, which is not among the parts yet: what follows decides where it ends."""
    text_behind: list[str] = attrs.field(factory=list)
    """The characters and escapes behind it."""
    closed: str | None = None
    """The expression after which no other may follow."""

    def compile(self) -> Template:
        check_uri(_EXPRESSION.sub("", self.text), self.owner)
        position = 0
        for found in _EXPRESSION.finditer(self.text):
            self.literal(self.text[position : found.start()])
            self.expression(found.group(), found.group(1))
            position = found.end()
        self.literal(self.text[position:])
        self.close()
        return Template(
            self.text,
            frozenset(self.names),
            frozenset(self.query),
            re.compile("".join(self.parts)),
            frozenset(self.lists),
            frozenset(self.wide),
            frozenset(self.query),
            self.unsafe_paths,
        )

    def refuse(self, reason: str) -> RegistrationError:
        return RegistrationError(f"{self.owner}: the template {self.text!r} cannot be matched: {reason}")

    def literal(self, text: str) -> None:
        if text and self.query:
            raise self.refuse(f"{text!r} follows the query")
        self.text_behind += _PIECE.findall(normalize_escapes(text))

    def close(self, separator: int = -1) -> None:
        """Add the last variable and the text behind it.

        Args:
            separator: The place in that text of a character that is never escaped.
        """
        if self.open_value is not None:
            self.parts.append(self.open_value.pattern())
        self.open_value = None
        for place, piece in enumerate(self.text_behind):
            self.parts.append(re.escape(piece) if place == separator else self.piece(piece))
            self.move(piece)
        self.text_behind = []

    def piece(self, piece: str) -> str:
        """Return the pattern of one character or escape, in all spellings."""
        if self.place in {_Place.SCHEME, _Place.HOST} and piece.isalpha():
            return f"[{piece.lower()}{piece.upper()}]"
        character = unquote(piece)
        if character in RESERVED and character not in self.place.delimiters:
            return f"(?:{re.escape(character)}|%{ord(character):02X})"
        return re.escape(piece)

    def move(self, piece: str) -> None:
        """Note which part of the URI follows a character."""
        match self.place:
            case _Place.SCHEME if piece == ":":
                http = self.text.lower().startswith(("http:", "https:"))
                self.place = _Place.HOST if http else _Place.PATH
            case _Place.HOST if piece == "/" and self.slashes < _OF_AUTHORITY:
                self.slashes += 1
            case _Place.HOST | _Place.PATH if piece in {"?", "#"}:
                self.place = _Place.QUERY
            case _Place.HOST if piece == "/":
                self.place = _Place.PATH
            case _:
                pass

    def expression(self, written: str, inner: str) -> None:
        if self.closed is not None:
            raise self.refuse(
                f"{written} follows {self.closed}, which may be of any length; put {self.closed} last"
            )
        if not re.fullmatch(
            r"[+#./;?&=,!@|]?[A-Za-z0-9_][A-Za-z0-9_.]*\*?(,[A-Za-z0-9_][A-Za-z0-9_.]*\*?)*", inner
        ):
            raise self.refuse(
                f"{written} is not an expression that can be inverted (prefixes such as {{x:3}} lose text)"
            )
        variable = URIVariable(inner)
        match variable.operator:
            case Operator.default:
                self.simple(written, variable)
            case Operator.reserved:
                self.anything(written, variable)
            case Operator.path_segment:
                self.segments(written, variable)
            case Operator.form_style_query | Operator.form_style_query_continuation:
                self.form(written, variable)
            case _:
                raise self.refuse(
                    f"the operator of {written} cannot be inverted; use {{var}}, {{+var}}, {{/var}} or {{?var}}"
                )

    def declare(self, name: str) -> str:
        if not name.isidentifier():
            raise self.refuse(f"the variable {name!r} cannot be the name of a parameter")
        if name in self.names:
            raise self.refuse(f"the variable {name!r} appears twice")
        self.names.append(name)
        return name

    def only(self, written: str, variable: URIVariable) -> str:
        name, options = variable.variables[0]
        if len(variable.variables) != 1 or options["explode"]:
            raise self.refuse(
                f"{written} joins several values with commas; use {{a}}/{{b}}, {{+{name}}} for a path as one text, or "
                f"{{/{name}*}} for its segments"
            )
        return self.declare(name)

    def separate(self, written: str, *, wide: bool = False) -> str:
        """End the last variable, and return the character that the next one cannot hold unless it is escaped.

        Of several such characters the last one separates. Before a `wide` variable, which holds any, the first one does.
        """
        value, behind = self.open_value, self.text_behind
        if value is None or any(piece in value.excluded for piece in behind):
            self.close()
            return ""
        separators = [place for place, piece in enumerate(behind) if piece in RESERVED]
        if not separators:
            raise self.refuse(
                f"where {written} begins cannot be told; put a reserved character such as '/' before it"
            )
        place = separators[0 if wide else -1]
        separator = behind[place]
        if wide:
            value.excluded += separator
        self.close(place)
        return separator

    def open(self, name: str, excluded: str = "", *, segments: bool = False, listed: bool = False) -> None:
        """Begin a variable of one segment, or of a list of them."""
        ends = "&#" if self.place is _Place.QUERY else PATH_DELIMITERS
        self.open_value = _Value(name, ends + excluded, segments, listed)

    def simple(self, written: str, variable: URIVariable) -> None:
        excluded = self.separate(written)
        self.open(self.only(written, variable), excluded)

    def anything(self, written: str, variable: URIVariable) -> None:
        self.separate(written, wide=True)
        if self.lists:
            raise self.refuse(f"{written} follows a list of any length")
        name = self.only(written, variable)
        self.parts.append(f"(?P<{_VARIABLE}{name}>{_ANYTHING}){_NO_ESCAPE}")
        self.wide.add(_VARIABLE + name)
        self.closed = written

    def segments(self, written: str, variable: URIVariable) -> None:
        for name, options in variable.variables:
            self.declare(name)
            self.close()
            if options["explode"]:
                if self.lists:
                    raise self.refuse(f"{written} follows another list of any length")
                self.lists.add(name)
            self.open(name, segments=True, listed=options["explode"])

    def form(self, written: str, variable: URIVariable) -> None:
        start = "?" if variable.operator is Operator.form_style_query else "&"
        if start == "&" and "?" not in self.text[: self.text.index(written)]:
            raise self.refuse(f"{written} continues a query that no '?' began")
        for name, options in variable.variables:
            self.declare(name)
            if options["explode"]:
                raise self.refuse(f"{written} repeats a name; give each value its own")
            self.query.add(name)
        self.close()
        self.parts.append(f"(?P<{_QUERY}>{re.escape(start)}{_ANYTHING})?")
        self.closed = written
