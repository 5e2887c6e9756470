"""Every example in the documents and the docstrings runs, and every command in them is there."""

import ast
import importlib.util
import re

import pytest
from doc_blocks import DOCUMENTS, ROOT, Reader, fenced, in_docstrings


def read(document):
    reader = Reader("weather")
    for block in fenced(document, "python"):
        reader.run(block)
    return reader


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_python_blocks_run_one_after_the_other(document):
    read(document)


def test_the_tests_in_a_block_are_run():
    namespace = vars(read(DOCUMENTS[0]).module)
    assert {name for name in namespace if name.startswith("test_")} == {
        "test_forecast",
        "test_progress_comes_on_the_answer",
    }


@pytest.mark.parametrize("block", list(in_docstrings()), ids=lambda block: f"{block.file.stem}:{block.line}")
def test_the_examples_in_docstrings_run(block):
    """What defines something is run after the README, whose server it may use; the rest is an excerpt."""
    code = block.compile(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if re.match(r"@|async def|def |class |import |from |server = ", block.text):
        assert code
        reader = read(DOCUMENTS[0])
        exec("from mcpbus import *\nfrom mcpbus.testing import *", vars(reader.module))
        reader.run(block)


COMMANDS = [
    pytest.param(line, id=line)
    for document in DOCUMENTS
    for block in fenced(document, "sh")
    for line in block.text.splitlines()
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_there(command):
    match command.split():
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        case ["python", "-m", module]:
            assert importlib.util.find_spec(module)
        case ["pip", "install", "."]:
            assert (ROOT / "pyproject.toml").exists()
        case ["mcpbus", name, _, *options]:
            from mcpbus.cli import main

            known = {option for parameter in main.commands[name].params for option in parameter.opts}
            assert {option for option in options if option.startswith("--")} <= known
        case ["hypercorn", "-k", "trio", target]:
            module, _, name = target.partition(":")
            assert module == "weather"
            assert callable(vars(read(DOCUMENTS[0]).module)[name])
        case _:
            pytest.fail(f"nobody has checked what {command!r} is")


def test_every_file_and_folder_named_in_the_readme_is_there():
    named = re.findall(
        r"`((?:\.ci|mcpbus|benchmarks|docs)/[\w./]*)`|\]\(([\w/.]+)\)", DOCUMENTS[0].read_text()
    )
    for path in [first or second for first, second in named]:
        assert (ROOT / path).exists(), path
