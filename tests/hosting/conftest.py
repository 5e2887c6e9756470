"""The fixtures of tests of hosted servers."""

from tests.hosting.fixtures import loop, revision, short_grace

__all__ = ["loop", "revision", "short_grace"]
