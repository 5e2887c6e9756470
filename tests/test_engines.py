"""What is said of an engine for tests that does not start: no test waits for it."""

import pytest

from tests import engines


@pytest.mark.parametrize(
    ("script", "status"), [("echo out of memory; exit 3", 3), ("echo out of memory; exec sleep 1000", -9)]
)
def test_an_engine_that_is_not_ready_is_told_with_what_it_said(script, status, tmp_path, monkeypatch):
    binary = tmp_path / "engine"
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)
    monkeypatch.setitem(engines.BINARIES, "valkey", binary)
    monkeypatch.setattr(engines, "START_SECONDS", 0.5)
    with (
        pytest.raises(RuntimeError, match=f"its status is {status}, and it said:\nout of memory"),
        engines.engine(),
    ):
        pass
