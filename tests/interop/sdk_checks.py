"""What a client finds: each check drives one connected client, whatever its revision and transport.

Results are also validated by the SDK itself, against the schema of the negotiated revision.
"""

from base64 import b64decode

import pytest
import trio
from interop_server import PIXEL, SECRET
from mcp import MCPError, types
from mcp.shared.subscriptions import PromptsListChanged, ResourceUpdated, ToolsListChanged

STRUCTURED = {"2025-06-18", "2025-11-25", "2026-07-28"}


def text_of(result):
    (block,) = result.content
    return block.text


async def handshake(link):
    session = link.session
    assert session.protocol_version == link.revision
    assert (session.server_info.name, session.server_info.version) == ("interop", "1.2.3")
    assert session.server_info.title == ("Interop" if link.revision in STRUCTURED else None)
    assert session.instructions == "Ask for the weather."
    offered = session.server_capabilities
    assert offered.tools.list_changed
    assert offered.prompts.list_changed
    assert offered.resources.list_changed
    assert offered.resources.subscribe
    assert offered.logging is not None
    assert (offered.completions is not None) == (link.revision != "2024-11-05")


async def pages_of_tools(link):
    tools, cursor = {}, None
    while True:
        page = await link.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        assert len(page.tools) <= 4
        tools |= {tool.name: tool for tool in page.tools}
        if (cursor := page.next_cursor) is None:
            break
    assert list(tools)[:3] == ["add", "forecast", "media"]
    add = tools["add"]
    assert add.description == "Add two numbers."
    assert add.input_schema["required"] == ["a"]
    assert (add.title == "Sum") == (link.revision in STRUCTURED)
    assert (add.annotations is not None) == (link.revision != "2024-11-05")
    assert (add.output_schema is not None) == (link.revision in STRUCTURED)
    with pytest.raises(MCPError) as caught:
        await link.session.list_tools(params=types.PaginatedRequestParams(cursor="made up"))
    assert caught.value.code == types.INVALID_PARAMS


async def structured_output(link):
    forecast = await link.call("forecast", city="Bern", days=1)
    days = {"Bern 0": {"high": 20, "sky": "clear"}}
    assert forecast.structured_content == (days if link.revision in STRUCTURED else None)
    assert '"high":20' in text_of(forecast)
    total = await link.call("add", a=2)
    assert text_of(total) == "3"
    assert total.structured_content == {"2026-07-28": 3, "2024-11-05": None, "2025-03-26": None}.get(
        link.revision, {"result": 3}
    )


async def media(link):
    text, image, audio, file = (await link.call("media")).content
    assert text.text == "text"
    assert (b64decode(image.data), image.mime_type) == (PIXEL, "image/png")
    if link.revision == "2024-11-05":
        assert b64decode(audio.resource.blob) == b"RIFF"
    else:
        assert (b64decode(audio.data), audio.type) == (b"RIFF", "audio")
    assert b64decode(file.resource.blob) == b"bytes"
    assert file.resource.uri == "file:///a.bin"


async def failing_tools(link):
    refused = await link.call("refuse")
    assert refused.is_error
    assert text_of(refused) == "no such city: try Bern"
    crashed = await link.call("crash")
    assert crashed.is_error
    assert SECRET not in text_of(crashed)


async def wrong_calls(link):
    with pytest.raises(MCPError) as caught:
        await link.call("no_such_tool")
    assert caught.value.code == types.INVALID_PARAMS
    assert "no_such_tool" in str(caught.value)
    for arguments in ({"a": "one"}, {}, {"a": 1, "c": 2}):
        if link.revision in {"2025-11-25", "2026-07-28"}:
            assert (await link.call("add", **arguments)).is_error
        else:
            with pytest.raises(MCPError) as caught:
                await link.call("add", **arguments)
            assert caught.value.code == types.INVALID_PARAMS


async def mirrored_argument(link):
    """The client mirrors the arguments of a tool that it has listed, and of no other."""
    cursor = None
    while True:
        page = await link.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        if (cursor := page.next_cursor) is None:
            break
    for region in ("us-west1", "Zürich ", ""):
        assert text_of(await link.call("mirror", region=region)) == region


async def resources(link):
    session = link.session
    listed = (await session.list_resources()).resources
    assert [resource.uri for resource in listed] == ["config://app", "file:///logo.png"]
    (template,) = (await session.list_resource_templates()).resource_templates
    assert template.uri_template == "cities://{name}"
    (config,) = (await session.read_resource("config://app")).contents
    assert (config.text, config.mime_type) == ('{"retries":3}', "application/json")
    (logo,) = (await session.read_resource("file:///logo.png")).contents
    assert (b64decode(logo.blob), logo.mime_type) == (PIXEL, "image/png")
    (city,) = (await session.read_resource("cities://Bern")).contents
    assert (city.text, city.uri) == ("Bern is a city", "cities://Bern")
    for missing in ("cities://Atlantis", "nowhere://at/all"):
        with pytest.raises(MCPError) as caught:
            await session.read_resource(missing)
        assert caught.value.code == (types.INVALID_PARAMS if link.modern else -32002)
        assert caught.value.error.data["uri"] == missing


