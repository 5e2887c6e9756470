"""Tools that the suite uses to look at revision 2026-07-28: what a server may not do, and what it must tell."""

from mcpbus import Context, Server


async def test_missing_capability(ctx: Context) -> str:
    """Need a client that can sample."""
    sampled = await ctx.sample("Say something.", max_tokens=10)
    return f"The client can sample: {sampled.text}"


async def test_logging_tool(ctx: Context) -> str:
    """Send a log line to whoever wants it."""
    await ctx.info("A line for whoever asked for lines.")
    return "A line was logged."


async def dummy_tool() -> str:
    """Come and go."""
    return "I was here."


async def dummy_prompt() -> str:
    """Come and go."""
    return "I was here."


def add_diagnostics(server: Server) -> None:
    """Register the tools, two of which change what the server offers and change it back when called again."""

    @server.tool
    async def test_trigger_tool_change() -> str:
        """Add or remove a tool."""
        if "dummy_tool" in server.features.tools:
            server.remove_tool("dummy_tool")
        else:
            server.add_tool(dummy_tool)
        return "The list of tools has changed."

    @server.tool
    async def test_trigger_prompt_change() -> str:
        """Add or remove a prompt."""
        if "dummy_prompt" in server.features.prompts:
            server.remove_prompt("dummy_prompt")
        else:
            server.add_prompt(dummy_prompt)
        return "The list of prompts has changed."

    server.add_tool(test_missing_capability)
    server.add_tool(test_logging_tool)
