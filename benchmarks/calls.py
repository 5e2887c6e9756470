"""Calls of a tool that differ from each other, and how each is judged."""

from collections.abc import Mapping
from typing import Any

import attrs

from benchmarks.answers import FIRST_NUMBER, Answer, WrongAnswer, result_of, text_of, words
from benchmarks.dialect import BENCH, Client, Dialect
from benchmarks.load import Question
from benchmarks.process import Target

MARK = str(FIRST_NUMBER)
"""Stands in a call for the number that is another one each time."""
SESSION = b"<session>"
"""Stands in a request for the id of its session."""


@attrs.frozen(kw_only=True)
class Call:
    """One call; that of which nothing is said is the uniform one, which `short-call` repeats.

    Attributes:
        tool: The tool's name.
        text: The argument of that name, which must come back; None where the tool has none, and answers with any text.
        arguments: The other arguments.
        meta: What its ``_meta`` holds beside what the revision asks for.
        fields: More lines of its head.
        chunked: Whether its body comes in chunks.
        notifications: How many there are before the reply.
        client: Who asks.
        pool: From which of the traffic's pools of sessions its session comes, counted from 0; None for 2026-07-28.
    """

    tool: str = "echo"
    text: str | None = words(FIRST_NUMBER)
    arguments: Mapping[str, object] = attrs.field(factory=dict)
    meta: Mapping[str, object] = attrs.field(factory=dict)
    fields: tuple[str, ...] = ()
    chunked: bool = False
    notifications: int = 0
    client: Client = BENCH
    pool: int | None = None

    def question(self, target: Target) -> Question:
        """Return it as it is made to a server; in a session, `SESSION` stands for that one's id."""
        if self.pool is None:
            dialect = Dialect(target.port, target.revision, client=self.client)
        elif target.session_revision is not None:
            dialect = Dialect(target.port, target.session_revision, SESSION, self.client)
        else:
            raise WrongAnswer("it has no sessions")
        arguments = {**({} if self.text is None else {"text": self.text}), **self.arguments}
        params: dict[str, Any] = {"name": self.tool, "arguments": arguments}
        if self.meta:
            params["_meta"] = self.meta
        message = dialect.message("tools/call", params, self.client.request_id(FIRST_NUMBER))
        request = dialect.post(message, self.fields, chunked=self.chunked)
        return Question(request, self.check, self.pool)

    def check(self, answer: Answer, number: int) -> None:
        """Judge the answer to it with a number.

        Raises:
            WrongAnswer: It is not the text that was sent, or its notifications are not those that were asked for.
        """
        text = text_of(result_of(answer, self.client.request_id(number)))
        if self.text is not None and text != self.text.replace(MARK, str(number)):
            raise WrongAnswer(f"not what was said: {text[:200]!r}")
        token = str(self.meta.get("progressToken")).replace(MARK, str(number))
        said = [message["params"] for message in answer.messages() if "method" in message]
        tokens = [str(params.get("progressToken")) for params in said if "clock=" in str(params)]
        if tokens != [token] * self.notifications:
            raise WrongAnswer(f"not {self.notifications} notifications for {token}: {said!r}")
