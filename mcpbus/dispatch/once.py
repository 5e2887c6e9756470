"""A call that is run anew, where its round was used nowhere."""

from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.call import CallActor, Handler
from mcpbus.core.other_processes import RoundRegistry
from mcpbus.core.parked_calls import round_used
from mcpbus.features.asking.input_required import InputRequired
from mcpbus.protocol.request_state import RoundState


class SingleUseHandler:
    """A `Handler` in the place of the one that is to run, until it is known that no other process has used the round.

    Args:
        rounds: Knows that.
        state: What was brought back of the round.
        handler: What is to run.
    """

    def __init__(self, rounds: RoundRegistry, state: RoundState, handler: Handler) -> None:
        self.replayable = handler.replayable
        self.rounds = handler.rounds
        self.own_rounds = handler.own_rounds
        self.task_support = handler.task_support
        self._shared = rounds
        self._state = state
        self._handler = handler

    async def run(self, call: CallActor) -> bytes | InputRequired:
        """Use the round up, and run; see `Handler`.

        The round is given back only if nobody asked for it to be used, the hub being overloaded. Where the client leaves meanwhile,
        nobody knows whether it is used up by then, and it is not run a second time.
        """
        try:
            fresh = await self._shared.use(self._state)
        except ServerOverloaded:
            call.bus.parked_calls.give_back(self._state)
            raise
        if not fresh:
            raise round_used()
        call.handler = self._handler
        return await self._handler.run(call)
