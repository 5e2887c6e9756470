"""Annotations are enforced in prompts, in variables of URIs and in forms as they are in tools."""

import dataclasses
import datetime as dt
import enum
import uuid
from typing import Annotated, Literal
from urllib.parse import quote

import annotated_types as at
import pydantic as p
import pytest
from type_rows import shown

from mcpbus import AcceptedElicitation, Context, ProtocolError, Server
from mcpbus.testing import open_client


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


def inside(path: str) -> str:
    if ".." in path:
        raise ValueError("leaves the folder")
    return path


# The annotation, a text that is accepted, the argument, and a text that is rejected.
ROWS = [
    (int, "5", 5, "x"),
    (bool, "true", True, "x"),
    (float, "1.5", 1.5, "x"),
    (Annotated[int, at.Ge(1)], "5", 5, "0"),
    (Literal["b", "a"], "a", "a", "c"),
    (Color, "red", Color.RED, "green"),
    (dt.date, "2026-01-01", dt.date(2026, 1, 1), "x"),
    (p.FutureDate, "2999-01-01", dt.date(2999, 1, 1), "2020-01-01"),
    (p.EmailStr, "ann@example.org", "ann@example.org", "ann"),
    (Annotated[str, p.AfterValidator(inside)], "a", "a", "..x"),
    (Annotated[str, p.Field(description="a path"), p.AfterValidator(inside)], "a", "a", "..x"),
    (Annotated[str, p.BeforeValidator(lambda v: v.strip()), at.MinLen(2)], " ab ", "ab", " a "),
    (Annotated[str, p.PlainValidator(inside, json_schema_input_type=str)], "a", "a", "..x"),
    (Annotated[str, p.WrapValidator(lambda v, handler: inside(handler(v)))], "a", "a", "..x"),
    (
        Annotated[str, p.StringConstraints(strip_whitespace=True, to_upper=True, min_length=1)],
        " a ",
        "A",
        "  ",
    ),
    (Annotated[str, at.Predicate(str.isalpha)], "a", "a", "1"),
    (at.LowerCase[str], "a", "a", "A"),
    (Annotated[str, at.Len(1, 3)], "abc", "abc", "abcd"),
]
ONLY_TEXTS = [
    (p.PositiveInt, "5", 5, "0"),
    (Annotated[int, p.Field(multiple_of=3)], "9", 9, "10"),
    (Annotated[str, p.Field(pattern="^[a-z]+$")], "a", "a", "A"),
    (p.UUID4, "16fd2706-8baf-433b-82eb-8c7fada847da", uuid.UUID("16fd2706-8baf-433b-82eb-8c7fada847da"), "a8098c1a-f86e-11da-bd1a-00112444be1e"),
    (list[int], "[1, 2]", [1, 2], '["x"]'),
    (int | None, "5", 5, "x"),
]  # fmt: skip
"""Types that prompts and URIs have, and forms of the protocol have not."""


@pytest.mark.parametrize(("annotation", "good", "argument", "bad"), [*ROWS, *ONLY_TEXTS])
async def test_a_prompt_enforces(annotation, good, argument, bad, autojump_clock):
    server = Server("x")

    @server.prompt
    async def prompt(v: annotation) -> str:
        return shown(v)

    async with open_client(server) as client:
        [message] = await client.get_prompt("prompt", {"v": good})
        assert message["content"]["text"] == shown(argument)
        with pytest.raises(ProtocolError, match="v"):
            await client.get_prompt("prompt", {"v": bad})


@pytest.mark.parametrize(("annotation", "good", "argument", "bad"), [*ROWS, *ONLY_TEXTS])
async def test_a_variable_of_a_uri_enforces(annotation, good, argument, bad, autojump_clock):
    server = Server("x")

    @server.resource("x://{v}")
    async def read(v: annotation) -> str:
        return shown(v)

    async with open_client(server) as client:
        [content] = await client.read_resource(f"x://{quote(good, safe='')}")
        assert content["text"] == shown(argument)
        with pytest.raises(ProtocolError):
            await client.read_resource(f"x://{quote(bad, safe='')}")


@pytest.mark.parametrize(("annotation", "good", "argument", "bad"), ROWS)
async def test_a_form_enforces(annotation, good, argument, bad, autojump_clock):
    """A client is asked again if the content of its form is refused; here it declines then."""
    form = dataclasses.make_dataclass("Form", [("v", annotation)])
    server = Server("x")
    answers = []

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("?", form)
        return shown(answer.data.v) if isinstance(answer, AcceptedElicitation) else "declined"

    async def answer(message, params):
        return {"action": "accept", "content": {"v": answers.pop()}} if answers else {"action": "decline"}

    async with open_client(server, capabilities={"elicitation": {}}, on_input_request=answer) as client:
        answers.append(argument if isinstance(argument, (bool, int, float)) else good)
        assert (await client.call_tool("ask"))["content"][0]["text"] == shown(argument)
        answers.append(0 if bad == "0" else bad)
        assert (await client.call_tool("ask"))["content"][0]["text"] == "declined"
