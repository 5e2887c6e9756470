"""What may be broken in a source file: one token or one statement at a time."""

import ast
from collections.abc import Callable, Iterator

import attrs

_SWAPPED = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
}
_NEGATED = {ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn}
_NAMED = {
    "DELIVERED": "LOST",
    "LOST": "DELIVERED",
    "STORED": "DELIVERED",
    "FINISHED": "FAILED",
    "FAILED": "FINISHED",
    "CANCELLED": "FINISHED",
    "NO_STREAM": "SESSION_ENDED",
    "SESSION_ENDED": "NO_STREAM",
    "OVERFLOW": "LOST",
    "EXPIRED": "NO_STREAM",
    "PARKED": "CANCELLED",
    "SUPERSEDED": "OVERFLOW",
}
"""Fates and their reasons: a wrong one is a word in the place of another."""

_TIME_LIMITS = {"fail_after", "move_on_after"}
_BOUNDS = {"min": "max", "max": "min"}

_DECLARED = {"annotation", "returns", "decorator_list"}


@attrs.frozen
class Mutant:
    """One fault that somebody might make.

    Attributes:
        path: The file, from the root of the repository.
        line: The line where it begins, counted from 1.
        text: That line, without its indentation.
        change: What is changed, for people.
        start: Where the changed part begins, in bytes.
        end: Where it ends.
        instead: What stands there then.
    """

    path: str
    line: int
    text: str
    change: str
    start: int
    end: int
    instead: bytes

    def applied(self, source: bytes) -> bytes:
        """The source with the fault in it."""
        return source[: self.start] + self.instead + source[self.end :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} | {self.text} | {self.change}"


class Mutants:
    """Finds all of one file; those that are not even Python are left out."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def __iter__(self) -> Iterator[Mutant]:
        return self.those(lambda _: True)

    def those(self, wanted: Callable[[Mutant], bool]) -> Iterator[Mutant]:
        """Find those that are wanted: to see whether one is Python takes longer than all else."""
        for mutant in filter(wanted, self._in(ast.parse(self._source))):
            try:
                compile(mutant.applied(self._source), self._path, "exec")
            except SyntaxError:
                continue
            yield mutant

    def _in(self, node: ast.AST) -> Iterator[Mutant]:
        yield from self._of(node)
        for name, value in ast.iter_fields(node):
            if name in _DECLARED or (name == "keywords" and isinstance(node, ast.ClassDef)):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or _says_nothing(child):
                    continue
                # What a module or a class sets is a default, or a measure that was chosen.
                if isinstance(node, ast.If) and name == "test" and _is_negatable(child):
                    continue
                if not (
                    isinstance(node, ast.Module | ast.ClassDef)
                    and isinstance(child, ast.Assign | ast.AnnAssign)
                ):
                    yield from self._in(child)

    def _of(self, node: ast.AST) -> Iterator[Mutant]:
        return self._of_statement(node) if isinstance(node, ast.stmt) else self._of_expression(node)

    def _of_statement(self, node: ast.stmt) -> Iterator[Mutant]:
        match node:
            case ast.If(test=test) if not isinstance(test, ast.BoolOp):
                yield self._make(test, "never", "False")
                yield self._make(test, "always", "True")
            case ast.While(test=test) if not isinstance(test, ast.Constant):
                yield self._make(test, "never", "False")
            case (
                ast.Expr(value=ast.Call() | ast.Await())
                | ast.Assign(targets=[ast.Attribute() | ast.Subscript()])
                | ast.AugAssign()
                | ast.Delete()
                | ast.Break()
                | ast.Continue()
                | ast.Return(value=None)
            ):
                yield self._make(node, "left out", "pass")

    def _of_expression(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case (
                ast.Compare(left=left, ops=[operator], comparators=[right])
                | ast.BoolOp(op=operator, values=[left, right, *_])
                | ast.BinOp(left=left, op=operator, right=right)
            ) if type(operator) in _SWAPPED:
                yield from self._between(node, left, right, operator)
            case ast.Call(func=ast.Attribute(attr=name), args=[seconds]) if name in _TIME_LIMITS:
                yield self._make(seconds, "without limit", 'float("inf")')
            case ast.Call(func=ast.Name(id=name) as function, args=[_, _, *_]) if name in _BOUNDS:
                yield self._make(function, f"{name} to {_BOUNDS[name]}", _BOUNDS[name])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._make(node, "no not", ast.unparse(operand))
            case ast.IfExp(test=test) if not isinstance(test, ast.BoolOp):
                yield self._make(test, "never", "False")
                yield self._make(test, "always", "True")
            case ast.Constant(value=bool(word)):
                yield self._make(node, f"{word} to {not word}", str(not word))
            case ast.Constant(value=int(number)):
                yield self._make(node, f"{number} to {number + 1}", str(number + 1))
            case (
                ast.Attribute(attr=word, value=ast.Name(id="Reason" | "FateKind"))
                | ast.Name(id=word, ctx=ast.Load())
            ) if word in _NAMED:
                instead = ast.unparse(node).removesuffix(word) + _NAMED[word]
                yield self._make(node, f"{word} to {_NAMED[word]}", instead)

    def _between(self, node: ast.AST, left: ast.AST, right: ast.AST, operator: ast.AST) -> Iterator[Mutant]:
        """Swap the operator that stands between two operands."""
        was, instead = _SWAPPED[type(operator)]
        _, start = self._span(left)
        end, _ = self._span(right)
        between = self._source[start:end]
        padded = between.replace(b"\n", b" ")
        at = padded.find(b" %b " % was.encode())
        if at >= 0:
            yield self._mutant(
                node, f"{was} to {instead}", start + at + 1, start + at + 1 + len(was), instead
            )

    def _make(self, node: ast.AST, change: str, instead: str) -> Mutant:
        return self._mutant(node, change, *self._span(node), instead)

    def _mutant(self, place: ast.AST, change: str, start: int, end: int, instead: str) -> Mutant:
        line: int = place.lineno  # type: ignore[attr-defined]
        text = self._lines[line - 1].decode().strip()
        return Mutant(self._path, line, text, change, start, end, instead.encode())

    def _span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins and ends, in bytes."""
        start = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return start, end


def _is_negatable(node: ast.AST) -> bool:
    """Whether a test turned round would show nothing more than one that always, or never, holds."""
    return isinstance(node, ast.Compare) and type(node.ops[0]) in _NEGATED


def _says_nothing(node: ast.AST) -> bool:
    """Whether no test needs to notice a fault there: what is for people, and for type checkers."""
    match node:
        case (
            ast.arguments()
            | ast.FunctionDef(name="__repr__" | "__str__")
            | ast.Assert()
            | ast.Import()
            | ast.ImportFrom()
        ):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="_log" | "_logger")))):
            return True
    return False
