"""Connections in memory are made as for the tests of serving."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "serving"))
