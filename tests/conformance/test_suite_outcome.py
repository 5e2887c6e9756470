"""That the runner of the conformance suite is not fooled: what fails, what is only said, and what is left out."""

import json

import pytest

from tests.conformance import suite_outcome
from tests.conformance.suite_outcome import FINISHED, Scenario, read_scenarios, table


def check(status, identity="some-check", **rest):
    return {"id": identity, "status": status, "description": "It does.", **rest}


WIRE = check("SUCCESS", "wire-schema-valid")


@pytest.mark.parametrize(
    ("checks", "faults"),
    [
        ([check("SUCCESS"), WIRE], []),
        ([check("SUCCESS"), check("INFO"), check("SKIPPED"), WIRE], []),
        (
            [check("SUCCESS"), check("FAILURE", errorMessage="It did not.")],
            ["failure: some-check: It did not."],
        ),
        ([check("SUCCESS"), check("WARNING")], ["warning: some-check: It does."]),
        ([check("SUCCESS"), check("SOMETHING NEW")], ["something new: some-check: It does."]),
        ([check("INFO"), WIRE], ["nothing was judged: the suite gave up before its first check"]),
        ([], ["nothing was judged: the suite gave up before its first check"]),
    ],
)
def test_whatever_is_not_good_is_a_fault(checks, faults):
    assert Scenario("tools-list", checks).faults == faults


def test_one_scenario_may_judge_nothing():
    assert Scenario("tasks-status-notifications", [check("SKIPPED")]).faults == []
    assert Scenario("tasks-status-notifications", [check("FAILURE")]).faults != []


def test_what_is_left_out_must_fail(monkeypatch):
    monkeypatch.setattr(suite_outcome, "LEFT_OUT", {"auth/mind-*": "no minds are read"})
    assert Scenario("auth/mind-1", [check("FAILURE")]).faults == []
    assert Scenario("auth/mind-1", []).faults == []
    assert Scenario("auth/mind-1", [check("SUCCESS")]).faults == ["it is left out, and yet nothing is wrong"]
    assert Scenario("auth/body", [check("FAILURE")]).faults != []
    assert "- auth/mind-1  no minds are read" in table({"2026-07-28": [Scenario("auth/mind-1", [])]})


def test_a_scenario_is_read_from_its_folder(tmp_path):
    folder = tmp_path / "server-tools-call-2020-12-2026-11-21T09-54-33-479Z"
    folder.mkdir()
    # It is empty where the scenario raised.
    assert read_scenarios(tmp_path) == [Scenario("tools-call-2020-12", [])]
    (folder / "checks.json").write_text(json.dumps([WIRE]))
    assert read_scenarios(tmp_path) == [Scenario("tools-call-2020-12", [WIRE])]


def test_a_scenario_may_have_a_folder_in_a_folder(tmp_path):
    (tmp_path / "auth" / "basic-2026-11-21T09-54-33-479Z").mkdir(parents=True)
    assert read_scenarios(tmp_path) == [Scenario("auth/basic", [])]


@pytest.mark.parametrize(
    ("said", "cried", "faults"),
    [
        (f"so\n{FINISHED}\n", "a warning", []),
        ("so\n", "Traceback\nIt broke.\n", ["the client failed: It broke."]),
        ("", "", ["the client failed: it ended early, and said nothing"]),
    ],
)
def test_a_client_must_get_to_the_end(said, cried, faults, tmp_path):
    folder = tmp_path / "initialize-2026-11-21T09-54-33-479Z"
    folder.mkdir()
    (folder / "checks.json").write_text(json.dumps([check("SUCCESS"), WIRE]))
    (folder / "stdout.txt").write_text(said)
    (folder / "stderr.txt").write_text(cried)
    [scenario] = read_scenarios(tmp_path)
    assert scenario.faults == faults


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "else" / "something").mkdir(parents=True)
    with pytest.raises(ValueError, match="not named after a scenario"):
        read_scenarios(tmp_path)


def test_the_table_shows_each_scenario_and_its_faults():
    good = Scenario("ping", [check("SUCCESS"), check("SUCCESS")])
    bad = Scenario("tools-list", [check("SUCCESS"), check("FAILURE", errorMessage="It did not.")])
    assert [line.split() for line in table({"2026-07-28": [good, bad]}).splitlines() if line] == [
        ["2026-07-28", "passed", "failed", "warned", "skipped"],
        ["✓", "ping", "2", "-", "-", "-"],
        ["✗", "tools-list", "1", "1", "-", "-"],
        ["failure:", "some-check:", "It", "did", "not."],
    ]
