"""All targets, by name."""

from tests.fuzz.fuzz_jsonrpc import JSONRPC
from tests.fuzz.fuzz_lane import LANE
from tests.fuzz.fuzz_target import Target

TARGETS: dict[str, Target] = {target.name: target for target in (LANE, JSONRPC)}
