"""What is said of an engine for tests that does not start: no test waits for it."""

import pytest

from tests import engines


@pytest.mark.parametrize(
    ("script", "seconds", "told"),
    [
        ("echo out of memory; exit 3", 60, "its status is 3, and it said:\nout of memory"),
        ("exec sleep 1000", 0.1, "was not ready within 0.1 s, or has ended; its status is -9"),
    ],
)
def test_an_engine_that_is_not_ready_is_told_with_what_it_said(script, seconds, told, tmp_path, monkeypatch):
    binary = tmp_path / "engine"
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)
    monkeypatch.setitem(engines.BINARIES, "valkey", binary)
    monkeypatch.setattr(engines, "START_SECONDS", seconds)
    with pytest.raises(RuntimeError, match=told), engines.engine():
        pass
