"""An honest client, a program of its own: python honest_client.py PORT PID TOOL HEADERS.

It calls a tool every 100 ms, by turns over a connection that it keeps and over a new one, from another address than the attackers.
For each answer it prints a line of JSON: the seconds that it took, the processor time of the process PID meanwhile, and a fault, if the
answer is not the right one. It ends when its standard input does.
"""

import http.client
import json
import os
import select
import sys
import time
from pathlib import Path

PORT, PID, TOOL, HEADERS = int(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
SOURCE = ("127.0.0.2", 0)
INTERVAL = 0.1
TIMEOUT = 30
TEXT = "hello"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "honest", "version": "1"},
}
FIELDS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": TOOL,
    **HEADERS,
}
BODY = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": TOOL, "arguments": {"text": TEXT}, "_meta": META},
    }
)
TICKS = os.sysconf("SC_CLK_TCK")


def processor_time():
    """Return the seconds of processor time that the server has taken."""
    fields = Path(f"/proc/{PID}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def connect():
    return http.client.HTTPConnection("127.0.0.1", PORT, timeout=TIMEOUT, source_address=SOURCE)


def call(connection):
    """Make a call; returns the fault of the answer."""
    try:
        connection.request("POST", "/mcp", BODY, FIELDS)
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        return f"an honest call failed: {error!r}"
    if TEXT.encode() in content and response.status == 200 and b'isError":true' not in content:
        return ""
    return f"an honest call got {response.status}: {content[:300]!r}"


kept = connect()
calls = 0
# A server that starts refuses nothing: its socket listens already.
while True:
    began, before = time.monotonic(), processor_time()
    calls += 1
    if calls % 2:
        fault = call(kept)
    else:
        new = connect()
        fault = call(new)
        new.close()
    answer = {"seconds": time.monotonic() - began, "cpu": processor_time() - before, "fault": fault}
    print(json.dumps(answer), flush=True)  # noqa: T201
    if select.select([sys.stdin], [], [], max(0, INTERVAL - (time.monotonic() - began)))[0]:
        break
