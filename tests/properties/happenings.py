"""What may happen: programs of steps, drawn from a seed, and cut down to what is needed when one of them fails."""

import random
from collections.abc import Callable
from typing import Any

import attrs

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LISTS = ("tools", "prompts", "resources")
URIS = ("res://a", "res://a/b", "res://c")
KINDS = ("http", "http", "modern", "stateless", "line", "sse", "socket", "memory")
CHANNELS = ("line", "sse", "socket", "memory")
REVISIONS = (*LEGACY, "2025-11-25", "")
"""That of a session; a channel that is given none has none, and brings modern requests alone."""
MODES = ("auto", "auto", "auto", "sse", "json")
STORES = ("none", "memory", "memory", "small", "slow", "failing")
TOOLS = ("act",) * 5 + ("again", "brief", "work", "late")
LENGTH = 60
"""Steps in a program."""

Draw = Callable[[random.Random], Any]


def one_of(*values: Any) -> Draw:
    return lambda rng: rng.choice(values)


def some_of(*values: Any) -> Draw:
    return lambda rng: {value for value in values if rng.random() < 0.4} or {values[0]}


PICK: Draw = lambda rng: rng.randrange(1000)  # noqa: E731 - a draw like the others
_TIMEOUT = one_of(None, None, 5, 200)

_VERBS: dict[str, tuple[int, Draw]] = {
    "log": (5, one_of("debug", "info", "error")),
    "note": (5, one_of(1, 1, 1, 3, 8)),
    "progress": (5, lambda rng: rng.randrange(10)),
    "sleep": (6, one_of(0, 1, 10, 40, 200)),
    "elicit": (3, _TIMEOUT),
    "sample": (2, _TIMEOUT),
    "both": (1, _TIMEOUT),
    "change": (1, one_of(*LISTS)),
    "update": (1, one_of(*URIS)),
    "stubborn": (1, one_of(1, 20)),
    "leak": (1, one_of(0, 1, 30)),
    "poll": (1, one_of(0.5, 2.0)),
    "begin": (1, one_of(None)),
    "show": (1, one_of("busy", "busier")),
    "fail": (1, one_of("error", "exit", "own", "generator's")),
}


def script(rng: random.Random) -> list[Any]:
    """What a handler does."""
    verbs = rng.choices([*_VERBS], [weight for weight, _ in _VERBS.values()], k=rng.randrange(8))
    return [(verb, _VERBS[verb][1](rng)) for verb in verbs]


def scripts(rng: random.Random) -> list[Any]:
    return [script(rng) for _ in range(rng.randint(1, 3))]


# What may happen: how often, out of all, and with what.
STEPS: dict[str, tuple[int, tuple[Draw, ...]]] = {
    "connect": (4, (one_of(*KINDS), one_of(*REVISIONS), one_of(*MODES), one_of(True, True, True, False))),
    "call": (20, (PICK, script, one_of(*TOOLS), one_of(True, False), one_of(None, "debug", "warning"), PICK)),
    "batch": (2, (PICK, scripts)),
    "quick": (2, (PICK, one_of("tools/list", "resources/read", "prompts/get", "no/such"))),
    "level": (1, (PICK, one_of("debug", "error"))),
    "cancel": (5, (PICK,)),
    "drop": (5, (PICK,)),
    "stall": (5, (PICK,)),
    "resume": (6, (PICK,)),
    "get": (5, (PICK,)),
    "back": (8, (PICK, PICK)),
    "answer": (12, (PICK, one_of("right", "right", "right", "wrong", "error", "stolen", "twice"))),
    "retry": (9, (PICK, one_of("right", "right", "right", "none", "forged", "stranger", "other", "used"))),
    "listen": (5, (PICK, some_of(*LISTS), some_of(*URIS), PICK)),
    "subscribe": (3, (PICK, one_of(*URIS), one_of("subscribe", "subscribe", "unsubscribe"))),
    "change": (4, (one_of(*LISTS),)),
    "update": (3, (one_of(*URIS),)),
    "tool": (1, (PICK,)),
    "say": (4, (PICK, one_of("log", "note"))),
    "ask": (4, (PICK, one_of("elicit", "elicit", "sample", "both"), one_of(None, 1, 5, 20))),
    "task": (5, (PICK, one_of("get", "get", "update", "cancel"), one_of(True, True, False))),
    "trespass": (2, (PICK, one_of("get", "back", "post", "delete"))),
    "leave": (1, (PICK,)),
    "cut": (1, (PICK,)),
    "close": (1, (PICK,)),
    "sleep": (9, (one_of(0, 0, 0.5, 0.5, 1, 1, 5, 16, 31, 70, 310),)),
}


def beginning(rng: random.Random) -> list[tuple[str, tuple[Any, ...]]]:
    """The clients that are there from the first: some of each kind, but not of every one in every program."""
    kinds = ["http", "http", "modern", *rng.choices(CHANNELS, k=3)]
    return [("connect", (kind, rng.choice(REVISIONS), rng.choice(MODES), True)) for kind in kinds]


@attrs.frozen
class Program:
    """What happens in one world.

    Attributes:
        seed: What it was drawn from, and what decides the order in which tasks run.
        store: What keeps the events of streams.
        drains: Whether the bus is drained while everybody is still there.
        steps: The steps: a verb and its arguments.
    """

    seed: int
    store: str
    drains: bool
    steps: tuple[tuple[str, tuple[Any, ...]], ...]

    @classmethod
    def drawn(cls, seed: int) -> "Program":
        rng = random.Random(seed)
        verbs = rng.choices([*STEPS], [weight for weight, _ in STEPS.values()], k=LENGTH)
        steps = [(verb, tuple(draw(rng) for draw in STEPS[verb][1])) for verb in verbs]
        return cls(seed, rng.choice(STORES), rng.random() < 0.3, (*beginning(rng), *steps))

    def dice(self) -> random.Random:
        """Dice of its own, for what is to be drawn besides."""
        return random.Random(f"{self.seed} besides")

    def shrunk(self, fails: Callable[["Program"], bool], tries: int = 150) -> "Program":
        """Leave out what it fails without, larger parts first."""
        smallest, size = self, max(1, len(self.steps) // 2)
        while size:
            start = 0
            while start < len(smallest.steps) and tries:
                rest = smallest.steps[:start] + smallest.steps[start + size :]
                tries -= 1
                if fails(attrs.evolve(smallest, steps=rest)):
                    smallest = attrs.evolve(smallest, steps=rest)
                else:
                    start += size
            size //= 2
        return smallest

    def __str__(self) -> str:
        steps = "".join(f"\n  {verb}{arguments}" for verb, arguments in self.steps)
        return f"seed {self.seed}, {self.store} store, {'drained' if self.drains else 'not drained'}:{steps}"
