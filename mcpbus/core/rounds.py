"""A handler's task: the handler, and what it wants after an `InputRequired`."""

import msgspec

from mcpbus.core.call import Call
from mcpbus.core.context import Context
from mcpbus.core.pending_questions import Required
from mcpbus.features.schemas import jsontypes
from mcpbus.protocol.errors import INTERNAL_ERROR, ProtocolError

_MOST_ROUNDS = 100


async def run_rounds(call: Call) -> bytes | Required:
    """Run a call's handler; where there are no rounds, also what it wants after an `InputRequired`.

    Raises:
        ProtocolError: The handler wants more rounds than anybody would answer.
    """
    rounds = 0
    while not isinstance(result := await call.handler.run(call), bytes):
        context = Context(call)
        if not call.direct:
            return Required(context.prepare(result.questions), jsontypes.encode(result.state))
        call.begin_again(result.state)
        for key in result.questions:
            call.answers.pop(key, None)  # of an earlier round: it is asked again
        await context.ask_all(result.questions)
        # The next run has the answers of this one too, as if its client had brought them back.
        call.answers |= {key: msgspec.json.decode(answer) for key, answer in call.used.items()}
        call.begin_again(result.state)
        rounds += 1
        if rounds == _MOST_ROUNDS:
            why = f"The server asked {_MOST_ROUNDS} times and did not come to an end"
            raise ProtocolError(INTERNAL_ERROR, why)
    return result
