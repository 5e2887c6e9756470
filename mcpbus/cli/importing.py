"""The import of an author's program from a file or by the name of a module, each module once.

A server in a file of a package is a module of that package: another module that imports it means the same one. Without
this rule the file runs twice, and what the other module registers is registered with a server that is not served.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final


def load_file(file: Path) -> ModuleType:
    """Import a file: as a module of its package if it is in one, else by its own name.

    Raises:
        LookupError: There is no such file, or it is no Python file. All that the module itself raises is raised.
    """
    if not file.is_file():
        raise LookupError(f"there is no file {str(file)!r}")
    path = file.resolve()
    _search(path.parent)
    name = _name_in_package(path)
    if name is not None:
        _SAME_FILES.add(path, lambda: sys.modules.get(name))
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise LookupError(f"{str(file)!r} is no Python file")
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    _SAME_FILES.add(path, lambda: module)
    spec.loader.exec_module(module)
    return module


def load_module(name: str) -> ModuleType:
    """Import a module, which is searched in the current directory first.

    Raises:
        LookupError: There is none of that name. All that the module itself raises is raised.
    """
    _search(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there, and lacks another one
        raise LookupError(
            f"there is no module {error.name!r}, neither in {Path.cwd()} nor installed"
        ) from error


def _search(folder: Path, place: int = 0) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(place, str(folder))


def _name_in_package(path: Path) -> str | None:
    """Return the full name of a file's module, which can be imported from now on; None if it is in no package."""
    parts = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    package = folder / parts[0] / "__init__.py"
    if not package.is_file() or not all(part.isidentifier() for part in parts):
        return None
    _search(folder, place=1)  # the folder of the file has been first, and still is
    found = importlib.util.find_spec(parts[0])
    return ".".join(parts) if found is not None and _is_of(found, package) else None


def _is_of(spec: ModuleSpec, path: Path) -> bool:
    return spec.origin is not None and Path(spec.origin).resolve() == path


class _SameFiles(MetaPathFinder, Loader):
    """Finds the module of a file that was loaded, by whatever other name it is imported."""

    def __init__(self) -> None:
        self._modules: dict[Path, Callable[[], ModuleType | None]] = {}

    def add(self, path: Path, module: Callable[[], ModuleType | None]) -> None:
        """Note a file, and what returns its module."""
        self._modules[path] = module
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec of the module that is there, if this is another name of it."""
        last = fullname.rpartition(".")[2]
        for file, loaded in self._modules.items():
            module = loaded() if file.stem == last else None
            if module is None or module.__name__ == fullname:
                continue
            found = (
                finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self
            )
            spec = next((spec for spec in found if spec is not None), None)
            if spec is not None and _is_of(spec, file):
                return ModuleSpec(fullname, self, loader_state=(module, module.__spec__))
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that is there."""
        module: ModuleType = spec.loader_state[0]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is: the import machinery has put the other spec into it."""
        spec = module.__spec__
        if spec is not None and spec.loader is self:
            module.__spec__ = spec.loader_state[1]


_SAME_FILES: Final = _SameFiles()
