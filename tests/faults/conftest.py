"""The helpers of the other folders: these tests go in by every way that there is."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("serving", "transport")]
