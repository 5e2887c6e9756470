"""All targets, by name."""

from tests.fuzz.fuzz_http2 import HTTP2
from tests.fuzz.fuzz_jsonrpc import JSONRPC
from tests.fuzz.fuzz_lane import LANE
from tests.fuzz.fuzz_target import Target
from tests.fuzz.fuzz_websocket import WEBSOCKET

TARGETS: dict[str, Target] = {target.name: target for target in (LANE, JSONRPC, HTTP2, WEBSOCKET)}
