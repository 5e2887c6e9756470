"""What a docstring says of a function's parameters is told where clients look for it."""

import inspect
from typing import Annotated

import msgspec
import pytest

from mcpbus import Context, Server
from mcpbus.features.docstrings import read_docstring
from mcpbus.testing import open_client

GOOGLE = """Forecast the weather.

Rain is likely.

Args:
    city: Where, such as
        Bergen.
    days (int): How many.

Returns:
    A line a day.
"""
NUMPY = """Forecast the weather.

Rain is likely.

Parameters
----------
city : str
    Where, such as
    Bergen.
days : int, optional
    How many.

Returns
-------
str
    A line a day.
"""
SPHINX = """Forecast the weather.

Rain is likely.

:param city: Where, such as
    Bergen.
:type city: str
:param int days: How many.
:returns: A line a day.
"""


def function_with(docstring):
    async def forecast(city, days):
        raise NotImplementedError

    forecast.__doc__ = docstring
    return forecast


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX])
@pytest.mark.parametrize("indented", [False, True])
def test_parameters_are_parted_from_the_description(docstring, indented):
    if indented:
        docstring = docstring.replace("\n", "\n    ")
    read = read_docstring(function_with(docstring))
    assert read.parameters == {"city": "Where, such as Bergen.", "days": "How many."}
    assert read.description.startswith("Forecast the weather.\n\nRain is likely.\n\n")
    assert read.description.endswith("A line a day.")
    assert "Bergen" not in read.description
    assert "\n\n\n" not in read.description


@pytest.mark.parametrize(
    "docstring",
    [
        "Forecast.",
        "Forecast.\n\nExample::\n\n    Args: none of these",
        "See https://example.org: a page.\n\nNote:\n    Args are named.",
        "The words that follow:\n\n- Args: what is given\n- Returns: what comes",
        "Args:\nnothing is indented",
        "Args:\n    prose that names nothing",
        "Forecast.\n\n\n\nLater.",
    ],
)
def test_other_text_stays_as_it_is(docstring):
    read = read_docstring(function_with(docstring))
    assert read.description == inspect.cleandoc(docstring)
    assert read.parameters == {}


@pytest.mark.parametrize("docstring", [None, "", "\n    Args:\n        city: Where.\n    "])
def test_where_nothing_is_left_there_is_no_description(docstring):
    assert read_docstring(function_with(docstring)).description is None


async def test_clients_are_told(autojump_clock):
    server = Server("weather")

    @server.tool
    async def forecast(
        city: str,
        days: Annotated[int, msgspec.Meta(ge=1)],
        unit: Annotated[str, "C or F."],
        ctx: Context,
        other: bool = False,
    ) -> str:
        """Forecast.

        Args:
            city: Where.
            days: How many.
            unit: Not told: the annotation says it.
            ctx: Not told: it is no argument.
            missing: Not told: there is none.
        """

    @server.prompt
    async def advise(city: str) -> str:
        """Advise.

        Args:
            city: Where.
        """

    async with open_client(server) as client:
        [tool] = (await client.request("tools/list"))["tools"]
        [prompt] = (await client.request("prompts/list"))["prompts"]
    assert tool["description"] == "Forecast."
    properties = tool["inputSchema"]["properties"]
    told = {name: schema.get("description") for name, schema in properties.items()}
    assert told == {"city": "Where.", "days": "How many.", "unit": "C or F.", "other": None}
    assert properties["days"]["minimum"] == 1
    assert prompt["description"] == "Advise."
    assert prompt["arguments"] == [{"name": "city", "description": "Where.", "required": True}]


def test_with_a_schema_by_hand_the_description_is_the_whole_docstring():
    server = Server("weather")

    @server.tool(input_schema={"type": "object"})
    async def forecast(arguments: dict) -> str:
        """Forecast.

        Args:
            arguments: All of them.
        """

    assert server.features.tools.get("forecast").description.endswith("All of them.")
