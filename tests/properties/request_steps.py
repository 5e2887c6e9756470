"""What clients ask for, answer, cancel, and come back with."""

import json
from typing import Any

import trio
from invariants_of_requests import validate_purge
from notebook import Call, Listen

from mcpbus.core.receipt import Location

_INVALID_PARAMS, _NO_METHOD = -32602, -32601
_QUICK = {"resources/read": {"uri": "res://a/b"}, "prompts/get": {"name": "prompt"}}
_MISSING = 10**6


class RequestSteps:
    """Steps of a world; see there."""

    # -- calls -----------------------------------------------------------------------------------

    async def call_(  # noqa: PLR0917 - a step's arguments come by position
        self, index: int, script: list[Any], tool: str, wants: bool, level: str | None, chance: int
    ) -> None:
        caller = self.present(index)
        if caller is None:
            return
        call = self._new_call(caller, tool, script)
        about = {"wants": wants, "level": level, "modern": chance % 4 == 0, "tasks": chance % 3 > 0}
        sent = await caller.request("tools/call", self._arguments(call), call=call, **about)
        if sent not in call.sents:
            call.sents.append(sent)

    async def batch_(self, index: int, scripts: list[Any]) -> None:
        """Several calls in one message, as 2025-03-26 has it."""
        having = [c for c in self.callers if not c.gone and c.revision == "2025-03-26" and c.kind != "memory"]
        caller = self.pick(having, index)
        if caller is None:
            return
        calls = [self._new_call(caller, "act", script) for script in scripts]
        members = [("tools/call", self._arguments(call), {"call": call}) for call in calls]
        for call, sent in zip(calls, await caller.batch(members), strict=True):
            call.sents.append(sent)

    def _new_call(self, caller: Any, tool: str, script: list[Any]) -> Call:
        self.calls.append(Call(len(self.calls), caller, tool, script))
        return self.calls[-1]

    @staticmethod
    def _arguments(call: Call) -> dict[str, Any]:
        return {"name": call.tool, "arguments": {"number": call.number}}

    async def quick_(self, index: int, method: str) -> None:
        caller = self.present(index)
        if caller is not None:
            sent = await caller.request(method, dict(_QUICK.get(method, {})))
            sent.fault = _NO_METHOD if method == "no/such" else None

    async def level_(self, index: int, level: str) -> None:
        caller = self.pick(self._with_session(), index)
        if caller is not None:
            await caller.request("logging/setLevel", {"level": level})

    async def subscribe_(self, index: int, uri: str, verb: str) -> None:
        caller = self.pick(self._with_session(), index)
        if caller is not None:
            await caller.request(f"resources/{verb}", {"uri": uri})
            await trio.lowlevel.checkpoint()

    def _with_session(self) -> list[Any]:
        return [c for c in self.callers if not c.gone and c.inside is not None]

    async def listen_(self, index: int, lists: set[str], uris: set[str], tasks: int) -> None:
        caller = self.pick([c for c in self.callers if not c.gone and self._is_modern(c)], index)
        if caller is None:
            return
        named = [note for note in (self.pick(self.tasks.values(), tasks + n) for n in range(2)) if note]
        wanted = {f"{kind}ListChanged": kind in lists for kind in ("tools", "prompts", "resources")}
        wanted |= {"resourceSubscriptions": sorted(uris), "taskIds": [note.id for note in named]}
        params = {"notifications": wanted}
        sent = await caller.request("subscriptions/listen", params, modern=True, tasks=True)
        self.listens.append(Listen(sent, lists, uris, named))

    @staticmethod
    def _is_modern(caller: Any) -> bool:
        """Whether it can send modern requests: all but those that promised one revision for everything."""
        return caller.revision is None or caller.kind in {"line", "sse", "socket"}

    # -- cancels ---------------------------------------------------------------------------------

    async def cancel_(self, index: int) -> None:
        """Cancel by notification, which over modern or stateless HTTP does nothing at all."""
        await self.settle()  # a cancel that overtakes its request is for nobody
        self.listen_in()
        open_ = [
            s
            for s in self.sents
            if s.reply is None and not s.client.gone and s.method in {"tools/call", "subscriptions/listen"}
        ]
        sent = self.pick(open_, index)
        if sent is None:
            return
        running = sent.call is not None and sent.call.outcome == "running"
        await sent.client.cancel(sent)
        await self.settle()
        if sent.client.kind in {"modern", "stateless"}:
            return
        sent.cancelled = True
        took = running and sent.call.outcome == "cancelled"
        if not took and sent.ear.purpose == "all" and sent.ear.stalled:
            return  # it may be unread: of a channel whose client reads too little no more is read either
        sent.silenced = self.tick()
        # What is being written stands, and so does a reply that waits: they may still come.
        silent = sent.call is None or sent.call.outcome in {"running", "cancelled"}
        if silent and not self.bus.ledger.pending[Location.WRITING]:
            sent.ends = {ear: len(ear.messages) for ear in self.family(sent.ear) if not ear.stalled}
        if took:
            validate_purge(self, sent)

    # -- questions -------------------------------------------------------------------------------

    async def answer_(self, index: int, how: str) -> None:
        """A client answers what it was asked; or another one answers in its place, which nobody may believe."""
        heard = self.pick(self.unanswered(), index)
        if heard is None:
            return
        question_id = heard.number if heard.id is None else heard.id
        right = {"id": question_id, "result": self._answer_to(heard.params, str(heard.number))}
        if how == "stolen":
            await self._steal(heard)
            return
        heard.answered = True
        if how == "wrong":
            await heard.ear.client.respond({"id": question_id, "result": {"action": "perhaps"}})
        elif how == "error":
            await heard.ear.client.respond({"id": question_id, "error": {"code": -1, "message": "no"}})
        else:
            await heard.ear.client.respond(right)
        if how == "twice":
            await heard.ear.client.respond(right)

    def unanswered(self) -> list[Any]:
        return [h for h in self.heard if not h.answered and not h.ear.client.gone]

    async def _steal(self, heard: Any) -> None:
        thieves = [c for c in self._with_session() if c is not heard.ear.client and c.kind != "memory"]
        if thieves and heard.id is not None:
            answer = self._answer_to(heard.params, f"stolen {heard.number}")
            await thieves[-1].respond({"id": heard.id, "result": answer})

    @staticmethod
    def _answer_to(params: dict[str, Any], text: str) -> dict[str, Any]:
        if "message" in params:
            return {"action": "accept", "content": {"value": text}}
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": text}}

    async def retry_(self, index: int, how: str) -> None:
        """A modern client comes back with answers; or with what it must not come back with."""
        rounds = [r for r in self.rounds if not r.sent.client.gone and r.used is (how == "used")]
        one = self.pick(rounds, index)
        if one is None:
            return
        call, caller, state = one.sent.call, one.sent.client, one.state
        answers = {
            key: self._answer_to(q["params"], str(self.number_in(q["params"])))
            for key, q in one.requests.items()
        }
        params = {**self._arguments(call), "inputResponses": {} if how == "none" else answers}
        fault = None if how in {"right", "none"} else _INVALID_PARAMS
        if how == "forged":
            state = state[:40] + ("A" if state[40] != "A" else "B") + state[41:]
        elif how == "stranger":
            strangers = [c for c in self.callers if c.principal != caller.principal and self._is_modern(c)]
            caller = self.pick([c for c in strangers if c.kind != "memory" and not c.gone], index)
        elif how == "other":
            params["arguments"] = {"number": _MISSING}
        if caller is None:
            return
        about = {"modern": True, "wants": True, "level": "debug", "tasks": one.sent.tasks}
        if fault is None:
            one.used = True
            sent = await caller.request("tools/call", {**params, "requestState": state}, call=call, **about)
            self.carried(sent)
        else:
            sent = await caller.request("tools/call", {**params, "requestState": state}, **about)
            sent.fault = fault
        await self.settle()

    # -- tasks -----------------------------------------------------------------------------------

    async def task_(self, index: int, verb: str, own: bool) -> None:
        """Somebody looks after a task: its owner, or somebody whom it does not concern."""
        note = self.pick(self.tasks.values(), index)
        if note is None:
            return
        caller = note.client
        if not own:
            others = [c for c in self.callers if c.principal != note.client.principal and self._is_modern(c)]
            caller = self.pick([c for c in others if not c.gone], index)
        if caller is None or caller.gone:
            return
        params: dict[str, Any] = {"taskId": note.id}
        if verb == "update":
            params["inputResponses"] = {
                key: self._answer_to(q["params"], str(self.number_in(q["params"])))
                for key, q in note.requests.items()
            }
        sent = await caller.request(f"tasks/{verb}", params, modern=True, tasks=True)
        if not own:
            sent.fault = _INVALID_PARAMS
        elif verb == "cancel":
            note.cancelled = True

    @staticmethod
    def encode(message: Any) -> bytes:
        return json.dumps(message).encode()
