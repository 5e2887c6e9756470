"""The audit log: a line for each call, with nothing secret in it, and no call that waits for it."""

import json
import threading
from functools import partial

import pytest
import trio

from mcpbus import Context, Limits, ProtocolError, Server, ToolError
from mcpbus.client import connect_http
from mcpbus.watch import Watch
from mcpbus.watch import audit as audit_module
from mcpbus.watch.audit import AuditLog, FileWriter, audit_written, check_audit


def server():
    made = Server("shop")

    @made.tool
    async def add(a: int, ctx: Context) -> int:
        await ctx.progress(1)
        return a + 1

    @made.tool
    async def fail() -> None:
        raise ToolError("no")

    @made.tool
    async def wait() -> None:
        await trio.sleep_forever()

    return made


async def served(made, use, **options):
    """Serve, and use it by HTTP."""
    async with trio.open_nursery() as nursery:
        start = partial(made.serve, bind="127.0.0.1:0", **options)
        [url] = await nursery.start(lambda task_status: start(task_status=task_status))
        async with connect_http(url) as client:
            await use(client)
        nursery.cancel_scope.cancel()


def entries(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_each_call_has_a_line_without_its_arguments(tmp_path):
    file = tmp_path / "audit.jsonl"

    async def use(client):
        for _ in range(1000):
            await client.call_tool("add", {"a": 4711})
        await client.call_tool("fail")
        with pytest.raises(ProtocolError):
            await client.call_tool("nothing")

    await served(server(), use, audit=str(file))
    assert "4711" not in file.read_text()
    lines = [entry for entry in entries(file) if entry["method"] == "tools/call"]
    assert [entry["name"] for entry in lines if entry["name"] == "add"] == ["add"] * 1000
    by_name = {entry["name"]: entry for entry in lines}
    assert (by_name["add"]["outcome"], by_name["add"]["reply"], by_name["add"]["messages"]) == (
        "ok",
        "delivered",
        1,
    )
    assert (by_name["fail"]["outcome"], by_name["fail"]["error"]) == ("tool_error", "ToolError")
    assert by_name["(unknown)"]["outcome"] == "error"
    assert by_name["add"]["peer"] == by_name["add"]["owner"] == "127.0.0.1"
    assert by_name["add"]["client"].startswith("mcpbus client")
    assert len({entry["request"] for entry in lines}) == len(lines)
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_call_that_is_refused_has_a_line(tmp_path):
    file = tmp_path / "audit.jsonl"

    async def use(client):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(client.call_tool, "wait")
            await trio.sleep(0.2)
            with pytest.raises(ProtocolError):
                await client.call_tool("add", {"a": 1})
            nursery.cancel_scope.cancel()

    await served(server(), use, audit=file, limits=Limits(max_requests=2))
    found = {(entry["name"], entry["outcome"], entry["error"]) for entry in entries(file)}
    assert {name for name, outcome, _ in found if outcome == "refused"} == {"add"}
    assert {error for _, outcome, error in found if outcome == "refused"} <= {"429", "503"}
    assert ("wait", "cancelled", None) in found


async def test_a_function_is_called_in_a_thread():
    found, threads = [], set()

    def note(entry):
        found.append(entry)
        threads.add(threading.current_thread())

    async def use(client):
        await client.call_tool("add", {"a": 1})

    await served(server(), use, audit=note)
    assert "add" in [entry["name"] for entry in found]
    assert threading.main_thread() not in threads


async def test_a_function_that_raises_harms_no_call(caplog):
    def fail(_entry):
        raise OSError("no space left")

    async def use(client):
        assert not (await client.call_tool("add", {"a": 1})).get("isError")

    await served(server(), use, audit=fail)
    assert "the audit log could not be written: no space left" in [
        each.getMessage() for each in caplog.records
    ]


def test_a_file_that_was_moved_is_made_again(tmp_path):
    file = tmp_path / "audit.jsonl"
    writer = FileWriter(file)
    writer.write([{"n": 1}])
    file.rename(tmp_path / "old")
    writer.write([{"n": 2}])
    file.unlink()
    writer.write([{"n": 3}])
    writer.close()
    assert entries(tmp_path / "old") == [{"n": 1}]
    assert entries(file) == [{"n": 3}]


def test_what_is_too_much_is_counted(monkeypatch):
    monkeypatch.setattr(audit_module, "MOST_WAITING", 2)
    written = []

    class Writer:
        def write(self, batch):
            written.extend(batch)

        def close(self):
            written.append("closed")

    log, watch = AuditLog(Writer()), Watch()
    for _ in range(5):
        life = audit_module.Life(1, 0.0, outcome="ok", seconds=1.0, label=("ping", None))
        life.facts = watch.records and audit_facts()
        log.ended(life)
    log.start()
    log.close()
    assert [entry["lost"] for entry in written[:-1] if "lost" in entry] == [3]
    assert len(written) == 2 + 1 + 1


def audit_facts():
    from mcpbus.watch.records import Facts

    return Facts("1", None, "o", "c", "p", "r", "t")


@pytest.mark.parametrize("audit", [5, "", None, b"x", ["x"]])
def test_what_is_no_place_for_it_is_refused(audit):
    with pytest.raises((TypeError, ValueError), match=r"^audit is "):
        check_audit(audit)


def test_a_file_that_cannot_be_opened_is_told(tmp_path):
    fault = r"^audit is '.*nothing/there', which cannot be opened: No such file"
    with pytest.raises(ValueError, match=fault), audit_written(tmp_path / "nothing" / "there", Watch(), None):
        pass


def test_each_worker_has_a_file_of_its_own(tmp_path):
    with audit_written(tmp_path / "a", Watch(), 1):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["a.1"]
