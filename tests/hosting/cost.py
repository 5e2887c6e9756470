"""The cost of hosted servers beside their own transport: ``python -m tests.hosting.cost``, on a machine that does nothing else.

It reads `/proc`, so it needs Linux. Prints the processor time of the server's process for each short call, and how much memory a session takes. The targets are half of
the processor time of the SDK's own transport, and 10 KiB a session.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import httpx

SERVERS = Path(__file__).parent / "servers"
CONNECTIONS, CALLS, SESSIONS = 8, 100, 200
TICK = os.sysconf("SC_CLK_TCK")
WAYS = {
    "own": "import uvicorn; uvicorn.run(mcp.streamable_http_app(), port=0, access_log=False)",
    "asyncio": "import mcpbus; mcpbus.host(mcp).run(bind='127.0.0.1:0')",
    "trio": "import mcpbus; mcpbus.host(mcp, loop='trio').run(bind='127.0.0.1:0')",
}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "cost", "version": "1"}}
BOTH = {"accept": "application/json, text/event-stream"}


class Session:
    """A legacy session on a connection of its own."""

    def __init__(self, url):
        self.url, self.headers = url, BOTH
        self.http = httpx.Client(timeout=60, verify=False)
        begun = self.post({"id": 0, "method": "initialize", "params": HELLO})
        self.headers = BOTH | {
            "mcp-session-id": begun.headers["mcp-session-id"],
            "mcp-protocol-version": "2025-11-25",
        }
        self.post({"method": "notifications/initialized"})

    def post(self, message):
        return self.http.post(self.url, json={"jsonrpc": "2.0", **message}, headers=self.headers)

    def call(self, times):
        params = {"name": "echo", "arguments": {"text": "a"}}
        for number in range(times):
            answer = self.post({"id": number + 1, "method": "tools/call", "params": params})
            assert '"isError":false' in answer.text.replace(" ", "")


def spent_by(pid):
    """The seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def held_by(pid):
    """The KiB of memory that a process alone has."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def measure(way):
    """Return the microseconds of a short call, and the KiB of a session."""
    program = f"import sys; sys.path.insert(0, {str(SERVERS)!r}); from notes import mcp; {WAYS[way]}"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            found = next(match for line in server.stderr if (match := re.search(r"http://\S+:\d+", line)))
            pid, url = server.pid, f"{found[0]}/mcp"
            with ThreadPoolExecutor(CONNECTIONS + 1) as threads:
                threads.submit(lambda: [None for _ in server.stderr])
                sessions = [Session(url) for _ in range(CONNECTIONS)]
                list(threads.map(lambda session: session.call(50), sessions))
                before = spent_by(pid)
                list(threads.map(lambda session: session.call(CALLS), sessions))
                spent = (spent_by(pid) - before) / CONNECTIONS / CALLS * 1e6
                memory = held_by(pid)
                for _ in range(SESSIONS):
                    one = Session(url)
                    one.call(1)
                    one.http.close()
                grown = (held_by(pid) - memory) / SESSIONS
                server.terminate()
        finally:
            server.terminate()
    return spent, grown


def main():
    """Measure all ways, one after the other."""
    for way in WAYS:
        spent, grown = measure(way)
        click.echo(f"{way:8} {spent:7.0f} µs a short call {grown:7.1f} KiB a session")


if __name__ == "__main__":
    main()
