"""A program in bare JSON-RPC that keeps something for its one client: python awkward_server.py NAME [quiet].

Its tool `grow` adds a tool, and reports that unless it is quiet. `put` and `get` keep a value. A client that accepts elicitation has a
tool more, as with server-everything. Every answer names the server.
"""

import json
import sys

name, quiet = sys.argv[1], "quiet" in sys.argv
tools, kept = ["grow", "put", "get"], {}


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def initialize(params):
    if "elicitation" in params["capabilities"]:
        tools.append("trigger")
    capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "prompts": {}}
    return {
        "protocolVersion": "2025-06-18",
        "capabilities": capabilities,
        "serverInfo": {"name": name, "version": "1"},
    }


def call(params):
    tool, arguments = params["name"], params.get("arguments") or {}
    if tool not in tools:
        return None
    if tool == "grow":
        tools.append(arguments["name"])
        if not quiet:
            say({"method": "notifications/tools/list_changed"})
    elif tool == "put":
        kept.update(arguments)
    text = json.dumps({"server": name, "tool": tool, **kept})
    return {"content": [{"type": "text", "text": text}]}


def listed(_params):
    return {"tools": [{"name": tool, "inputSchema": {"type": "object"}} for tool in tools]}


answers = {
    "initialize": initialize,
    "ping": lambda _: {},
    "tools/list": listed,
    "tools/call": call,
    "prompts/list": lambda _: {"prompts": []},
    "prompts/get": lambda params: {"messages": [{"role": "user", "content": {"type": "text", "text": name}}]},
    "resources/list": lambda _: {"resources": [{"uri": "ui://w", "name": "w"}]},
    "resources/templates/list": lambda _: {"resourceTemplates": []},
    "resources/read": lambda params: {"contents": [{"uri": params["uri"], "text": name}]},
    "resources/subscribe": lambda _: {},
    "resources/unsubscribe": lambda _: {},
}

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request or "method" not in request:
        continue
    result = answers.get(request["method"], lambda _: None)(request.get("params") or {})
    if result is None:
        say({"id": request["id"], "error": {"code": -32602, "message": f"{name} does not know it"}})
    else:
        say({"id": request["id"], "result": result})
