"""A handler's task: the handler, and what it wants after an `InputRequired`."""

from mcpbus.core.call import CallActor
from mcpbus.core.context import Context
from mcpbus.core.input_requests import InputNeeded
from mcpbus.features.schemas import python_types
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError

_MOST_ROUNDS = 100


async def run_rounds(call: CallActor) -> bytes | InputNeeded:
    """Run a call's handler; where there are no rounds, also what it wants after an `InputRequired`.

    Raises:
        ProtocolError: The handler wants more rounds than anybody would answer.
    """
    rounds = 0
    while not isinstance(result := await call.handler.run(call), bytes):
        context = Context(call)
        if not call.asks_directly:
            return InputNeeded(context.prepare(result.questions), python_types.encode(result.state))
        call.answers.begin_again(result.state)
        call.answers.forget(result.questions)
        await context.ask_all(result.questions)
        call.answers.give_back()
        call.answers.begin_again(result.state)
        rounds += 1
        if rounds == _MOST_ROUNDS:
            why = f"The server asked {_MOST_ROUNDS} times and did not come to an end"
            raise ProtocolError(INTERNAL_ERROR, why)
    return result
