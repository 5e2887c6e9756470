"""The steps that a client runs against each upstream server, as data that the Python and the TypeScript client read.

A step has a ``key``, and names what it needs as the upstream server has it. `through_gateway` names it as a gateway does.
"""

from typing import Any

Step = dict[str, Any]
CONDITIONAL = {"everything": ("get-roots-list", "trigger-elicitation-request", "trigger-sampling-request")}
"""Tools that a server adds once it knows its client: a client that does not see them waits for the news of them."""
SCHEMES = {"demo": "everything"}
"""The server of a scheme that is not its name."""
SHARED = "memo://shared"
"""A URI that two of the servers have."""

ABOUT: Step = {"key": "about", "do": "about"}
LISTS: list[Step] = [
    {"key": kind, "do": "list", "list": kind, "has": []} for kind in ("prompts", "resources", "templates")
]
TOOLS: Step = {"key": "tools", "do": "list", "list": "tools", "has": []}


def call(
    key: str, tool: str, /, *, progress: int = 0, cancel: bool = False, logs: int = 0, **arguments: Any
) -> Step:
    """Return the step of a call; `progress` and `logs` are the numbers of reports and log lines that it has to bring."""
    step = {"key": f"call {key}", "do": "call", "tool": tool, "arguments": arguments}
    return step | {"progress": progress, "cancel": cancel, "logs": logs}


def read(uri: str) -> Step:
    return {"key": f"read {uri}", "do": "read", "uri": uri}


def prompt(key: str, name: str, /, **arguments: str) -> Step:
    return {"key": f"prompt {key}", "do": "prompt", "prompt": name, "arguments": arguments}


def complete(key: str, ref: dict[str, str], argument: str, value: str) -> Step:
    return {"key": f"complete {key}", "do": "complete", "ref": ref, "argument": argument, "value": value}


def everything() -> list[Step]:
    """Return the steps at npm's server-everything."""
    return [
        ABOUT,
        TOOLS | {"has": CONDITIONAL["everything"]},
        *LISTS,
        call("roots", "get-roots-list"),
        # The server sends it by a timer, too, and a client of 2026-07-28 has no stream for what belongs to no call.
        {"key": "roots line", "do": "once", "era": "legacy"},
        call("echo", "echo", message="héllo \u2028"),
        call("sum", "get-sum", a=1, b=2.5),
        call("wrong arguments", "get-sum", a="one"),
        call("no such tool", "no-such-tool"),
        call("image", "get-tiny-image"),
        call("annotated", "get-annotated-message", messageType="error", includeImage=True),
        call("links", "get-resource-links", count=3),
        call("reference", "get-resource-reference", resourceType="Text", resourceId=1),
        call("structured", "get-structured-content", location="Chicago"),
        call("long", "trigger-long-running-operation", progress=4, duration=0.2, steps=4),
        call("form", "trigger-elicitation-request"),
        call("model", "trigger-sampling-request", prompt="a verse", maxTokens=7),
        call("page", "trigger-url-elicitation", url="https://sign.in/here", elicitationId="id-1"),
        read("demo://resource/static/document/features.md"),
        read("demo://resource/dynamic/text/1"),
        read("demo://nowhere"),
        prompt("simple", "simple-prompt"),
        prompt("with arguments", "args-prompt", city="Bern", state="BE"),
        prompt("without what it needs", "args-prompt"),
        prompt("no such prompt", "no-such-prompt"),
        complete("prompt", {"name": "completable-prompt"}, "department", "E"),
        complete("template", {"uri": "demo://resource/dynamic/text/{resourceId}"}, "resourceId", "7"),
    ]


def files(folder: str) -> list[Step]:
    """Return the steps at npm's server-filesystem, which serves a folder with a file."""
    return [
        ABOUT,
        TOOLS,
        *LISTS,
        call("allowed", "list_allowed_directories"),
        call("read", "read_text_file", path=f"{folder}/a.txt"),
        call("outside", "read_text_file", path="/etc/passwd"),
        call("folder", "list_directory", path=folder),
        call("media", "read_media_file", path=f"{folder}/a.png"),
        call("wrong arguments", "read_text_file"),
    ]


def official(name: str, *, one_process: bool, own_process: bool) -> list[Step]:
    """Return the steps at the official SDK's server of a name.

    Args:
        one_process: Whether each request reaches the same process, and so its state.
        own_process: Whether that belongs to one client, which may change it.
    """
    steps = [
        ABOUT,
        TOOLS,
        *LISTS,
        {"key": "level", "do": "level", "level": "info"},
        call("forecast", "forecast", progress=2, logs=2, city="oslo"),
        call("quiet", "forecast", logs=1, city="oslo", days=1),
        call("wrong arguments", "forecast", days="many"),
        call("media", "media"),
        call("fail", "fail"),
        call("refuse", "refuse"),
        call("no such tool", "no_such_tool"),
        call("form", "ask"),
        call("model", "sample"),
        call("roots", "roots"),
        read(f"{name}://cities"),
        read(f"{name}://pixel"),
        read(f"{name}://city/bergen"),
        read(f"{name}://nowhere"),
        prompt("pack", "pack", city="oslo"),
        prompt("in a tone", "pack", city="oslo", tone="stern"),
        complete("prompt", {"name": "pack"}, "tone", "k"),
        complete("template", {"uri": f"{name}://city/{{name}}"}, "name", "b"),
    ]
    if one_process:
        uri = f"{name}://cities"
        steps += [
            read(SHARED),
            call("hang", "hang", progress=1, cancel=True, name="{client}"),
            call("was cancelled", "was_cancelled", name="{client}"),
            {"key": "updates", "do": "updates", "uri": uri, "call": call("touch", "touch", uri=uri)},
        ]
    if own_process:
        steps.append(
            {"key": "changes", "do": "changes", "grown": "later", "call": call("grow", "grow", name="later")}
        )
    return steps


def floods() -> list[Step]:
    """Return the steps at the server that floods its standard error."""
    return [ABOUT, TOOLS, *LISTS, call("echo", "echo", text="x"), call("no such tool", "no_such_tool")]


def through_gateway(server: str, step: Step) -> Step:
    """Return a step as a gateway has it that serves this server among others."""
    named = step | {name: f"{server}_{step[name]}" for name in ("tool", "prompt") if name in step}
    if "name" in step.get("ref", {}):
        named["ref"] = {"name": f"{server}_{step['ref']['name']}"}
    if step.get("uri") == SHARED:
        named["uri"] = SHARED.replace("://", f"://{server}/")
    if "call" in step:
        named["call"] = through_gateway(server, step["call"])
    return named


def for_client(client: str, plan: list[Step]) -> list[Step]:
    """Return the steps of a plan that are for a client, with its name in arguments that need one of its own."""

    def fill(step: Step) -> Step:
        given = step.get("arguments", {})
        return step | {
            "arguments": {name: client if value == "{client}" else value for name, value in given.items()}
        }

    era = client.split("-")[1]
    return [fill(step) for step in plan if step.get("era", era) == era]


def name_at(server: str, key: str) -> str | None:
    """Return the name or URI at the upstream server of what a gateway lists by a key; None for what is of another server."""
    scheme, _, rest = key.partition("://")
    if not rest:
        name = key.removeprefix(f"{server}_")
        return name if name != key else None
    if scheme == SHARED.partition("://")[0]:
        own, _, rest = rest.partition("/")
        return f"{scheme}://{rest}" if own == server else None
    return key if SCHEMES.get(scheme, scheme) == server else None
