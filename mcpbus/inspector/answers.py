"""The answers of the inspector: what a watched bus does, as values for JSON."""

import time
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any, Final

import attrs
import msgspec
import trio

from mcpbus.core.call import CallActor
from mcpbus.core.hub import Hub
from mcpbus.core.message_stream import MessageStream
from mcpbus.core.sessions.session import Session
from mcpbus.core.subscription import SubscriptionActor, lists_of
from mcpbus.core.watching import WatchedReceipt
from mcpbus.dispatch.backend import FeaturesBackend
from mcpbus.protocol.printable import printable, quoted
from mcpbus.upstream.proxy_runtime import ProxyRuntime
from mcpbus.watch.naming import LONGEST, client_name
from mcpbus.watch.tallies import BOUNDS
from mcpbus.watch.views import RequestView
from mcpbus.watch.watch import Watch

VERSION: Final = 1
"""Of the form of the answers. It grows when something is taken away, or means something else."""
MOST: Final = 500
_COMMON: Final = 100
_LOUD: Final = 8
PATHS: Final = (
    *("/ledger", "/requests", "/sessions", "/listens", "/streams", "/tasks", "/suspended"),
    *("/upstreams", "/tools", "/limits", "/tape", "/all"),
)
_FILTERS: Final = ("target", "session", "request", "tool", "method", "fate", "reason", "since")


class BadQueryError(ValueError):
    """A query has a parameter that is not known, or whose value cannot be right."""


