"""Helpers of the transports' tests, and of serving, are used here, too."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent.parent / folder) for folder in ("transport", "serving")]