async def prompts(link):
    session = link.session
    (review,) = (await session.list_prompts()).prompts
    assert [(argument.name, bool(argument.required)) for argument in review.arguments] == [
        ("code", True),
        ("tone", False),
    ]
    (message,) = (await session.get_prompt("review", {"code": "x = 1"})).messages
    assert message.role == "user"
    assert message.content.text == "In a kind tone, review x = 1"
    for name, arguments in (("review", {}), ("no_such_prompt", {})):
        with pytest.raises(MCPError) as caught:
            await session.get_prompt(name, arguments)
        assert caught.value.code == types.INVALID_PARAMS


async def completion(link):
    city = types.ResourceTemplateReference(uri="cities://{name}")
    found = (await link.session.complete(city, {"name": "name", "value": "Ber"})).completion
    assert found.values == ["Berlin", "Bern"]
    assert found.total == 3
    tone = types.PromptReference(name="review")
    found = await link.session.complete(tone, {"name": "tone", "value": "k"}, {"code": "x"})
    assert found.completion.values == ["kind to x"]
    with pytest.raises(MCPError) as caught:
        await link.session.complete(tone, {"name": "nothing", "value": ""})
    assert caught.value.code == types.INVALID_PARAMS


async def live_progress_and_logs(link):
    """All of it arrives while the handler still runs: the handler ends only at the client's word."""
    if not link.modern:
        await link.session.set_logging_level("warning")
    seen, whole = [], trio.Event()

    async def progress(value, total, message):
        seen.append((value, total, message))
        if len(seen) == 3:
            whole.set()
        await trio.lowlevel.checkpoint()

    results = []

    async def call():
        results.append(await link.call("count", progress=progress, until="counted"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await whole.wait()
        await link.heard.until(lambda said: getattr(said.params, "data", None) == {"line": 3})
        assert not results
        await link.call("signal", name="counted")
    assert text_of(results[0]) == "counted"
    wordless = link.revision == "2024-11-05"
    assert seen == [(n, 3, None if wordless else f"step {n}") for n in (1, 2, 3)]
    logs = [said.params for said in link.heard.messages if isinstance(said, types.LoggingMessageNotification)]
    assert [(log.level, log.data) for log in logs] == [("warning", {"line": n}) for n in (1, 2, 3)]


async def progress_of_a_thread(link):
    seen = []

    async def progress(value, total, _message):
        seen.append((value, total))
        await trio.lowlevel.checkpoint()

    assert text_of(await link.call("blocking", progress=progress)) == "from a thread"
    assert seen == [(1, 2), (2, 2)]


async def cancellation(link):
    """The client's cancel scope cancels the handler: by a notification, on modern HTTP by closing the stream."""
    async with trio.open_nursery() as nursery:
        running = trio.Event()

        async def progress(*_):
            running.set()
            await trio.lowlevel.checkpoint()

        async def call():
            await link.call("hang", progress=progress, name="hang cancelled")

        nursery.start_soon(call)
        await running.wait()
        nursery.cancel_scope.cancel()
    assert text_of(await link.call("happened", name="hang cancelled")) == "true"


async def list_changes(link):
    if link.modern:
        async with link.listen(tools_list_changed=True, prompts_list_changed=True) as changes:
            assert changes.honored.tools_list_changed
            assert not changes.honored.resources_list_changed
            await link.call("grow", name="grown")
            assert await anext(changes) == ToolsListChanged()
    else:
        await link.call("grow", name="grown")
        await link.heard.of(types.ToolListChangedNotification)
        assert not any(isinstance(said, PromptsListChanged) for said in link.heard.messages)
    assert text_of(await link.call("grown")) == "grown at your service"


async def resource_updates(link):
    uri = "config://app"
    if link.modern:
        async with link.listen(resource_subscriptions=[uri]) as changes:
            assert changes.honored.resource_subscriptions == [uri]
            await link.call("touch", uri="file:///logo.png")
            await link.call("touch", uri=uri)
            assert await anext(changes) == ResourceUpdated(uri=uri)
        return
    await link.session.subscribe_resource(uri)
    await link.call("touch", uri="file:///logo.png")
    await link.call("touch", uri=uri)
    assert (await link.heard.of(types.ResourceUpdatedNotification)).params.uri == uri
    await link.session.unsubscribe_resource(uri)
    await link.call("touch", uri=uri)
    await link.call("grow", name="after_updates")  # what it announces comes behind any update that was sent
    await link.heard.until(lambda said: isinstance(said, types.ToolListChangedNotification))
    updates = [said for said in link.heard.messages if isinstance(said, types.ResourceUpdatedNotification)]
    assert len(updates) == 1


async def ping(link):
    if not link.modern:
        await link.session.send_ping()
        return
    # Revision 2026-07-28 has no ping. The client sends one all the same, and is told so.
    with pytest.raises(MCPError) as caught:
        await link.session.send_ping()
    assert caught.value.code == types.METHOD_NOT_FOUND


CHECKS = (
    handshake,
    pages_of_tools,
    structured_output,
    media,
    failing_tools,
    wrong_calls,
    mirrored_argument,
    resources,
    prompts,
    completion,
    live_progress_and_logs,
    progress_of_a_thread,
    cancellation,
    resource_updates,
    list_changes,
    ping,
)
