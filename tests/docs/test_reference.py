"""The reference has everything that is public."""

import importlib
import re

import pytest
from doc_blocks import ROOT

TEXT = (ROOT / "docs/reference.md").read_text()
PACKAGES = [
    "asking",
    "asyncio",
    "auth",
    "client",
    "cluster",
    "middleware",
    "serving",
    "stores",
    "tasks",
    "testing",
    "watch",
]


@pytest.mark.parametrize("package", ["mcpbus", *(f"mcpbus.{name}" for name in PACKAGES)])
def test_each_public_name_of_a_package_is_there(package):
    told = {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)$", TEXT, re.MULTILINE)}
    constants = set(re.findall(r"`([A-Z]+)`", TEXT))
    assert set(importlib.import_module(package).__all__) - {"__version__"} <= told | constants


@pytest.mark.parametrize("name", re.findall(r"^::: ([\w.]+)$", TEXT, re.MULTILINE))
def test_each_name_that_is_there_can_be_imported(name):
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)
