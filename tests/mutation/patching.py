"""Puts the code of a mutant in the place of what runs, without importing anything anew."""

import ast
import gc
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

from tests.mutation.mutants import Mutant


class CannotPatchError(Exception):
    """The fault is in no function, or the function could not be made with it."""


class LiveFunctions:
    """All functions of some files that there are, by where they were written.

    Args:
        root: The folder that mutants' paths begin at. What is in it was imported before.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        gc.unfreeze()  # what was there when tests were collected
        for thing in gc.get_objects():
            if type(thing) is FunctionType and thing.__code__.co_filename.startswith(f"{root}/"):
                self._functions.setdefault(_key(thing.__code__), []).append(thing)

    def patch(self, mutant: Mutant) -> None:
        """Have the mutant run from now on.

        Raises:
            CannotPatchError: See there.
        """
        path = self._root / mutant.path
        source = path.read_bytes()
        number = _enclosing(ast.parse(source), mutant.line)
        sound = [*_outermost(compile(source, str(path), "exec"))]
        broken = [*_outermost(compile(mutant.applied(source), str(path), "exec"))]
        if number is None or len(sound) != len(broken):
            raise CannotPatchError
        patched = 0
        for old, new in _pairs(sound[number], broken[number]):
            for function in self._functions.get(_key(old), ()):
                try:
                    function.__code__ = new
                except ValueError as error:  # it holds other variables of what is around it
                    raise CannotPatchError from error
                patched += 1
        if not patched:
            raise CannotPatchError


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _enclosing(module: ast.Module, line: int) -> int | None:
    """The number, in the order of the file, of the outermost function that has the line in its body."""
    for number, function in enumerate(_functions(module)):
        if function.body[0].lineno <= line <= (function.end_lineno or line):
            return number
    return None


def _functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _functions(child)


def _outermost(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module that stand in no other one, as `_functions` numbers them."""
    for inner in _inner(code):
        if inner.co_name.startswith("<"):
            continue
        if inner.co_flags & 2:  # CO_NEWLOCALS: a function; a class has none
            yield inner
        else:
            yield from _outermost(inner)


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """A function and all in it, before and after. What the fault has taken away has no pair."""
    yield old, new
    after = {inner.co_qualname: inner for inner in _inner(new)}
    for inner in _inner(old):
        if inner.co_qualname in after:
            yield from _pairs(inner, after[inner.co_qualname])
