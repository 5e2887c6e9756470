"""An upstream server that does one thing wrong, in bare JSON-RPC of 2025-06-18: python awkward_upstream.py MODE.

plain       answers
floods      writes to standard error all the time, with escape sequences, and answers
deaf        answers until a call of `deafen`, and does not read its standard input from then on
silent      reads, and never answers
"""

import json
import signal
import sys
import threading

MODE = sys.argv[1]
TOOLS = {"echo": {"text": {"type": "string"}}, **({"deafen": {}} if MODE == "deaf" else {})}


def flood() -> None:
    """Write 200,000 lines a second to standard error, as far as they are read, until this process ends."""
    while not threading.Event().wait(0.005):
        sys.stderr.write("\x1b[31mflood \x1b]0;title\x07\n" * 1000)


def answer(method: str, params: dict) -> dict:
    """Return the result of a request, or the error."""
    match method:
        case "initialize":
            info = {"name": MODE, "version": "1"}
            offered = {"tools": {}}
            return {"result": {"protocolVersion": "2025-06-18", "capabilities": offered, "serverInfo": info}}
        case "ping":
            return {"result": {}}
        case "tools/list":
            tools = [
                {"name": name, "inputSchema": {"type": "object", "properties": properties}}
                for name, properties in TOOLS.items()
            ]
            return {"result": {"tools": tools}}
        case "tools/call":
            text = params["arguments"].get("text", "")
            return {"result": {"content": [{"type": "text", "text": f"{MODE} {text}"}]}}
    return {"error": {"code": -32601, "message": f"Method not found: {method}"}}


def main() -> None:
    if MODE == "floods":
        threading.Thread(target=flood, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if MODE == "silent" or "id" not in message or "method" not in message:
            continue
        params = message.get("params") or {}
        if params.get("name") == "deafen":
            signal.pause()
        reply = {"jsonrpc": "2.0", "id": message["id"], **answer(message["method"], params)}
        sys.stdout.write(f"{json.dumps(reply)}\n")
        sys.stdout.flush()


main()
