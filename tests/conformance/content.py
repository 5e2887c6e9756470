"""Tools of every kind of content, and of every kind of thing that a tool may say while it runs."""

import struct
import zlib
from typing import Annotated, Any

import msgspec
import trio

from mcpbus import Audio, Context, File, Image, Server, ToolError


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PIXEL = b"".join(
    (
        b"\x89PNG\r\n\x1a\n",
        _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)),
        _chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00")),
        _chunk(b"IEND", b""),
    )
)
"""A PNG image of one red pixel."""
SILENCE = b"RIFF" + struct.pack(
    "<I4s4sIHHIIHH4sI", 36, b"WAVE", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", 0
)
"""A WAV file of no samples."""

_PAUSE = 0.05

SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


async def test_simple_text() -> str:
    """Return a text."""
    return "This is a simple text response for testing."


async def test_image_content() -> Image:
    """Return an image."""
    return Image(PIXEL)


async def test_audio_content() -> Audio:
    """Return a piece of audio."""
    return Audio(SILENCE, "audio/wav")


async def test_embedded_resource() -> File:
    """Return a resource that is embedded in the result."""
    return File("This is an embedded resource content.", "test://embedded-resource", "text/plain")


async def test_multiple_content_types() -> list[Any]:
    """Return a text, an image and a resource."""
    return [
        "Multiple content types test:",
        Image(PIXEL),
        File('{"test":"data","value":123}', "test://mixed-content-resource", "application/json"),
    ]


async def test_error_handling() -> str:
    """Fail, as a tool does."""
    raise ToolError("This tool intentionally returns an error for testing")


async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100, f"Completed step {done} of 100")
        await trio.sleep(_PAUSE)
    return "Progress was reported."


async def test_tool_with_logging(ctx: Context) -> str:
    """Send three log lines."""
    await ctx.info("Tool execution started")
    await trio.sleep(_PAUSE)
    await ctx.info("Tool processing data")
    await trio.sleep(_PAUSE)
    await ctx.info("Tool execution completed")
    return "Lines were logged."


async def test_reconnection(ctx: Context) -> str:
    """Have the client come back for the result."""
    await ctx.close_stream(retry=0.5)
    await trio.sleep(2 * _PAUSE)
    return "The result was kept for you."


async def json_schema_2020_12_tool(arguments: dict[str, Any]) -> str:
    """Take what a schema with much of JSON Schema 2020-12 describes."""
    return f"Called with {', '.join(arguments) or 'nothing'}."


async def test_x_mcp_header(
    region: Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})],
) -> str:
    """Take a parameter that HTTP clients mirror into a header."""
    return f"The region is {region}."


def add_content(server: Server) -> None:
    """Register the tools; the first of all must be one that can be called without arguments."""
    for function in (
        test_simple_text,
        test_image_content,
        test_audio_content,
        test_embedded_resource,
        test_multiple_content_types,
        test_error_handling,
        test_tool_with_progress,
        test_tool_with_logging,
        test_reconnection,
        test_x_mcp_header,
    ):
        server.add_tool(function)
    server.add_tool(json_schema_2020_12_tool, input_schema=SCHEMA_2020_12)
