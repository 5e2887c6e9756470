"""The browser of this machine, as a program that the test writes."""

import sys

import pytest

from mcpbus.client import LoginNeededError
from mcpbus.client.oauth.authorization_code import can_open, open_browser

PAGE = "https://id.example/authorize?a=b&c=d"


@pytest.fixture
def browser(tmp_path, monkeypatch):
    """Where a browser writes which page it was told to open."""
    opened, program = tmp_path / "opened", tmp_path / "browser.py"
    program.write_text(f"import sys; open({str(opened)!r}, 'a').write(sys.argv[1])")
    monkeypatch.setenv("BROWSER", f"{sys.executable} {program} %s")
    return opened


async def test_a_page_is_opened_in_the_browser(browser):
    await open_browser(PAGE)
    assert browser.read_text() == PAGE


async def test_where_there_is_no_browser_it_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("BROWSER", f"{tmp_path}/none %s")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("DISPLAY", raising=False)
    with pytest.raises(LoginNeededError, match="`mcpbus login URL`"):
        await open_browser(PAGE)


@pytest.mark.parametrize("module", ["webbrowser", "shlex"])
async def test_nothing_is_run_that_lies_in_the_working_directory(module, browser, tmp_path, monkeypatch):
    folder = tmp_path / "downloaded"
    folder.mkdir()
    (folder / f"{module}.py").write_text("open('was-run', 'w')")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    assert await can_open(PAGE)
    assert not (folder / "was-run").exists()
