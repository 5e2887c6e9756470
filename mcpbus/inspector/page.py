"""The page of the inspector: one file, with a policy that lets a browser run that alone and ask nobody else."""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path

import attrs


@attrs.frozen
class InspectorPage:
    """The page.

    Attributes:
        data: Its HTML.
        policy: The value of `Content-Security-Policy` for it.
    """

    data: bytes
    policy: bytes


@cache
def read_page() -> InspectorPage:
    """Read the page. Its script and its style are known by their digests, and no other ones run."""
    data = (Path(__file__).parent / "page.html").read_bytes()
    script, style = (_digest(data, tag) for tag in (b"script", b"style"))
    policy = (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    return InspectorPage(data, policy.encode())


def _digest(data: bytes, tag: bytes) -> str:
    [text] = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), data, re.DOTALL)
    return f"sha256-{b64encode(sha256(text).digest()).decode()}"
