"""The rules of the delivery checker: each finds what it is for, and nothing is wrong with what is right. And a short run of the whole."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.delivery.delivery_rules import Arrivals, Book, check

ROOT = Path(__file__).parents[2]
LOST = {"fate": "discarded", "reason": "LOST"}


def log(number):
    """A log line of that name."""
    return {"method": "notifications/message", "params": {"data": {"name": f"1-{number}"}}}


def custom(number):
    return {"method": "notifications/checked", "params": {"name": f"1-{number}"}}


def updated(number):
    return {"method": "notifications/resources/updated", "params": {"uri": f"res://all/1-{number}"}}


def reply(request, text="done a.1"):
    return {"id": request, "result": {"content": [{"type": "text", "text": text}]}}


class World:
    """Two clients: ``a`` over HTTP, with a call and a GET stream, and ``b`` over one connection; all is well."""

    def __init__(self):
        self.response = Arrivals("a", "response", "a.1", 1, [log(1), log(2), reply(1)], whole=True)
        self.get = Arrivals("a", "get", messages=[custom(3), updated(5)], whole=True)
        self.duplex = Arrivals("b", "duplex", messages=[log(4), updated(5), reply(1, "done b.1")], whole=True)
        scopes = {1: "call a.1", 2: "call a.1", 3: "client a", 4: "call b.1", 5: "resource"}
        self.copies = {number: 2 if number == 5 else 1 for number in scopes}
        self.lines = [
            {"emitted": f"1-{number}", "scope": scope, "kind": "log", "copies": self.copies[number]}
            for number, scope in scopes.items()
        ]
        self.fates = {
            number: [{"fate": "delivered", "reason": None}] * n for number, n in self.copies.items()
        }
        self.end = [{"ledger": 0, "pending": 0, "emitted": 6}]

    def faults(self, **options):
        settled = [{"settled": f"1-{n}", **fate} for n, fates in self.fates.items() for fate in fates]
        book = Book.read([*self.lines, *settled, *self.end])
        return check(book, copy.deepcopy([self.response, self.get, self.duplex]), **options)


def test_nothing_is_wrong_where_all_is_well():
    assert World().faults() == []


def add(stream, message, at=0):
    return lambda world: getattr(world, stream).messages.insert(at, message)


def settle(number, *fates):
    return lambda world: world.fates.update(
        {number: [{"fate": "delivered", "reason": None, **each} for each in fates]}
    )


def end(**fields):
    return lambda world: world.end[0].update(fields)


def cut_with(stream, at, number=None, **fate):
    def change(world):
        del getattr(world, stream).messages[at]
        if number is not None:
            world.fates[number] = [fate]

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (add("response", custom(3)), "1-3 of client a has arrived on response a.1 of a"),
        (add("response", log(4)), "1-4 of call b.1 has arrived on response a.1 of a"),
        (add("duplex", log(1)), "1-1 of call a.1 has arrived on duplex None of b"),
        (add("get", log(1)), "1-1 of call a.1 has arrived on get None of a"),
        (add("response", updated(5)), "1-5 of resource has arrived on response a.1 of a"),
        (add("get", log(9)), "1-9 has arrived, and was never sent"),
        (add("response", log(2)), "1-2 has arrived 2 times at a"),
        (add("get", updated(5)), "1-5 has arrived 2 times at a"),
        (add("response", reply(1), 3), "something follows the response of a.1"),
        (add("response", log(2), 3), "something follows the response of a.1"),
        (add("response", reply(1), 3), "a has 2 responses to request 1"),
        (add("get", reply(7)), "a response is on the GET stream of a"),
        (cut_with("response", 0), "1-1 of call a.1 is delivered, and has not arrived"),
        (cut_with("get", 0), "1-3 of client a is delivered, and has not arrived"),
        (settle(1), "1-1 has 1 copies and the fates []"),
        (settle(5, {}), "1-5 has 2 copies and the fates [('delivered', None)]"),
        (
            settle(1, {"fate": "discarded", "reason": "OVERFLOW"}),
            "1-1 of call a.1 has arrived, and has the fates",
        ),
        (
            settle(1, {"fate": "refused", "reason": "NO_STREAM"}),
            "1-1 of call a.1 has arrived, and has the fates",
        ),
        (end(ledger=1), "the ledger does not balance"),
        (end(pending=1), "the ledger does not balance"),
        (lambda world: world.end.clear(), "the server has not come to its end"),
        (
            lambda world: world.end.append({"unsettled": "1-1", "place": "outbox"}),
            "1-1 has no fate, and is at outbox",
        ),
        (lambda world: world.response.messages.reverse(), "1-1 of call a.1 has arrived after 2"),
        (
            lambda world: world.response.messages.__setitem__(2, reply(2)),
            "the response of a.1 is on another stream",
        ),
        (
            lambda world: world.response.messages.__setitem__(2, reply(1, "done b.1")),
            "a.1 was answered",
        ),
    ],
)
def test_what_is_wrong_is_found(change, fault):
    world = World()
    change(world)
    assert any(found.startswith(fault) for found in world.faults()), world.faults()


@pytest.mark.parametrize(
    "change",
    [
        settle(1, LOST),  # the client may have it
        cut_with("response", 0, 1, **LOST),
        cut_with("get", 0, 3, fate="discarded", reason="OVERFLOW"),
        lambda world: (cut_with("response", 0)(world), setattr(world.response, "whole", False)),
        lambda world: (add("get", updated(5))(world), settle(5, {}, LOST)(world)),  # it is sent again
    ],
)
def test_what_may_be_is_not_wrong(change):
    world = World()
    change(world)
    assert world.faults() == []


def test_before_a_proxy_no_fate_says_what_has_arrived():
    world = World()
    del world.response.messages[0]
    assert world.faults() != []
    assert world.faults(proxied=True) == []


@pytest.mark.parametrize("options", [[], ["--proxy"]])
def test_clients_of_all_transports_find_nothing_wrong(options):
    command = [sys.executable, "-m", "tests.delivery.run", "--minutes", "0.08", "--seed", "1", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "0 faults" in ended.stdout
    assert "delivered" in ended.stdout
