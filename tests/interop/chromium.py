"""A headless Chromium, driven through its DevTools protocol over a pair of pipes."""

import json
import os
import shutil
import subprocess
import time
from base64 import b64decode
from pathlib import Path

BINARY = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
_OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
]
_KEYS = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
_SECONDS = 30


class Chromium:
    """One page of one browser.

    Attributes:
        events: What the browser has told, as (method, params).
    """

    def __init__(self, profile):
        to_browser, write = os.pipe()
        read, from_browser = os.pipe()
        command = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        options = [*_OPTIONS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, "-", BINARY, *options],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._write, self._read = write, os.fdopen(read, "rb")
        self._rest, self._id, self._session = b"", 0, None
        self.events = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        self._read.close()

    def call(self, method, **params):
        """Call a method of the protocol and return its result."""
        self._id += 1
        message = {"id": self._id, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            told = self._receive()
            if told.get("id") == self._id:
                assert "error" not in told, told
                return told["result"]
            if "method" in told:
                self.events.append((told["method"], told["params"]))

    def _receive(self):
        while b"\0" not in self._rest:
            more = self._read.read1()
            assert more, "the browser has ended"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def evaluate(self, expression):
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression):
        """Wait until an expression in the page is true, and return its value."""
        until = time.monotonic() + _SECONDS
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < until, (
                f"{expression} has not come true: {self.evaluate('document.body.innerText')}"
            )
            time.sleep(0.05)
        return value

    def press(self, key):
        """Press a key."""
        text = "\r" if key == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            code = _KEYS[key]
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text
            )

    def show(self, width, height, scheme):
        """Set the size of the page in pixels, and light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def shoot(self, file):
        """Write a picture of the page."""
        Path(file).write_bytes(b64decode(self.call("Page.captureScreenshot")["data"]))
