"""How a page is shown to the person in front of this machine."""

import os
import subprocess
import sys
from typing import Final

import trio

from mcpbus.client.oauth.errors import LoginNeededError

# In a process of its own: browsers write to standard output, which may be the protocol's. It takes no module from where it is started.
_OPEN: Final = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


async def can_open(url: str) -> bool:
    """Open a page in the browser, without a shell; tell whether there is one."""
    ended = await trio.run_process(
        [sys.executable, "-I", "-c", _OPEN, url],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        # Without which there are no browsers for terminals: they would wait for a person who does not see them.
        env={name: value for name, value in os.environ.items() if name != "TERM"},
    )
    return ended.returncode == 0


async def open_browser(url: str) -> None:
    """Open a page in the browser.

    Raises:
        LoginNeededError: There is none.
    """
    if not await can_open(url):
        raise LoginNeededError(
            "no browser can be opened here: `mcpbus login URL` logs in from a terminal, or open_page= shows the page to somebody"
        )