class Answers:
    """Answers questions about a watched bus.

    Args:
        bus: The bus.
        watch: Its watch.
    """

    def __init__(self, bus: Hub, watch: Watch) -> None:
        self._bus = bus
        self._watch = watch
        self._paths: Mapping[str, tuple[Callable[[Mapping[str, str]], dict[str, Any]], tuple[str, ...]]] = {
            "/ledger": (self._ledger, ()),
            "/requests": (self._requests, ("limit", "ended")),
            "/sessions": (self._sessions, ("limit",)),
            "/listens": (self._listens, ("limit",)),
            "/streams": (self._streams, ("limit",)),
            "/tasks": (self._tasks, ("limit",)),
            "/suspended": (self._suspended, ("limit",)),
            "/upstreams": (self._upstreams, ()),
            "/tools": (self._tools, ("limit",)),
            "/limits": (self._limits, ()),
            "/tape": (self._tape, ("limit", *_FILTERS)),
            "/all": (self._all, ("limit", "since")),
        }

    def answer(self, path: str, query: Mapping[str, str]) -> dict[str, Any] | None:
        """Answer a question.

        Args:
            path: What is asked for, such as ``/requests`` or ``/requests/5``.
            query: The parameters.

        Returns:
            The answer; None if there is no such path, or no such request.

        Raises:
            BadQueryError: A parameter is wrong; the message says which.
        """
        found = self._paths.get(path)
        if found is None:
            number = path.removeprefix("/requests/")
            answer = self._request(int(number)) if number != path and number.isdecimal() else None
            return None if answer is None else self._stamp(answer)
        make, known = found
        for name in query:
            if name not in known:
                raise BadQueryError(f"{path} has no parameter {quoted(name, LONGEST)}")
        return self._stamp(make(query))

    def _stamp(self, answer: dict[str, Any]) -> dict[str, Any]:
        process = self._bus.process or "one"
        return {"version": VERSION, "now": time.time(), "process": process, **answer}

    # -- the ledger ------------------------------------------------------------------------------

    def _ledger(self, _query: Mapping[str, str]) -> dict[str, Any]:
        bus, told = self._bus, self._bus.statistics()
        return {
            "name": bus.name,
            "draining": bus.draining,
            "emitted": told.emitted,
            "adopted": told.adopted,
            "delivered": told.delivered,
            "stored": told.stored,
            "refused": told.refused,
            "moved": told.moved,
            "discarded": {reason.name: number for reason, number in told.discarded.items()},
            "pending": {place.value: number for place, number in told.pending.items()},
            "balance": bus.ledger.balance(),
            "requests": told.requests - told.listens,
            "listens": told.listens,
            "sessions": told.sessions,
            "suspended": len(bus.parked_calls),
            "tasks": len(bus.tasks),
            "calls": sum(tally.calls for tally in self._watch.records.tallies.by_label.values()),
            "held_bytes": told.held_bytes,
            "memory_bytes": bus.limits.memory_bytes,
            "limits": dict(told.limits_reached),
        }

    # -- requests --------------------------------------------------------------------------------

    def _requests(self, query: Mapping[str, str]) -> dict[str, Any]:
        if "ended" in query:
            return _bounded("requests", self._watch.requests(ended=True), query)
        calls = {life.number: call for life, _, call in self._watch.in_flight()}
        limit = _limit(query)
        rows = [
            {**_fields(view), "stack": frames, "stream": _stream_of(calls[view.number])}
            for view, frames in self._watch.look(limit=limit)
        ]
        return {"requests": rows, "more": len(calls) - len(rows)}

    def _request(self, number: int) -> dict[str, Any] | None:
        view = self._watch.request(number)
        if view is None:
            return None
        calls = {life.number: call for life, _, call in self._watch.in_flight()}
        return {
            **_fields(view),
            "stack": self._watch.stack(number),
            "stream": _stream_of(calls[number]) if number in calls else None,
            "tape": self._watch.tape(request=number, limit=MOST),
        }

    def _suspended(self, query: Mapping[str, str]) -> dict[str, Any]:
        limit, suspended = _limit(query), self._bus.parked_calls
        rows = [view for view, _ in self._watch.look(limit=limit, suspended=True)]
        return {"suspended": rows, "more": len(suspended) - len(rows), "timeout": suspended.timeout}

    # -- clients ---------------------------------------------------------------------------------

    def _sessions(self, query: Mapping[str, str]) -> dict[str, Any]:
        waiting, now = self._waiting(), trio.current_time()
        rows = [
            {
                "target": f"session {session.short_id}",
                "id": session.short_id,
                "client": _client_of(session),
                "owner": self._watch.records.names.owner(session.owner),
                "revision": None if session.revision is None else session.revision.name,
                "transport": session.transport.value,
                "stage": session.stage.value,
                "listening": session.listening,
                "in_flight": len(session.in_flight),
                "idle": now - session.last_active,
                "subscriptions": len(session.subscriptions),
                **waiting.get(f"session {session.short_id}", _NOTHING_WAITS),
            }
            for session in self._bus.session_directory.shares
        ]
        return _bounded("sessions", sorted(rows, key=_by_oldest), query)

    def _listens(self, query: Mapping[str, str]) -> dict[str, Any]:
        waiting, rows = self._waiting(), []
        for slot in self._bus.listens:
            listen = slot.request
            if not isinstance(listen, SubscriptionActor) or listen.context.life is None:
                continue
            context, life = listen.context, listen.context.life
            target = f"listen {life.number}"
            rows.append(
                {
                    "target": target,
                    "id": quoted(context.request.id, LONGEST),
                    "client": client_name(context),
                    "owner": self._watch.records.names.owner(context.owner),
                    "age": perf_counter() - life.began,
                    "lists": lists_of(listen.granted),
                    "resources": len(listen.granted.resource_subscriptions),
                    "tasks": len(listen.granted.task_ids),
                    "stream": _stream(listen.stream),
                    **waiting.get(target, _NOTHING_WAITS),
                }
            )
        return _bounded("listens", sorted(rows, key=_by_oldest), query)

    def _streams(self, query: Mapping[str, str]) -> dict[str, Any]:
        rows = [{"of": target, **waiting} for target, waiting in self._waiting().items()]
        for life, _, call in self._watch.in_flight():
            if (stream := _stream_of(call)) is not None and stream["waiting"]:
                rows.append({"of": f"request {life.number}", **stream})
        return _bounded("streams", sorted(rows, key=_by_oldest), query)

    def _waiting(self) -> dict[str, dict[str, Any]]:
        """Return what waits for each session and listen, as far as the tape reaches."""
        found: dict[str, dict[str, Any]] = {}
        for receipt in self._watch.records.tape:
            if receipt.target is not None and receipt.fate is None:
                row = found.setdefault(receipt.target, dict(_NOTHING_WAITS))
                row["waiting"] += 1
                row["oldest"] = perf_counter() - receipt.made  # they come newest first
                place = "unknown" if receipt.location is None else receipt.location.value
                row["places"] = {**row["places"], place: row["places"].get(place, 0) + 1}
        return found

    # -- the rest --------------------------------------------------------------------------------

    def _tasks(self, query: Mapping[str, str]) -> dict[str, Any]:
        now = time.time()
        rows = [
            {
                "id": _short(entry.record.id),
                "owner": self._watch.records.names.owner(entry.counted_to),
                "status": entry.record.status.value,
                "age": now - entry.record.created,
                "idle": now - entry.record.updated,
            }
            for entry in self._bus.tasks
        ]
        return _bounded("tasks", rows, query)

    def _upstreams(self, _query: Mapping[str, str]) -> dict[str, Any]:
        backend = self._bus.backend
        server = backend.server if isinstance(backend, FeaturesBackend) else None
        mounted: list[object] = getattr(server, "mounted", list)()
        rows = [
            {"name": getattr(each, "name", ""), **attrs.asdict(connection.state())}
            for each in (server, *mounted)
            if isinstance(connection := getattr(each, "connection", None), ProxyRuntime)
        ]
        return {"upstreams": rows}

    def _tools(self, query: Mapping[str, str]) -> dict[str, Any]:
        running: dict[tuple[str, str | None], int] = {}
        for life, context, _ in self._watch.in_flight():
            if life.outcome is None:
                label = context.request.method, context.routing.name
                running[label] = running.get(label, 0) + 1
        tallies = self._watch.records.tallies.by_label
        rows = [
            {
                "method": method,
                "name": name,
                "running": number,
                "calls": 0 if (tally := tallies.get((method, name))) is None else tally.calls,
                "failures": {} if tally is None else tally.failures,
                "seconds": 0.0 if tally is None else tally.seconds,
                "longest": 0.0 if tally is None else tally.longest,
                "counts": [0] * (len(BOUNDS) + 1) if tally is None else tally.counts,
            }
            for (method, name), number in {**dict.fromkeys(tallies, 0), **running}.items()
        ]
        rows.sort(key=lambda row: -float(str(row["seconds"])))
        return {**_bounded("tools", rows, query), "bounds": BOUNDS}

    def _limits(self, _query: Mapping[str, str]) -> dict[str, Any]:
        bus = self._bus
        used = {
            "max_sessions": len(bus.session_directory.shares),
            "max_requests": len(bus.admission),
            "max_listens": len(bus.listens),
            "max_suspended_calls": len(bus.parked_calls),
            "max_tasks": len(bus.tasks),
            "max_running_tasks": bus.tasks.running,
            "memory_bytes": bus.budget.held,
        }
        reached = bus.limit_monitor.counts
        rows = [
            {"limit": name, "value": value, "used": used.get(name), "reached": reached.get(name, 0)}
            for name, value in attrs.asdict(bus.limits).items()
        ]
        known = {row["limit"] for row in rows}
        rows += [
            {"limit": name, "value": None, "used": None, "reached": number}
            for name, number in reached.items()
            if name not in known
        ]
        return {"limits": rows, "last": list(self._watch.records.limits)[::-1]}

    def _tape(self, query: Mapping[str, str]) -> dict[str, Any]:
        wanted: dict[str, Any] = {name: query[name] for name in _FILTERS if name in query}
        if "session" in wanted:
            wanted["target"] = f"session {wanted.pop('session')}"
        for name in ("request", "since"):
            if name in wanted:
                wanted[name] = _number(name, wanted[name])
        tape, limit = self._watch.records.tape, _limit(query)
        found = self._watch.tape(**wanted, limit=limit + 1)
        return {
            "messages": found[:limit],
            "more": len(found) > limit,
            "from": tape.first,
            "to": tape.made,
            "loud": [
                {"request": life.number, "tool": life.name, "messages": life.said}
                for life in tape.loud()[:_LOUD]
            ],
            "counts": [
                {
                    "method": method,
                    "tool": None if label is None else label[1],
                    "fate": fate.kind.value,
                    "reason": fate.reason.name,
                    "number": number,
                }
                for (method, label, fate), number in tape.fates.most_common(_COMMON)
                if fate.reason is not None
            ],
        }

    def _all(self, query: Mapping[str, str]) -> dict[str, Any]:
        alone: dict[str, str] = {}
        return {
            "ledger": self._ledger(alone),
            "live": self._requests(alone),
            "ended": self._requests({"ended": "1"}),
            "sessions": self._sessions(alone),
            "listens": self._listens(alone),
            "tasks": self._tasks(alone),
            "upstreams": self._upstreams(alone)["upstreams"],
            "tools": self._tools(alone),
            "limits": self._limits(alone),
            "tape": self._tape(dict(query)),
        }


