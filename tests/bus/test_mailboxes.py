"""What no actor of the bus handled has a fate all the same."""

import pytest
from mcpbus_actors import DeadLetter, DeadLetterReason

from mcpbus.core import hub
from mcpbus.core.message_stream import Finish, UnsentReturned
from mcpbus.core.outbound import OutboundNotification, UnencodableNotification
from mcpbus.core.outbox import OutboundMessage
from mcpbus.core.receipt import DELIVERED, Fate, FateKind, Ledger
from mcpbus.protocol.revisions import Era
from mcpbus.protocol.routes import MessageKind, Reason


@pytest.mark.parametrize("discard", list(DeadLetterReason))
def test_a_message_that_was_not_handled_is_discarded(discard):
    ledger = Ledger()
    said = OutboundNotification(MessageKind.LIST_CHANGED, ledger.emit("m"), b"{}")
    hub.settle(DeadLetter(None, said, discard))
    assert said.receipt.fate.kind is FateKind.DISCARDED
    assert ledger.balance() == 0


@pytest.mark.parametrize("reason", [DeadLetterReason.FAILED, DeadLetterReason.STOPPED])
def test_what_could_not_be_said_for_a_defect_has_a_fate_too(reason):
    ledger = Ledger()
    said = OutboundNotification(MessageKind.LOG, ledger.emit("m"), b"{}")
    hub.settle(DeadLetter(None, UnencodableNotification(said, LookupError("boom")), reason))
    assert said.receipt.fate.kind is FateKind.DISCARDED
    assert ledger.balance() == 0
    hub.settle(
        DeadLetter(None, UnencodableNotification(said, LookupError("boom")), reason)
    )  # which changes nothing


@pytest.mark.parametrize(
    "make",
    [
        lambda receipt: OutboundNotification(MessageKind.LIST_CHANGED, receipt, b"{}"),
        lambda receipt: OutboundMessage(MessageKind.LIST_CHANGED, Era.LEGACY, b"{}", receipt),
    ],
)
def test_a_message_that_has_a_fate_keeps_it(make):
    said = make(Ledger().emit("m"))
    said.receipt.settle(DELIVERED)
    hub.settle(DeadLetter(None, said, DeadLetterReason.FAILED))
    assert said.receipt.fate == DELIVERED


def test_nothing_is_to_be_settled_of_what_is_said_among_actors():
    hub.settle(DeadLetter(None, Finish(), DeadLetterReason.STOPPED))


def test_a_question_that_was_not_handled_is_refused_and_its_asker_told():
    told = []
    question = OutboundMessage(
        MessageKind.QUESTION, Era.LEGACY, b"{}", Ledger().emit("m"), refused=told.append
    )
    hub.settle(DeadLetter(None, question, DeadLetterReason.FULL))
    assert question.receipt.fate.kind is FateKind.REFUSED
    assert told == [Reason.OVERFLOW]


def test_what_a_lost_get_stream_gives_back_to_nobody_is_discarded():
    ledger = Ledger()
    waiting = [
        OutboundMessage(MessageKind.LIST_CHANGED, Era.LEGACY, b"{}", ledger.emit("m")) for _ in range(2)
    ]
    hub.settle(DeadLetter(None, UnsentReturned(None, waiting, []), DeadLetterReason.CLOSED))
    assert [m.receipt.fate for m in waiting] == [Fate.discarded(Reason.SESSION_ENDED)] * 2
    assert ledger.balance() == 0
