"""What differs between the revisions, checked against a table written from the checklist and the published schemas."""

import pytest

from mcpbus.protocol.errors import ProtocolError
from mcpbus.protocol.revisions import (
    ASSUMED,
    LATEST,
    LATEST_LEGACY,
    MODERN_VERSIONS,
    REVISIONS,
    Era,
    InvalidArguments,
    Structured,
    modern,
    negotiate,
)

A, B, C, D, E = "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"

# What the specification reserves and has not given a meaning, -32042 among it.
UNDEFINED = dict.fromkeys(set(range(-32099, -32019)) - {-32020, -32021, -32022}, -32603)

FLAGS = {
    # field: rule, the revisions that have it
    "progress_message": ("P-3", {B, C, D, E}),
    "completions_capability": ("Q-1", {B, C, D, E}),
    "batches": ("J-23", {B}),
    "audio": ("F-16", {B, C, D, E}),
    "annotations": ("F-17", {B, C, D, E}),
    "resource_link": ("F-16", {C, D, E}),
    "titles": ("B-8", {C, D, E}),
    "last_modified": ("R-8", {C, D, E}),
    "item_meta": ("schema", {C, D, E}),
    "output_schema": ("F-6", {C, D, E}),
    "icons": ("B-9", {D, E}),
    "implementation_details": ("B-10", {D, E}),
    "priming": ("W-12", {D}),
    "titled_choices": ("E-6", {D, E}),
    "lists_in_forms": ("E-6", {D, E}),
    "defaults_in_forms": ("E-5", {D, E}),
    "elicitation_ids": ("E-10", {D}),
    "sampling_features": ("Y-2", {D, E}),
    "result_type": ("J-30", {E}),
    "server_identity": ("M-7", {E}),
    "caching": ("K-1", {E}),
}
VALUES = {
    # field: rule, the value in A, B, C, D, E
    "structured_content": (
        "F-7",
        [Structured.NEVER, Structured.NEVER, Structured.OBJECT, Structured.OBJECT, Structured.ANY],
    ),
    "invalid_arguments": ("F-13", [InvalidArguments.ERROR] * 3 + [InvalidArguments.RESULT] * 2),
    "resource_not_found": ("R-3", [-32002, -32002, -32002, -32002, -32602]),
    "elicitation_modes": ("E-1", [set(), set(), {"form"}, {"form", "url"}, {"form", "url"}]),
    "era": ("D-1", [Era.LEGACY] * 4 + [Era.MODERN]),
    "replaced_codes": ("J-19", [{-32042: -32603}] * 3 + [{}] + [{**UNDEFINED, -32002: -32602}]),
}


def test_there_are_five_oldest_first():
    assert list(REVISIONS) == [A, B, C, D, E]
    assert all(row.name == name for name, row in REVISIONS.items())


@pytest.mark.parametrize("field", FLAGS)
def test_a_flag_holds_for_just_the_revisions_that_have_it(field):
    rule, names = FLAGS[field]
    assert {name for name, row in REVISIONS.items() if getattr(row, field)} == names, rule


@pytest.mark.parametrize("field", VALUES)
def test_a_value_is_that_of_each_revision(field):
    rule, values = VALUES[field]
    assert [getattr(row, field) for row in REVISIONS.values()] == values, rule


def test_no_difference_goes_unchecked():
    assert {*type(LATEST).__struct_fields__} == {*FLAGS, *VALUES, "name", "error_statuses"}


@pytest.mark.parametrize(
    ("requested", "settled"),
    [(A, A), (B, B), (C, C), (D, D), (E, D), ("2099-01-01", D), ("", D), ("banana", D)],
)
def test_a_handshake_settles_on_a_legacy_revision(requested, settled):  # L-2, L-3
    assert negotiate(requested).name == settled


@pytest.mark.parametrize(("version", "found"), [(E, LATEST), (D, None), ("v9", None)])
def test_only_a_modern_revision_may_be_claimed(version, found):  # D-6
    assert modern(version) is found


def test_which_revision_is_assumed_which_is_the_newest_and_which_are_modern():
    assert (ASSUMED.name, LATEST_LEGACY.name, LATEST.name, MODERN_VERSIONS) == (B, D, E, (E,))


@pytest.mark.parametrize(
    ("revision", "code", "leaves"),
    [
        (A, -32002, -32002),
        (D, -32042, -32042),
        (C, -32042, -32603),
        (E, -32002, -32602),
        (E, -32042, -32603),
        (E, -32023, -32603),
        (E, -32099, -32603),
        (E, -32020, -32020),
        (E, -32022, -32022),
        (E, -32100, -32100),
        (D, -32050, -32050),
        (E, -5, -5),
    ],
)
def test_a_code_that_must_not_leave_is_replaced(revision, code, leaves):  # J-14, J-17, J-19
    error = REVISIONS[revision].admissible(ProtocolError(code, "gone", {"uri": "a://b"}))
    assert (error.code, error.message, error.data) == (leaves, "gone", {"uri": "a://b"})
