"""The whole table of annotations, and the JSON values that are tried with each of them."""

from typing import Any

import rows_of_checks
import rows_of_choices
import rows_of_containers
import rows_of_generics
import rows_of_models
import rows_of_unions
import rows_of_values
from type_rows import Row

PARTS = {
    "values": rows_of_values.ROWS,
    "containers": rows_of_containers.ROWS,
    "choices": rows_of_choices.ROWS,
    "models": rows_of_models.ROWS,
    "generics": rows_of_generics.ROWS,
    "unions": rows_of_unions.ROWS,
    "checks": rows_of_checks.ROWS,
}
ROWS: dict[str, Row] = {f"{part}: {row.name}": row for part, rows in PARTS.items() for row in rows}
assert len(ROWS) == sum(map(len, PARTS.values())), "two rows of one part have the same name"
SERVED = [name for name, row in ROWS.items() if not row.refused]
"""The names of the rows that mcpbus serves."""

PROBES: list[Any] = [
    None, True, False, 0, 1, 5, -1, 1.0, 1.5, "", "a", "5", "1.5", "true", "yes", "null", "[]", "[1]", '["a"]', "{}", '{"a": 1}',
    '"a"', "2026-01-01", "2026-01-01T10:00:00Z", [], [1], ["a"], ["5"], [None], [1, 1], {}, {"a": 1}, {"1": "5"}, {"a": None},
]  # fmt: skip
"""Values that are tried with every annotation, beside those of its row."""


def arguments_of(row: Row) -> list[dict[str, Any]]:
    """Return all arguments that are tried with a row."""
    return [{"v": value} for value in [*row.valid, *row.invalid, *PROBES]] + [{}]
