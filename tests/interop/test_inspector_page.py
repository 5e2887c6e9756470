"""The page of the inspector in a browser: each view, by keyboard alone, narrow and wide, light and dark, and no text is markup."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from chromium import BINARY, Chromium

pytestmark = pytest.mark.skipif(BINARY is None, reason="there is no Chromium")

VIEWS = ["Now", "Calls", "Clients", "Tape", "Tools", "Upstreams", "Limits"]
MARKUP = "<img src=x onerror"
PICTURES = os.environ.get("MCPBUS_PICTURES")
"""A folder for pictures, for people to look at."""


@pytest.fixture(scope="module")
def inspector():
    command = [sys.executable, Path(__file__).with_name("busy_server.py"), "127.0.0.1:0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    address = None
    for line in server.stderr:
        if line.startswith("inspector at "):
            address = line.split("inspector at ")[1].strip()
        if line == "ready\n":
            break
    yield address
    server.kill()
    server.communicate()


@pytest.fixture
def browser(tmp_path):
    browser = Chromium(tmp_path)
    yield browser
    browser.close()


def faults(browser):
    """Return what the console has, and what came from elsewhere."""
    found = [event for event in browser.events if event[0] in {"Runtime.exceptionThrown", "Log.entryAdded"}]
    return found + [event for event in browser.events if event[0] == "Runtime.consoleAPICalled"]


def addresses(browser):
    urls = [
        params["request"]["url"] for method, params in browser.events if method == "Network.requestWillBeSent"
    ]
    return {urlsplit(url).netloc for url in urls if not url.startswith("data:")}


def open_page(browser, address, view="Now"):
    browser.call("Page.navigate", url=f"{address}&tab={view.lower()}")
    browser.wait("document.querySelector('main section') !== null && document.title === 'mcpbus inspector'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_each_view_shows_its_part(inspector, browser, width, scheme):
    browser.show(width, 1000, scheme)
    open_page(browser, inspector)
    assert "token" not in browser.evaluate("location.href")
    assert browser.evaluate("sessionStorage.getItem('token')") in inspector
    wanted = {
        "Now": "wait for a person",
        "Calls": "in poll_shelf",
        "Clients": MARKUP,
        "Tape": "caused by",
        "Tools": "reserve",
        "Upstreams": "proxies no other one",
        "Limits": "memory_bytes",
    }
    for view in VIEWS:
        browser.evaluate(f"document.getElementById('tab-{view.lower()}').click()")
        browser.wait(f"document.getElementById('main').innerText.includes({wanted[view]!r})")
        if view == "Calls":
            browser.evaluate("document.querySelector('[data-key^=\"request \"]').click()")
            browser.wait("document.querySelector('pre .own') !== null")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        if PICTURES:
            browser.shoot(f"{PICTURES}/{view.lower()}-{width}-{scheme}.png")
    back = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(255, 255, 255)") == (scheme == "light")
    assert faults(browser) == []
    assert addresses(browser) == {urlsplit(inspector).netloc}


def test_texts_of_clients_are_texts(inspector, browser):
    open_page(browser, inspector)
    for view in VIEWS:
        browser.evaluate(f"document.getElementById('tab-{view.lower()}').click()")
        browser.wait(f"document.getElementById('tab-{view.lower()}').ariaSelected === 'true'")
        assert browser.evaluate("document.querySelectorAll('img, main script, iframe').length") == 0
    browser.evaluate("document.getElementById('tab-clients').click()")
    browser.wait(f"document.getElementById('main').innerText.includes({MARKUP!r})")
    assert browser.evaluate("document.title") == "mcpbus inspector"
    refused = (
        "new Promise(done => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
    )
    browser.evaluate(f"{refused} document.body.append(s); setTimeout(() => done(1), 50); }})")
    assert browser.evaluate("window.ran") is None


def test_the_keyboard_reaches_everything(inspector, browser):
    open_page(browser, inspector)
    browser.press("Tab")
    focused = "document.activeElement.getAttribute('data-key')"
    assert browser.evaluate(focused) == "tab now"
    browser.press("ArrowRight")
    browser.wait(f"{focused} === 'tab calls'")
    browser.wait("document.querySelector('[data-key^=\"request \"]') !== null")
    for _ in range(2):
        browser.press("Tab")
    key = browser.evaluate(focused)
    assert key.startswith("request ")
    browser.press("Enter")
    browser.wait("document.activeElement.getAttribute('aria-expanded') === 'true'")
    browser.wait("document.querySelector('pre .own') !== null")
    made = browser.evaluate("document.getElementById('clock').innerText")
    browser.wait(f"document.getElementById('clock').innerText !== {made!r}")  # it was drawn again meanwhile
    assert browser.evaluate(focused) == key
    browser.evaluate("document.getElementById('tab-calls').focus()")
    browser.press("End")
    browser.wait(f"{focused} === 'tab limits'")
    browser.press("ArrowRight")
    browser.wait(f"{focused} === 'tab now'")
    assert faults(browser) == []


def test_the_tape_answers_why(inspector, browser):
    open_page(browser, inspector, "Tape")
    browser.wait("document.getElementById('main').innerText.includes('Calls with many messages')")
    browser.evaluate("document.querySelector('input[name=reason]').value = 'FILTERED'")
    browser.evaluate("document.querySelector('[data-key=ask]').click()")
    answer = browser.wait("document.querySelector('[role=status]')?.innerText")
    assert "discarded FILTERED" in answer
    assert "The tape reaches back to message" in answer


def test_without_the_token_it_says_so(inspector, browser):
    browser.call("Page.navigate", url=inspector.partition("#")[0])
    assert "token is missing" in browser.wait("document.querySelector('[role=alert]')?.innerText")
