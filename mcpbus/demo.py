"""The server of ``mcpbus demo``, for a first look with any client: ``make demo``, ``mcpbus demo``, ``python -m mcpbus.demo``.

It has two tools that report their progress, a resource, a template with a completion, and a prompt with a completion.
"""

import os

import trio

from mcpbus import Context, ResourceNotFoundError, Server

GREETINGS = {"english": "Hello", "french": "Bonjour", "german": "Guten Tag", "spanish": "Buenos días"}

server = Server(
    "mcpbus-demo",
    version="1.0.0",
    title="mcpbus demo",
    instructions="Call run_script, and watch its log lines and progress arrive while it runs.",
)


@server.tool
async def run_script(ctx: Context, steps: int = 10, interval: float = 0.5) -> str:
    """Run a script; each step reports progress and a log line, then takes `interval` seconds."""
    for step in range(1, steps + 1):
        await ctx.progress(step, total=steps, message=f"step {step} of {steps}")
        await ctx.info(f"step {step}: still running")
        await trio.sleep(interval)
    return f"{steps} steps done"


@server.tool
async def multi_greet(name: str, ctx: Context) -> str:
    """Greet somebody, after three reports about it."""
    for number, what in enumerate(("looking for the name", "choosing a greeting", "clearing the throat"), 1):
        await ctx.progress(number, total=3, message=what)
        await ctx.info(what)
    return f"Hello, {name}!"


@server.resource("demo://greetings", title="All greetings")
async def greetings() -> dict[str, str]:
    """The greetings of this server, by language."""
    return GREETINGS


@server.resource("demo://greetings/{language}")
async def greeting(language: str) -> str:
    """One greeting."""
    if language not in GREETINGS:
        raise ResourceNotFoundError(f"no greeting in {language!r}")
    return GREETINGS[language]


@server.prompt(title="Write a greeting")
async def write_greeting(name: str, language: str = "english") -> str:
    """Ask for a greeting card."""
    return f"Write a card to {name} in {language}. Begin with {GREETINGS.get(language, 'a greeting')!r}."


@server.completion("write_greeting", "language")
@server.completion("demo://greetings/{language}", "language")
async def complete_language(typed: str) -> list[str]:
    """Propose the languages that begin with what was typed."""
    return [language for language in GREETINGS if language.startswith(typed.lower())]


if __name__ == "__main__":
    server.run(bind=os.environ.get("BIND", "127.0.0.1:8000"))
