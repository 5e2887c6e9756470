"""A server that asks for everything that a form can ask for."""

from mcpbus import Context, Server

FORM = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["oslo", "bergen"], "description": "Where you are."},
        "size": {
            "type": "string",
            "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}],
        },
        "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3},
        "snow": {"type": "boolean"},
        "mail": {"type": "string", "format": "email"},
        "with": {"type": "array", "items": {"type": "string", "enum": ["skis", "sledge"]}},
        "note": {"type": "string"},
    },
    "required": ["city", "size", "days", "snow", "mail", "with"],
}

server = Server("asking", version="1")


@server.tool
async def plan(ctx: Context) -> str:
    await ctx.info("about to ask")
    answer = await ctx.elicit("Where to?\x1b[2J", FORM)
    return f"{type(answer).__name__} {getattr(answer, 'data', None)}"


@server.tool
async def pay(ctx: Context) -> str:
    answer = await ctx.elicit_url("Pay, please", "https://pay.example.com/42")
    return type(answer).__name__
