"""Tools that ask the client: as legacy clients are asked, and as those of 2026-07-28 are.

A tool that asks is the same in both eras; that there are two sets of them is the suite's doing.
"""

from typing import Any, Literal

import msgspec

from mcpbus import Context, Server
from mcpbus.asking import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Elicit,
    InputRequired,
    ListRoots,
    Sample,
)

Answered = AcceptedElicitation[Any] | DeclinedElicitation | CancelledElicitation


class Name(msgspec.Struct):
    name: str


class Color(msgspec.Struct):
    color: str


class Confirmation(msgspec.Struct):
    ok: bool


class PromptContext(msgspec.Struct):
    context: str


class Account(msgspec.Struct):
    username: str
    email: str


class Person(msgspec.Struct):
    """A form that is filled in already."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


def _titled(*choices: tuple[str, str]) -> list[dict[str, str]]:
    return [{"const": value, "title": title} for value, title in choices]


_OPTIONS = ["option1", "option2", "option3"]
CHOICES = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": _OPTIONS},
        "titledSingle": {
            "type": "string",
            "oneOf": _titled(
                ("value1", "First Option"), ("value2", "Second Option"), ("value3", "Third Option")
            ),
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": _titled(
                    ("value1", "First Choice"), ("value2", "Second Choice"), ("value3", "Third Choice")
                )
            },
        },
    },
}
"""A form with every way to offer a choice."""


def _told(answer: Answered) -> str:
    if isinstance(answer, AcceptedElicitation):
        return f"action=accept, content={msgspec.json.encode(answer.data).decode()}"
    return f"action={'decline' if isinstance(answer, DeclinedElicitation) else 'cancel'}, content={{}}"


# -- as the legacy scenarios ask ---------------------------------------------------------------------------------------


async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    sampled = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {sampled.text}"


async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user for an account."""
    return f"User response: {_told(await ctx.elicit(message, Account))}"


async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a form that is filled in already."""
    return f"Elicitation completed: {_told(await ctx.elicit('Please review and update the form.', Person))}"


async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask for choices of every kind."""
    return f"Elicitation completed: {_told(await ctx.elicit('Please choose.', CHOICES))}"


# -- as the scenarios of 2026-07-28 ask --------------------------------------------------------------------------------


def _greeting(answer: Answered) -> str:
    return (
        f"Hello, {answer.data.name}!"
        if isinstance(answer, AcceptedElicitation)
        else "Hello, whoever you are!"
    )


async def test_streaming_elicitation(ctx: Context) -> str:
    """Ask for a name, in the middle of a stream if there is one."""
    return _greeting(await ctx.elicit("What is your name?", Name))


async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask for a name."""
    return _greeting(await ctx.elicit("What is your name?", Name, key="user_name"))


async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model."""
    sampled = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model says: {sampled.text}"


async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the client's roots."""
    roots = await ctx.list_roots(key="client_roots")
    return f"The roots are {', '.join(root.uri for root in roots)}."


async def test_input_required_result_request_state(ctx: Context) -> str | InputRequired:
    """Ask in so many words, and be called again with a state."""
    if ctx.round_state is None:
        return InputRequired({"confirm": Elicit("Please confirm", Confirmation)}, state={"rounds": 1})
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"state-ok: {ctx.round_state['rounds']} round, {_told(answer)}"


async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask three things at once."""
    answers = await ctx.ask_all(
        {
            "user_name": Elicit("What is your name?", Name),
            "greeting": Sample("Generate a greeting", max_tokens=50),
            "client_roots": ListRoots(),
        }
    )
    return (
        f"{_greeting(answers['user_name'])} {answers['greeting'].text} Roots: {len(answers['client_roots'])}"
    )


async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask one thing after another."""
    name = await ctx.elicit("Step 1: What is your name?", Name, key="step1")
    color = await ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")
    return f"{_greeting(name)} Your color: {_told(color)}"


async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask for a confirmation; the state that travels is sealed."""
    return f"Confirmed: {_told(await ctx.elicit('Please confirm', Confirmation, key='confirm'))}"


async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask whatever the client can be asked."""
    questions = {
        "elicitation": Elicit("What is your name?", Name),
        "sampling": Sample("Generate a greeting", max_tokens=50),
        "roots": ListRoots(),
    }
    declared = ctx.client.capabilities
    answers = await ctx.ask_all({name: asked for name, asked in questions.items() if name in declared})
    return f"Answered: {', '.join(answers)}"


async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks for its context."""
    answer = await ctx.elicit("What context should the prompt use?", PromptContext, key="user_context")
    return f"Use this context: {_told(answer)}"


def add_asking(server: Server) -> None:
    """Register the tools and the prompt."""
    for function in (
        test_sampling,
        test_elicitation,
        test_elicitation_sep1034_defaults,
        test_elicitation_sep1330_enums,
        test_streaming_elicitation,
        test_input_required_result_elicitation,
        test_input_required_result_sampling,
        test_input_required_result_list_roots,
        test_input_required_result_request_state,
        test_input_required_result_multiple_inputs,
        test_input_required_result_multi_round,
        test_input_required_result_tampered_state,
        test_input_required_result_capabilities,
    ):
        server.add_tool(function)
    server.add_prompt(test_input_required_result_prompt)
