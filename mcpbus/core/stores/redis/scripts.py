"""The scripts that somebody has Redis run without waiting for them: sent at once, and heard of by one task for all."""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, Final

import attrs
import trio

from mcpbus.core.stores.protocol import Promise
from mcpbus.core.stores.redis.commands import BaseConnection, NoScriptError, RedisDownError, Script, Value
from mcpbus.core.stores.redis.reconnect import ReconnectingConnection, is_answer, send

MOST: Final = 100_000
"""How many there may be. Streams have one each, and whoever has more of those has nothing more kept until Redis has caught up."""


@attrs.define(eq=False, kw_only=True)
class _Sent(Promise):
    """A script that is to be run.

    Attributes:
        script: The script.
        rest: What it is given.
        until: When it takes too long.
        wanted: Whether somebody still wants to hear of it; else it is not sent again.
        connection: On which it was sent last, if it was.
        answer: What is answered there, see `send`.
        awaited: Set when it has ended, if somebody waits for that beside who asked for it.
    """

    script: Script
    rest: Sequence[Value]
    until: float
    wanted: bool = True
    connection: BaseConnection | None = None
    answer: Any = None
    awaited: trio.Event | None = None

    def withdraw(self) -> None:
        """See `Promise`."""
        super().withdraw()
        self.wanted = False

    def send(self, connection: BaseConnection) -> None:
        """Send it to whoever is expected to know it."""
        self.connection = connection
        self.answer = send(connection, b"EVALSHA", [self.script.digest, *self.rest])

    def send_whole(self, connection: BaseConnection) -> None:
        """Send it to whoever may not know it."""
        self.connection = connection
        self.answer = send(connection, b"EVAL", [self.script.text, *self.rest])


class PromisedScripts:
    """All of them, sent in the order in which they were asked for.

    Redis may run them in another one: where it was made to forget a script, and is told it by somebody else meanwhile, those that came
    before that are run after those behind them. So whoever needs an order asks for one after the other, as streams do for their events;
    and what is to come after all of them, such as to forget what was kept, is asked for once they have ended, see `wait_ended`.

    When a connection is lost all that were not answered go out on the next one, before anything else. What its caller has given up is not
    among them.

    Args:
        timeout: Seconds that each may take, with as many connections as there are meanwhile.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._sent: deque[_Sent] = deque()
        self._hears = False  # whether a task does

    def ask(self, kept: ReconnectingConnection, script: Script, rest: Sequence[Value]) -> Promise:
        """Run a script, on a connection that there may not be yet. No schedule point."""
        if len(self._sent) >= MOST:
            error = RedisDownError(
                f"{kept.where} has not answered to {MOST} scripts, and is asked for no more"
            )
            return Promise(ended=True, error=error)
        sent = _Sent(script=script, rest=rest, until=trio.current_time() + self._timeout)
        connection = kept.usable
        if connection is not None:
            sent.send(connection)
        self._sent.append(sent)
        if not self._hears:
            self._hears = True
            trio.lowlevel.spawn_system_task(
                self._hear_all, kept, name="what Redis answers", context=Context()
            )
        return sent

    async def send_again(self, connection: BaseConnection) -> None:
        """Send on a new connection what was not answered on those before it. Not a schedule point."""
        for sent in self._sent:
            if sent.wanted and not await _is_answered(sent):
                sent.send_whole(connection)

    async def wait_ended(self) -> None:
        """Wait until all have ended that were asked for so far."""
        if self._sent:
            last = self._sent[-1]
            if last.awaited is None:
                last.awaited = trio.Event()
            await last.awaited.wait()

    async def _hear_all(self, kept: ReconnectingConnection) -> None:
        """Hear of each, in order."""
        try:
            while self._sent:
                sent = self._sent[0]
                try:
                    sent.result = await self._hear(sent, kept)
                except Exception as error:  # noqa: BLE001 - whoever waits for it is told
                    sent.error = error
                self._sent.popleft()
                sent.end()
                if sent.awaited is not None:
                    sent.awaited.set()
        finally:
            self._hears = False
            self._sent.clear()

    async def _hear(self, sent: _Sent, kept: ReconnectingConnection) -> Any:
        if sent.answer is not None and sent.answer.complete:  # many come together
            with suppress(Exception):
                return await sent.answer
        with trio.CancelScope(deadline=sent.until):
            return await self._wait(sent, kept)
        if sent.connection is None or sent.answer is None:
            raise kept.out_of_reach(self._timeout)
        sent.connection.invalidate()  # the network may be dead, and say nothing
        raise kept.silent(self._timeout)

    async def _wait(self, sent: _Sent, kept: ReconnectingConnection) -> Any:
        """Wait for an answer, on one connection after the other."""
        while True:
            connection = sent.connection
            if connection is None or sent.answer is None:
                connection = await kept.wait()
                if not sent.wanted:
                    return None
                if sent.answer is None:  # else it was sent as that was made
                    sent.send_whole(connection)
                continue
            try:
                return await sent.answer
            except NoScriptError:
                await self._send_unknown(connection)
            except Exception as error:  # noqa: BLE001 - whatever ended the connection
                kept.judge(connection, error)
                sent.answer = None

    async def _send_unknown(self, connection: BaseConnection) -> None:
        """Send once more, with their texts, those that Redis did not know: often all that wait. Not a schedule point.

        The connection may have been lost since; then they go out on the next one.
        """
        for sent in self._sent:
            if sent.connection is not connection or sent.answer is None or not sent.answer.complete:
                continue
            if isinstance(await _failure(sent), NoScriptError):
                if sent.wanted and connection.usable:
                    sent.send_whole(connection)
                else:
                    sent.answer = None


async def _is_answered(sent: _Sent) -> bool:
    """Return whether the answer has come, of what was sent on a connection that has ended. Not a schedule point."""
    if sent.answer is None:
        return False
    failure = await _failure(sent)
    return failure is None or is_answer(failure)


async def _failure(sent: _Sent) -> Exception | None:
    """Return what was raised, if anything was, of what is answered or will not be. Not a schedule point."""
    try:
        await sent.answer
    except Exception as error:  # noqa: BLE001 - others' code
        return error
    return None
