"""That the runner of the conformance suite is not fooled: what fails, what is only said, and what is left out."""

import json

import pytest

from tests.conformance.suite_outcome import Scenario, read_scenario, table


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


def test_a_scenario_is_read_from_its_folder(tmp_path):
    folder = tmp_path / "server-tools-call-2020-12-2026-11-21T09-54-33-479Z"
    folder.mkdir()
    # It is empty where the scenario raised.
    assert read_scenario(folder) == Scenario("tools-call-2020-12", [])
    (folder / "checks.json").write_text(json.dumps([WIRE]))
    assert read_scenario(folder) == Scenario("tools-call-2020-12", [WIRE])


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not named after a scenario"):
        read_scenario(tmp_path)


def test_the_table_shows_each_scenario_and_its_faults():
    good = Scenario("ping", [check("SUCCESS"), check("SUCCESS")])
    bad = Scenario("tools-list", [check("SUCCESS"), check("FAILURE", errorMessage="It did not.")])
    assert [line.split() for line in table({"2026-07-28": [good, bad]}).splitlines() if line] == [
        ["2026-07-28", "passed", "failed", "warned", "skipped"],
        ["✓", "ping", "2", "-", "-", "-"],
        ["✗", "tools-list", "1", "1", "-", "-"],
        ["failure:", "some-check:", "It", "did", "not."],
    ]
