"""All targets, by name."""

from tests.fuzz.fuzz_http2 import HTTP2
from tests.fuzz.fuzz_jsonrpc import JSONRPC
from tests.fuzz.fuzz_lane import LANE
from tests.fuzz.fuzz_proxy import PROXY
from tests.fuzz.fuzz_replicas import REPLICAS
from tests.fuzz.fuzz_target import Target
from tests.fuzz.fuzz_websocket import WEBSOCKET
from tests.fuzz.fuzz_world import WorldTarget

_TARGETS: tuple[Target, ...] = (LANE, JSONRPC, HTTP2, WEBSOCKET, WorldTarget(), REPLICAS, PROXY)
TARGETS = {target.name: target for target in _TARGETS}
