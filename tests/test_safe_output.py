"""All output of the command line goes through one module, and each logger of the package makes its records safe."""

import ast
from pathlib import Path

import mcpbus_actors
import pytest

import mcpbus
from mcpbus.protocol.log_records import LOGGERS

PACKAGE = Path(mcpbus.__file__).parent
ACTORS = Path(mcpbus_actors.__file__).parent
MODULES = sorted([*PACKAGE.rglob("*.py"), *ACTORS.rglob("*.py")])
PRINTERS = {"echo", "secho", "prompt", "confirm", "echo_via_pager", "style"}


def module_of(file):
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) if PACKAGE in file.parents else ""


def calls(file):
    return [each for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.Call)]


@pytest.mark.parametrize(
    "file",
    [each for each in (PACKAGE / "cli").glob("*.py") if each.name != "terminal.py"],
    ids=lambda f: f.stem,
)
def test_no_command_prints_by_itself(file):
    used = {
        ast.unparse(each)
        for each in ast.walk(ast.parse(file.read_text()))
        if isinstance(each, ast.Name | ast.Attribute)
    }
    assert used.isdisjoint(
        {"print", "sys.stdout.write", "sys.stderr.write", *(f"click.{name}" for name in PRINTERS)}
    )


def test_each_logger_makes_its_records_safe():
    found = set()
    for file in MODULES:
        for call in calls(file):
            if ast.unparse(call.func) != "logging.getLogger":
                continue
            [name] = call.args
            if isinstance(name, ast.Constant):
                found.add(name.value)
            elif ast.unparse(name) == "__name__":
                found.add(module_of(file))
    ours = {name for name in found if name.partition(".")[0] == "mcpbus"}
    assert ours == set(LOGGERS), "each logger of the package is named in mcpbus/protocol/log_records.py"
