"""Record the schema that mcpbus lists for each row of the table of annotations.

Run it from the root of the repository after an intended change, and read the diff of ``tests/types/listed.json``::

    .venv/bin/python tests/types/record_listed.py
"""

import json
import os
from pathlib import Path

import pydantic
from all_rows import SERVED
from served import served

HERE = Path(__file__).parent


def main() -> None:
    """Write the record, with one row in each line."""
    os.chdir(HERE.parent.parent)
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(served(name).schema)}" for name in SERVED)
    (HERE / "listed.json").write_text(f'{{\n"pydantic": "{pydantic.VERSION}",\n"rows": {{\n{rows}\n}}\n}}\n')


if __name__ == "__main__":
    main()