_NOTHING_WAITS: Final[dict[str, Any]] = {"waiting": 0, "oldest": None, "places": {}}


def _fields(view: RequestView) -> dict[str, Any]:
    return msgspec.structs.asdict(view)


def _bounded(name: str, rows: Iterable[Any], query: Mapping[str, str]) -> dict[str, Any]:
    """Return the first rows, and how many there are besides."""
    found, limit = list(rows), _limit(query)
    return {name: found[:limit], "more": max(0, len(found) - limit)}


def _limit(query: Mapping[str, str]) -> int:
    return min(_number("limit", query.get("limit", str(_COMMON))), MOST)


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > len(str(2**63)):
        raise BadQueryError(f"{name} is a number, not {quoted(text, LONGEST)}")
    return int(text)


def _by_oldest(row: Mapping[str, Any]) -> float:
    return -(row["oldest"] or 0.0)


def _short(task_id: str) -> str:
    """Return eight characters of the id of a task, which is all that its client needs for access."""
    parts = task_id.split(".")
    return (parts[1] if len(parts) > 1 else task_id)[:8]


def _client_of(session: Session) -> str:
    info = session.client_info or {}
    parts = [info[key] for key in ("name", "version") if isinstance(info.get(key), str)]
    return " ".join(printable(part, lines=False, longest=LONGEST) for part in parts)


def _stream_of(call: CallActor) -> dict[str, Any] | None:
    return None if call.stream is None else _stream(call.stream)


def _stream(stream: MessageStream) -> dict[str, Any]:
    outbox, oldest = stream.outbox, stream.outbox.oldest
    made = None if oldest is None or not isinstance(oldest.receipt, WatchedReceipt) else oldest.receipt.made
    return {
        "kind": stream.kind.value,
        "waiting": len(outbox),
        "bytes": outbox.queued_bytes,
        "oldest": None if made is None else perf_counter() - made,
        "full": outbox.half_full,
    }
