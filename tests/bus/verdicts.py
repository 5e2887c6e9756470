"""What must be true of a world when everybody has left it: the invariants, each judged from what clients were sent."""

from collections import defaultdict
from typing import Any

from happenings import LISTS, SUBSCRIPTION, Call, Client, Listen

from mcpbus.fate import DELIVERED, Fate, Reason
from mcpbus.protocol.levels import LogLevel


class Judge:
    """Compares the notebook of a world with the transcripts of its clients; what differs is a fault."""

    faults: list[str]
    clients: list[Client]
    calls: list[Call]
    listens: list[Listen]
    gets: list[tuple[Client, Any]]
    said: dict[int, tuple[Any, Any]]
    changes: list[Any]
    probe: Any

    def channels(self) -> list[tuple[Any, list[dict[str, Any]]]]:
        return [
            *((recording, recording.messages) for recording in self.probe.recordings),
            *((client.wire, client.wire.got) for client in self.clients if client.wire is not None),
        ]

    def judge(self) -> None:
        seen: dict[int, list[Any]] = defaultdict(list)
        for channel, messages in self.channels():
            for message in messages:
                if "method" in message and "id" in message:
                    self.faults.append("invariant 8: a request to a client that nobody asked for")
                number = self.number_of(message)
                if number is not None:
                    seen[number].append(channel)
        for number, (receipt, owner) in self.said.items():
            self.judge_said(number, receipt, self.allowed(owner), seen.pop(number, []))
        if seen:
            self.faults.append(f"invariant 1: nobody said {sorted(seen)}")
        self.judge_changes()
        self.judge_replies()
        for call in self.calls:
            self.judge_call(call)
        for listen in self.listens:
            self.judge_listen(listen)

    def judge_changes(self) -> None:
        for receipt in self.changes:
            if receipt.fate is None:
                self.faults.append(f"invariant 1: {receipt} has no fate")
        for _, get in self.gets:
            if get.status == 200 and any("id" in message for message in get.messages):
                self.faults.append("invariant 3: a GET stream has a reply")

    @staticmethod
    def number_of(message: dict[str, Any]) -> int | None:
        params = message.get("params", {})
        data = params.get("data", params)
        return data.get("n") if isinstance(data, dict) else None

    def allowed(self, owner: Call | Client) -> list[Any]:
        if isinstance(owner, Call):
            return [owner.post if owner.post is not None else owner.client.wire]
        if owner.wire is not None:
            return [owner.wire]
        return [get for client, get in self.gets if client is owner]

    def judge_said(self, number: int, receipt: Any, allowed: list[Any], seen: list[Any]) -> None:
        if not {id(channel) for channel in seen} <= {id(channel) for channel in allowed}:
            self.faults.append(f"invariants 1 and 5: message {number} is on a stream that is not its own")
        if receipt is None:
            return
        if receipt.fate is None:
            self.faults.append(f"invariant 1: {receipt} has no fate")
        if receipt.fate == DELIVERED:
            # A client that goes in the very moment of a write is not noticed by it.
            vanished = any(getattr(channel, "disconnected", False) for channel in allowed)
            if len(seen) != 1 and not (vanished and not seen):
                self.faults.append(f"invariant 1: message {number} was delivered {len(seen)} times")
        elif seen:
            # A write that returned in the moment in which its connection ended is lost for all that is known.
            ended = all(getattr(channel, "aborted", True) or channel.disconnected for channel in seen)
            if receipt.fate != Fate.discarded(Reason.LOST) or not ended:
                self.faults.append(f"invariant 1: message {number} was sent and is {receipt.fate}")

    def judge_replies(self) -> None:
        for recording in self.probe.recordings:
            replies = [message for message in recording.messages if "method" not in message]
            if replies and recording.status == 200 and not recording.over:
                self.faults.append("invariant 2: a stream goes on after its reply")
            if len(replies) > 1 or (replies and recording.messages[-1] is not replies[0]):
                self.faults.append("invariants 2 and 6: a reply is not the last message")
            mine = [t.id for t in [*self.calls, *self.listens] if t.post is recording]
            if mine and replies and replies[0].get("id", mine[0]) != mine[0]:
                self.faults.append("invariant 2: a reply is on another POST's stream")
        for client in self.clients:
            if client.wire is not None:
                ids = [message["id"] for message in client.wire.got if "method" not in message]
                if len(ids) != len(set(ids)):
                    self.faults.append("invariant 2: a request was answered twice")

    def judge_call(self, call: Call) -> None:
        messages, mine, replied = call.messages, [], False
        for index, message in enumerate(messages):
            if "method" not in message:
                replied = replied or message.get("id") == call.id
                continue
            number = self.number_of(message)
            belongs = number in self.said and self.said[number][1] is call
            params = message.get("params", {})
            is_progress = (
                message["method"] == "notifications/progress" and params["progressToken"] == call.token
            )
            if not belongs and not is_progress:
                continue
            if replied or (call.last is not None and index >= call.last):
                self.faults.append(f"invariant 6: call {call.number} goes on after its end")
            if is_progress:
                mine.append(params["progress"])
            if message["method"] == "notifications/message" and not call.client.legacy:
                wanted = call.level
                if wanted is None or LogLevel(params["level"]) < LogLevel(wanted):
                    self.faults.append("invariant 10: a modern log that was not asked for")
        if mine != sorted(set(mine)):
            self.faults.append(f"invariant 13: progress went {mine}")

    def judge_listen(self, listen: Listen) -> None:
        mine = [
            (index, message)
            for index, message in enumerate(listen.messages)
            if message.get("id") == listen.id
            or message.get("params", {}).get("_meta", {}).get(SUBSCRIPTION) == listen.id
        ]
        if listen.post is not None and len(mine) != len(listen.messages):
            self.faults.append("invariant 9: a listen stream has a message without its stamp")
        if mine and "acknowledged" not in mine[0][1].get("method", ""):
            self.faults.append("invariant 9: a listen does not begin with its acknowledgement")
        for index, message in mine[1:]:
            method = message.get("method", "result")
            kind = method.split("/")[1] if method.endswith("list_changed") else None
            uri = message.get("params", {}).get("uri")
            heard = kind in listen.wanted or any(
                uri == wanted or (uri or "").startswith(wanted + "/") for wanted in listen.wanted - set(LISTS)
            )
            if method == "result":
                if message is not mine[-1][1] or listen.last is not None:
                    self.faults.append("invariant 9: a listen goes on after its end")
            elif not heard:
                self.faults.append(f"invariant 9: {method} {uri} for a listen to {listen.wanted}")
            if listen.last is not None and index >= listen.last:
                self.faults.append("invariant 6: a cancelled listen goes on")
