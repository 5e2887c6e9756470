"""Every example in the documents and the docstrings runs, and every command in them is there."""

import ast
import importlib.util
import re
import shlex
import tomllib
from urllib.parse import urlsplit

import pytest
from doc_blocks import DOCUMENTS, ROOT, Reader, fenced, in_docstrings

README, SERVER, TESTING = (ROOT / name for name in ("README.md", "docs/server.md", "docs/testing.md"))


def read(document):
    """Read a document; the README and the page on servers are where `weather.py` comes from, and the others go on with it."""
    if document in (README, SERVER):
        reader = Reader("weather")
    else:
        weather = Reader("weather")
        weather.run(fenced(SERVER, "python")[0])
        reader = Reader("page")
    for block in fenced(document, "python"):
        reader.run(block)
    return reader


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_python_blocks_run_one_after_the_other(document):
    read(document)


def test_what_is_shown_of_other_libraries_that_are_not_installed_is_python():
    (block,) = fenced(ROOT / "docs/migration.md", "py")
    assert block.compile()


def test_the_tests_in_a_block_are_run():
    namespace = vars(read(TESTING).module)
    assert {name for name in namespace if name.startswith("test_")} == {
        "test_forecast",
        "test_progress_comes_on_the_answer",
        "test_what_fails_and_what_is_said_meanwhile",
        "test_an_order",
        "test_a_change_is_told",
        "test_count",
    }


@pytest.mark.parametrize("block", list(in_docstrings()), ids=lambda block: f"{block.file.stem}:{block.line}")
def test_the_examples_in_docstrings_run(block):
    """What defines something is run after the page on servers, whose server it may use; the rest is an excerpt."""
    code = block.compile(ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if re.match(r"@|async def|def |class |import |from |server = ", block.text):
        assert code
        reader = read(SERVER)
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
        # Quoted, since to some shells it is a pattern of file names.
        case ["pip", "install", ("'.[auth]'" | "'.[openapi]'" | "'.[otel]'") as extra]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            assert extra.strip("'.[]") in project["optional-dependencies"]
        case ["mcpbus", name, _, *_]:
            from mcpbus.cli import main

            # Behind the dashes come the options of another program.
            options = shlex.split(command.partition(" -- ")[0])[3:]
            known = {option for parameter in main.get_command(None, name).params for option in parameter.opts}
            assert {option for option in options if option.startswith("--")} <= known
        case ["curl", "-H", *_, target]:
            from mcpbus.inspector.answers import PATHS

            assert urlsplit(target).path in PATHS
        case ["hypercorn", "-k", "trio", target]:
            module, _, name = target.partition(":")
            assert module == "weather"
            assert callable(vars(read(ROOT / "docs/serving.md").module)[name])
        case ["uvicorn", target, "--timeout-graceful-shutdown", "5"]:
            assert callable(vars(read(ROOT / "docs/embedding.md").module)[target.removeprefix("weather:")])
        case _:
            pytest.fail(f"nobody has checked what {command!r} is")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_folder_and_heading_that_a_document_names_is_there(document):
    text = document.read_text()
    for path in re.findall(r"`((?:\.ci|mcpbus|benchmarks|docs)/[\w./]*)`", text):
        assert (ROOT / path).exists(), path
    for path, heading in re.findall(r"\]\((?!https?:)([\w./-]*)(?:#([\w-]+))?\)", text):
        named = document.parent / path if path else document
        assert named.exists(), path
        if heading:
            headings = re.findall(r"^#+ (.*)$", named.read_text(), re.MULTILINE)
            assert heading in {re.sub(r"[^\w-]", "", each.lower().replace(" ", "-")) for each in headings}, (
                heading
            )


def test_the_readme_is_read_in_minutes_and_leads_everywhere():
    text = README.read_text()
    assert len(text.split()) <= 1_200
    for document in ROOT.glob("docs/*.md"):
        assert f"(docs/{document.name})" in text, document.name


def test_the_site_has_every_page():
    listed = re.findall(r"^ .*: ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in ROOT.glob("docs/*.md"))
