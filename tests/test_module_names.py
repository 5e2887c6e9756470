"""Tests import what stands beside them by its plain name: two modules of one name would be taken for each other."""

from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = {
    "api_documents",
    "attacks",
    "conformance",
    "exchanges",
    "fuzz",
    "gateways",
    "mutation",
    "soak",
    "typescript",
}
"""Whose modules are imported by their whole names, or are not among what `make test` runs."""


def test_every_module_of_the_tests_has_a_name_of_its_own():
    paths = [path for path in HERE.rglob("*.py") if path.relative_to(HERE).parts[0] not in PACKAGES]
    names = Counter(path.name for path in paths)
    assert [name for name, count in names.items() if count > 1 and name != "conftest.py"] == []
