"""What a return annotation promises where a function may also ask for another run."""

import pytest

from mcpbus import Server
from mcpbus.asking import InputRequired
from mcpbus.features.signature import MISSING, read_signature
from mcpbus.protocol.revisions import LATEST


@pytest.mark.parametrize(
    ("written", "promised"),
    [
        (int | InputRequired, int),
        (InputRequired | None, type(None)),
        (str | int | InputRequired, str | int),
        (InputRequired, MISSING),
        (str | int, str | int),
        (str, str),
    ],
)
def test_another_run_is_no_part_of_the_result(written, promised):
    async def handler():
        raise NotImplementedError

    handler.__annotations__["return"] = written
    assert read_signature(handler, "handler").returns == promised


def test_the_output_schema_is_that_of_the_result():
    server = Server("s")

    @server.tool
    async def area(side: int) -> int | InputRequired:
        return side * side

    shown = server.features.find_tool("area", None).describe(LATEST)
    assert bytes(shown.output_schema) == b'{"type":"integer"}'


def test_the_type_of_a_resource_is_that_of_its_contents():
    server = Server("s")

    @server.resource("a://b")
    async def text() -> str | InputRequired:
        return "text"

    assert server.features.resources.get("a://b").mime_type == "text/plain"
