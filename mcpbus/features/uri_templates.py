r"""URI templates (RFC 6570) read backwards: from a URI that a client asks for to the template's variables.

An expansion loses information, so not every template can be inverted. Those that can are matched exactly; the
others are refused when they are registered, never guessed at while a client waits. What can be inverted:

- ``{var}``: one or more characters, none of them reserved; a ``/`` never matches.
- ``{+var}`` once, as the last variable of the path: anything, ``/`` too.
- ``{/var}`` and, once, ``{/list*}``: path segments, each with its ``/``.
- ``{?a,b}`` or ``{&a,b}`` once, at the end: a query, in any order; absent ones are left to the function's defaults.

Between two variables of a path stands at least one reserved character (``/``, ``:``, ...), which no value can hold.

What a variable receives is percent-decoded, once, and joined to a directory it stays below it, on every system: a
value that begins with ``/`` or ``\`` or a drive letter such as ``C:``, has a ``..`` between slashes of either kind, or
holds a NUL, names nothing; and only those of ``{+var}`` and of a query ever hold a ``/``, be it written as ``%2F``. A URL
is a value like any other. A template with `unsafe_paths` hands over whatever a URI says.
Source: RFC 6570 section 3; requirements R-5 and R-7.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import attrs
import uritemplate
from uritemplate.variable import Operator, URIVariable

from mcpbus.features.errors import RegistrationError
from mcpbus.features.uris import check_uri

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_RESERVED = frozenset(":/?#[]@!$&'()*+,;=")
_VALUE = r"(?:[A-Za-z0-9._~\-]|%[0-9A-Fa-f]{2}|[^\x00-\x7f])+"
_ANYTHING = r"[^\x00-\x20]+"
# An absolute path of POSIX or Windows, or of a Windows drive; a climb; an end of the name for the C below.
_LEADS_OUT = re.compile(r"\A[/\\]|\A[A-Za-z]:|(?:\A|[/\\])\.\.(?:[/\\]|\Z)|\0")


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
    _query: frozenset[str] = attrs.field(repr=False)
    _unsafe: bool = attrs.field(repr=False)

    def match(self, uri: str) -> dict[str, str | list[str]] | None:
        """The variables from which the template expands to `uri`, or None if it does not, or would not safely."""
        found = self._pattern.fullmatch(uri)
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
                    values[name] = self._decode(text, wide=name in self._wide)
        except ValueError:
            return None
        return values

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
            values[name] = self._decode(text, wide=True)
        return True

    def _decode(self, text: str, *, wide: bool = False) -> str:
        """Percent-decode one value; ValueError for one that could leave its place."""
        value = unquote(text, errors="strict")
        if not self._unsafe and (_LEADS_OUT.search(value) or (not wide and "/" in value)):
            raise ValueError(text)
        return value


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


@attrs.define
class _Compiler:
    text: str
    owner: str
    unsafe_paths: bool
    parts: list[str] = attrs.field(factory=list)
    names: list[str] = attrs.field(factory=list)
    lists: set[str] = attrs.field(factory=set)
    wide: set[str] = attrs.field(factory=set)
    query: set[str] = attrs.field(factory=set)
    open_value: bool = False
    """A variable precedes and no reserved character has ended its value yet."""
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
        if _RESERVED.intersection(text):
            self.open_value = False
        self.parts.append(re.escape(text))

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

    def separate(self, written: str) -> None:
        if self.open_value:
            raise self.refuse(
                f"where {written} begins cannot be told; put a reserved character such as '/' before it"
            )

    def simple(self, written: str, variable: URIVariable) -> None:
        self.separate(written)
        name = self.only(written, variable)
        self.parts.append(f"(?P<{_VARIABLE}{name}>{_VALUE})")
        self.open_value = True

    def anything(self, written: str, variable: URIVariable) -> None:
        self.separate(written)
        if self.lists:
            raise self.refuse(f"{written} follows a list of any length")
        name = self.only(written, variable)
        self.parts.append(f"(?P<{_VARIABLE}{name}>{_ANYTHING})")
        self.wide.add(name)
        self.closed = written

    def segments(self, written: str, variable: URIVariable) -> None:
        for name, options in variable.variables:
            self.declare(name)
            if options["explode"]:
                if self.lists:
                    raise self.refuse(f"{written} follows another list of any length")
                self.parts.append(f"(?P<{_VARIABLE}{name}>(?:/{_VALUE})+)")
                self.lists.add(name)
            else:
                self.parts.append(f"/(?P<{_VARIABLE}{name}>{_VALUE})")
        self.open_value = True

    def form(self, written: str, variable: URIVariable) -> None:
        start = "?" if variable.operator is Operator.form_style_query else "&"
        if start == "&" and "?" not in self.text[: self.text.index(written)]:
            raise self.refuse(f"{written} continues a query that no '?' began")
        for name, options in variable.variables:
            self.declare(name)
            if options["explode"]:
                raise self.refuse(f"{written} repeats a name; give each value its own")
            self.query.add(name)
        self.parts.append(f"(?P<{_QUERY}>{re.escape(start)}{_ANYTHING})?")
        self.closed = written
