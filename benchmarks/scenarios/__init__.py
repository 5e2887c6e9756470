"""What is measured, in the order of the report."""

from benchmarks.scenarios.actors import Actors
from benchmarks.scenarios.in_process import InProcess
from benchmarks.scenarios.scenario import Scenario
from benchmarks.scenarios.session_bytes import SessionBytes
from benchmarks.scenarios.short_call import ShortCall

SCENARIOS: tuple[Scenario, ...] = (ShortCall(), InProcess(), SessionBytes(), Actors())
