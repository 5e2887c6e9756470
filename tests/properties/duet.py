"""A legacy and a modern client on one bus, together and each alone, and what each of them was sent."""

import json
import re
from collections import defaultdict
from collections.abc import Collection
from typing import Any

import attrs
import trio
from happenings import CHANNELS, LEGACY, LISTS, URIS, Program, script
from world import LIMITS, World

_VERBS = ("log", "note", "progress", "elicit", "sample", "both")
_RANDOM = re.compile(
    r'(?P<n>(?<="n": )\d+)|(?P<ask>(?<=ask )\d+)|(?P<done>(?<=done )\d+)|(?P<key>(?<="q)\d+)'
    r'|(?P<question>(?<="id": )\d{4,}|(?<="requestId": )\d{4,})'
    r'|(?P<state>(?<="requestState": ")[^"]+)|(?P<task>(?<="taskId": ")[^"]+)'
)
"""What differs from run to run: the numbers of the notebook, those of questions, and what is unguessable."""


@attrs.frozen
class Piece:
    """What a duet plays: how each of the two is connected, and steps of the one, the other, or the server."""

    program: Program
    kinds: dict[str, str]
    revision: str
    steps: tuple[tuple[str, str, Any], ...]

    @classmethod
    def drawn(cls, seed: int) -> "Piece":
        program = Program.drawn(seed)
        rng = program.dice()
        kinds = {"legacy": rng.choice(["http", *CHANNELS]), "modern": rng.choice(["modern", *CHANNELS])}
        verbs = {
            "legacy": ("call", "call", "answer", "get", "subscribe", "say"),
            "modern": ("call", "call", "answer", "retry", "listen"),
            "server": (*LISTS, *URIS),
        }
        steps = []
        for _ in range(rng.randint(8, 25)):
            part = rng.choice(list(verbs))
            said = [(verb, argument) for verb, argument in script(rng) if verb in _VERBS]
            steps.append((part, rng.choice(verbs[part]), said))
        return cls(attrs.evolve(program, drains=False), kinds, rng.choice(LEGACY), tuple(steps))


class Duet(World):
    """The run of a piece by both clients, or by one of them.

    Attributes:
        transcripts: What each was sent, stream by stream.
    """

    # What a full outbox drops depends on how often its writer runs meanwhile, of which nothing is promised.
    limits = attrs.evolve(LIMITS, outbox_items=1000, outbox_bytes=10**6)

    def __init__(self, piece: Piece, parts: Collection[str]) -> None:
        super().__init__(piece.program)
        self.piece = piece
        self.parts = parts
        self.players: dict[str, Any] = {}
        self.transcripts: dict[str, str] = {}

    async def happen(self) -> None:
        for part in ("legacy", "modern"):
            if part in self.parts:
                revision = self.piece.revision if part == "legacy" else ""
                await self.connect_(self.piece.kinds[part], revision, "auto", initialized=True)
                self.players[part] = self.callers[-1]
        for number, (part, verb, said) in enumerate(self.piece.steps):
            if part == "server" and verb in LISTS:
                self.change(verb)
            elif part == "server":
                self.bus.resource_updated(verb)
            elif part in self.parts:
                await self._play(part, verb, said)
            await self.settle()
            self.look_on()
            # No two times come together: no order is promised between what happens at one of them.
            await trio.sleep(1 + (2 * number + 1) / 1000)
        await trio.sleep(200)
        self.look_on()
        for part, player in self.players.items():
            streams = [ear.messages for ear in self.ears if ear.client is player]
            self.transcripts[part] = _masked(json.dumps(streams, indent=1, sort_keys=True))

    async def _play(self, part: str, verb: str, said: list[Any]) -> None:
        player = self.players[part]
        index = self.callers.index(player)
        if verb == "call":
            await self.call_(index, said, "act", wants=True, level="info", chance=1)
        elif verb == "get" and player.kind == "http":
            await self.get_(0)
        elif verb == "subscribe":
            await player.request("resources/subscribe", {"uri": "res://a"})
        elif verb == "say":
            await self.say_(0, "log")
        elif verb == "listen":
            wanted = {f"{kind}ListChanged": kind == "tools" for kind in LISTS}
            params = {"notifications": {**wanted, "resourceSubscriptions": ["res://c"], "taskIds": []}}
            await player.request("subscriptions/listen", params)
        elif verb == "answer":
            open_ = [heard for heard in self.heard if not heard.answered and heard.ear.client is player]
            if open_:
                await self.answer_(self.unanswered().index(open_[0]), "right")
        elif verb == "retry" and any(not one.used for one in self.rounds):
            await self.retry_(0, "right")


def _masked(transcript: str) -> str:
    """Put in the place of what is random the order in which it first came."""
    names: dict[str, dict[str, str]] = defaultdict(dict)

    def mask(match: re.Match[str]) -> str:
        known = names[match.lastgroup or ""]
        return known.setdefault(match[0], f"#{len(known)}")

    return _RANDOM.sub(mask, transcript)
