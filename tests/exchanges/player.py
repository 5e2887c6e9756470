"""One exchange, played by a client in one way, and its outcome."""

import json
from collections.abc import Callable
from typing import Any

import attrs
import trio

from mcpbus.testing import wait_until_idle
from tests.exchanges.clients import over_asgi
from tests.exchanges.house import House
from tests.exchanges.responses import Names, Response, outcome_of, shorten
from tests.exchanges.steps import Began, Do, Ended, Exchange, Got, Leave, Pass, Request, Send, Step, delete
from tests.exchanges.ways import Doors, Sender, Way

PATIENCE = 20.0
"""Virtual seconds after which a client no longer waits for something: past the keep-alive of a quiet stream."""


class Memory:
    """What a client has received, for the words in its later requests.

    Args:
        house: The server; its issuer makes the words `$reader` and `$writer`.
        names: Learns the values.

    Attributes:
        sessions: The ids of the sessions that it has opened.
    """

    def __init__(self, house: House, names: Names) -> None:
        self._names = names
        self._words: dict[str, str] = {}
        self.sessions: dict[str, None] = {}
        if house.issuer is not None:
            self._words["$reader"] = house.issuer.token("ada", ["notes:read"])
            self._words["$writer"] = house.issuer.token("ada", ["notes:write"])
            self._words["$expired"] = house.issuer.token("ada", ["notes:write"], lifetime=-100)

    def note(self, responses: dict[str, Response]) -> None:
        """Learn from the responses so far."""
        for response in responses.values():
            if identity := response.headers.get("mcp-session-id"):
                self._learn("$session", identity, "session")
                self.sessions[identity] = None
            for number, event in enumerate(response.event_ids, 1):
                self._learn(f"${response.label}.event{number}", event, "event")
            for message in response.messages:
                if "method" in message and "id" in message:
                    self._words['"$question"'] = json.dumps(message["id"])
                    self._names.learn_id(message["id"])
                state = message.get("result", {}) if isinstance(message.get("result", {}), dict) else {}
                if "requestState" in state:
                    self._learn("$state", state["requestState"], "state")

    def _learn(self, word: str, value: str, kind: str) -> None:
        self._words[word] = value
        self._names.learn(value, kind)

    def fill(self, request: Request) -> Request:
        """Return a request in which the words stand for what they mean."""
        if not self._words:
            return request
        words = sorted(self._words, key=len, reverse=True)

        def replace(text: str) -> str:
            for word in words:
                text = text.replace(word, self._words[word])
            return text

        fields = tuple((name, replace(value)) for name, value in request.fields)
        lines = request.lines
        if lines is not None:
            lines = tuple(replace(line.decode("latin-1")).encode("latin-1") for line in lines)
        body = request.body
        for word in words:
            body = body.replace(word.encode(), self._words[word].encode())
        return attrs.evolve(request, fields=fields, lines=lines, body=body)


class Player:
    """A client that plays one exchange in one way.

    Args:
        house: The server.
        send: Sends a request.
        nursery: For the responses.

    Attributes:
        names: Stable names for the ids that the client has received.
        memory: What it has received.
        responses: The responses by their labels.
        order: The labels of the responses to which messages have come, in the order of arrival.
    """

    def __init__(self, house: House, send: Sender, nursery: trio.Nursery) -> None:
        self._house = house
        self._send = send
        self._nursery = nursery
        self.names = Names()
        self.memory = Memory(house, self.names)
        self.responses: dict[str, Response] = {}
        self.order: list[str] = []

    async def take(self, step: Step) -> None:
        """Take one step."""
        match step:
            case Send():
                self._begin(step)
                await trio.sleep(0.01)
            case Got(label=label, messages=messages):
                await self._wait(label, lambda each: len(each.messages) >= messages)
            case Began(label=label):
                await self._wait(label, lambda each: each.status is not None)
            case Ended(label=label):
                await self._wait(label, lambda each: each.over)
            case Leave(label=label):
                self.responses[label].disconnect()
                await trio.sleep(0.01)
            case Pass(seconds=seconds):
                await trio.sleep(seconds)
            case Do(action=action):
                self._house.act(action)
                await trio.sleep(0.01)

    def _begin(self, step: Send) -> None:
        self.memory.note(self.responses)
        self.responses[step.label] = response = Response(step.label, self.order)
        request = self.memory.fill(step.request)
        if step.quiet:
            self._nursery.start_soon(over_asgi, self._house.app, request, response, "whole")
        else:
            self._nursery.start_soon(self._send, request, response)

    async def _wait(self, label: str, condition: Callable[[Response], bool]) -> None:
        response = self.responses[label]
        with trio.move_on_after(PATIENCE):
            await response.wait_for(lambda: condition(response) or response.over)


async def play(exchange: Exchange, doors: Doors, way: Way) -> dict[str, Any]:
    """Play an exchange in one way and return its outcome: responses, fates, and what handlers did."""
    house = doors.house
    house.begin()
    before = _fates(house)
    async with trio.open_nursery() as nursery:
        player = Player(house, await doors.sender(way), nursery)
        for step in exchange.steps:
            await player.take(step)
        await wait_until_idle(house.bus)
        quiet = {step.label for step in exchange.steps if isinstance(step, Send) and step.quiet}
        responses = {label: each for label, each in player.responses.items() if label not in quiet}
        result: dict[str, Any] = {"responses": {label: outcome_of(each) for label, each in responses.items()}}
        player.memory.note(player.responses)
        for response in player.responses.values():
            response.disconnect()
        await trio.sleep(0.5)
        nursery.cancel_scope.cancel()
    await _end(house, player.memory)
    after = _fates(house)
    result["fates"] = {
        name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)
    }
    order = [label for label in player.order if label not in quiet]
    if len(set(order)) > 1:
        result["order"] = order
    if house.journal:
        result["handlers"] = sorted(house.journal)
    if way.transport in {"http1", "tls1", "link"}:
        result["framing"] = {label: each.framing() for label, each in responses.items() if each.fields}
    return shorten(json.loads(player.names.replace(json.dumps(result))))


async def _end(house: House, memory: Memory) -> None:
    """End the handlers and the sessions, of which the next client of the house is to see nothing."""
    house.go.set()
    await wait_until_idle(house.bus)
    for identity in memory.sessions:
        await over_asgi(house.app, delete(mcp_session_id=identity), Response("end", []), "whole")
    await trio.sleep(1)
    await wait_until_idle(house.bus)


def _fates(house: House) -> dict[str, int]:
    ledger = house.bus.ledger
    found = {
        "delivered": ledger.delivered,
        "stored": ledger.stored,
        "refused": ledger.refused,
        "moved": ledger.moved,
    }
    found |= {f"discarded {reason.value}": count for reason, count in ledger.discarded.items()}
    found |= {f"pending {place.value}": count for place, count in ledger.pending.items()}
    return {name: count for name, count in found.items() if count}
