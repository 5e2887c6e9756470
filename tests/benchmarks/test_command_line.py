"""What cannot be done is said before anything is measured, with what would be right."""

import pytest
from click.testing import CliRunner

from benchmarks import __main__ as program


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch):
    def run(*_):
        raise AssertionError

    monkeypatch.setattr(program, "Runner", run)
    monkeypatch.setattr(program, "_write", run)
    monkeypatch.setattr(program.machine, "raise_file_limit", lambda: None)


def refused(*words):
    result = CliRunner().invoke(program.main, [str(word) for word in words])
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr


@pytest.mark.parametrize(
    ("inside", "reason"), [((), "File exists"), (("report",), "Not a directory")], ids=["itself", "within"]
)
def test_a_report_is_not_written_to_a_file(tmp_path, inside, reason):
    file = tmp_path / "taken"
    file.write_text("mine")
    folder = file.joinpath(*inside)
    said = refused("actors", "--output", folder)
    assert f"'--output': {folder} cannot be a folder: {reason}. " in said
    assert said.endswith("name a folder that is there, or can be made.\n")
    assert file.read_text() == "mine"


@pytest.mark.parametrize("names", [("short-call", "stdio"), ("stdio",)])
def test_a_scenario_that_measures_none_of_the_servers_named_is_none(names):
    said = refused(*names, "--peer", "mcpbus-http2")
    assert (
        "Error: stdio: nothing is measured of mcpbus-http2, which cannot do what that needs; name another"
        in said
    )


def test_a_size_is_one_at_least():
    assert "0 is not in the range x>=1" in refused("short-call", "--size", "0")


@pytest.mark.parametrize("kind", ["nothing", "a file", "an empty folder"])
def test_a_report_is_made_of_a_run_alone(tmp_path, kind):
    place = tmp_path / "place"
    if kind == "a file":
        place.write_text("mine")
    elif kind == "an empty folder":
        place.mkdir()
    assert f"{place} has no bench.json. Name the folder that a run has written to." in refused(
        "report", place
    )
