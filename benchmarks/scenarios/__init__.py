"""What is measured, in the order of the report."""

from benchmarks.scenarios.actors import Actors
from benchmarks.scenarios.chatter import Chatter
from benchmarks.scenarios.drain import Drain
from benchmarks.scenarios.fan_out import GetFanOut, ListenFanOut
from benchmarks.scenarios.first_token import FirstToken
from benchmarks.scenarios.hosted import Hosted
from benchmarks.scenarios.in_process import InProcess
from benchmarks.scenarios.killed import KilledReplica, KilledWorker
from benchmarks.scenarios.latency import Latency
from benchmarks.scenarios.memory import IdleGets, IdleHttp2, IdleListens, IdleSessions, IdleWebSockets
from benchmarks.scenarios.mix import Mix
from benchmarks.scenarios.parts import PARTS
from benchmarks.scenarios.proxy import ThroughProxy
from benchmarks.scenarios.replicas import Replicas
from benchmarks.scenarios.resume import Resume
from benchmarks.scenarios.scenario import Scenario
from benchmarks.scenarios.session_bytes import SessionBytes
from benchmarks.scenarios.short_call import ShortCall
from benchmarks.scenarios.stalled import Stalled
from benchmarks.scenarios.storm import Storm
from benchmarks.scenarios.workers import Workers

SCENARIOS: tuple[Scenario, ...] = (
    ShortCall(),
    Mix(),
    *PARTS,
    ThroughProxy(),
    Hosted(),
    Chatter(),
    Latency(),
    ListenFanOut(),
    GetFanOut(),
    IdleSessions(),
    IdleListens(),
    IdleGets(),
    IdleHttp2(),
    IdleWebSockets(),
    Storm(),
    Stalled(),
    Resume(),
    Replicas(),
    Workers(),
    KilledWorker(),
    KilledReplica(),
    Drain(),
    InProcess(),
    SessionBytes(),
    FirstToken(),
    Actors(),
)

__all__ = ["SCENARIOS", "Scenario"]
