"""JSON answers, and progress that vanished without a word.

The system: a server on the TypeScript SDK with JSON responses switched on.

What went wrong: progress notifications of a request had nowhere to go, since a JSON answer is one message, and vanished. No
error, no log line: the tool could not know that nobody saw what it reported.

What must hold: by default an answer is JSON only if the tool said nothing, and turns into an SSE stream at its first
notification. Where JSON is forced, each notification is discarded explicitly: it is counted, and its receipt tells the tool.

Here one tool is served both ways. Its result says how much of what it reported had a way to the client.
"""

import attrs

from examples.failures.client import Exchange, HttpClient
from examples.failures.stage import Show, run, serving
from mcpbus import Context, Reason, Server

server = Server("library")


@server.tool
async def index(files: list[str], ctx: Context) -> str:
    """Index files, and report each; the result says whether anybody could see the reports."""
    receipts = [
        await ctx.progress(done, total=len(files), message=file) for done, file in enumerate(files, start=1)
    ]
    # A receipt has its fate at once where the message can go nowhere; otherwise it is still on its way.
    reasons = [receipt.fate.reason.value for receipt in receipts if receipt.fate and receipt.fate.reason]
    if reasons:
        return f"indexed {len(files)}; {len(reasons)} reports not sent: {', '.join(sorted(set(reasons)))}"
    return f"indexed {len(files)}"


@attrs.frozen
class Outcome:
    """One call: what the client was sent, and what the server counted as discarded."""

    answer: Exchange
    discarded: dict[Reason, int]


async def demonstrate(show: Show, *, response: str = "auto") -> Outcome:
    """Serve with one form of answers, call the tool, and show what arrives."""
    async with serving(server, response=response) as (bus, url):
        client = HttpClient(url)
        await client.initialize()
        answer = await client.call("index", {"files": ["a.txt", "b.txt", "c.txt"]})
        show(f"response={response!r}: {answer.headers['content-type']}")
        for message in answer.messages[:-1]:
            show(f"  {message['method']} {message['params']['message']}")
        show(f"  the result: {answer.text}")
        discarded = dict(bus.statistics().discarded)
        show(f"  discarded: { {reason.value: n for reason, n in discarded.items()} }")
        return Outcome(answer, discarded)


async def compare(show: Show) -> None:
    """Show both forms."""
    await demonstrate(show, response="auto")
    await demonstrate(show, response="json")


if __name__ == "__main__":
    run(compare)
