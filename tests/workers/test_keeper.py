"""The process that keeps workers: when it starts another one, when it gives up, whom it kills. These workers serve nothing."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from mcpbus import ServeOptions
from mcpbus.serving import CannotListenError
from mcpbus.workers import supervisor, worker_process
from mcpbus.workers.folder import WorkerFolder
from mcpbus.workers.worker import WorkerConfig

BEGIN = """
import contextlib, json, os, signal, socket, sys, time
keeper, _, number = os.environ["MCPBUS_WORKER_OF"].partition(":")
assert int(keeper) == os.getppid()
control = socket.socket(fileno=int(number))
orders = json.loads(control.makefile().readline())
for descriptor in orders["sockets"]:
    assert socket.socket(fileno=descriptor).getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
with open(os.environ["STARTED"], "a") as started:
    started.write(orders["home"] + chr(10))
begun = len(open(os.environ["STARTED"]).readlines())
folder = os.path.dirname(orders["folder"])
def ready():
    control.sendall(json.dumps({"name": "it", "urls": ["http://there"]}).encode() + bytes([10]))
def stop():
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(10)
"""


@pytest.fixture
def keep(monkeypatch, tmp_path):
    """Keeps workers that do this when they have begun; returns the exit status, and how many there were."""

    def keep(script, count=1, **options):
        started = tmp_path / "started"
        started.touch()
        monkeypatch.setenv("STARTED", str(started))
        monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-I", "-S", "-c", BEGIN + script])
        monkeypatch.setattr(supervisor, "_FIRST_PAUSE", 0.01)
        status = supervisor.run_workers(count, ServeOptions(bind="127.0.0.1:0", **options))
        homes = started.read_text().split()
        assert len(set(homes)) == len(homes)
        return status, len(homes)

    return keep


def test_workers_end_when_it_is_told_to(keep):
    assert keep("ready()\nif begun == 3: stop()\ntime.sleep(10)", count=3) == (0, 3)


def test_one_that_ends_is_followed_by_another(keep, caplog):
    assert keep("ready()\nif begun == 3: stop()\nsys.exit(7)") == (0, 3)
    assert caplog.text.count("worker 0 has ended (exit status 7)") == 2


def test_the_others_are_told_which_one_has_ended(keep, tmp_path):
    script = """
ready()
if orders["number"]:
    with open(os.environ["STARTED"] + ".killed", "a") as killed:
        killed.write(orders["home"] + chr(10))
    os.kill(os.getpid(), signal.SIGKILL)
told = control.makefile().readline()
with open(os.environ["STARTED"] + ".told", "w") as heard:
    heard.write(told)
stop()
"""
    assert keep(script, count=2)[0] == 0
    assert (tmp_path / "started.told").read_text() in (tmp_path / "started.killed").read_text().splitlines(
        True
    )


def test_one_that_fails_at_its_end_is_told_and_the_status_is_not_0(keep, caplog):
    script = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7 if orders["number"] else 0))
ready()
if begun == 3: stop()
time.sleep(10)
"""
    status, begun = keep(script, count=3)
    assert (status, begun) == (1, 3)
    assert sorted(caplog.messages) == [f"worker {n} has not ended in order (exit status 7)" for n in (1, 2)]


def test_one_that_is_killed_is_followed_by_another(keep, caplog):
    assert keep("ready()\nif begun == 2: stop()\nos.kill(os.getpid(), signal.SIGKILL)") == (0, 2)
    assert "(signal 9)" in caplog.text


async def test_none_is_started_when_all_are_told_to_end_just_as_a_pause_is_over(tmp_path, autojump_clock):
    with (tmp_path / "board").open("w+b") as board:
        keeper = supervisor._Supervisor(1, WorkerFolder(tmp_path, 0), board, [], 5.0)
        keeper._ready = 1
        told = trio.Event()

        async def hear_at_the_end_of_the_pause():
            try:
                await trio.sleep_forever()
            finally:
                told.set()

        keeper._stopping = SimpleNamespace(is_set=told.is_set, wait=hear_at_the_end_of_the_pause)
        worker = worker_process.WorkerProcess(WorkerConfig(0, "home", b"", "", "", 0, []), 0, lambda _: None)
        worker.ended.set()
        place = supervisor._WorkerSlot(worker)
        await keeper._keep(place, None)
        assert place.worker is worker


@pytest.mark.parametrize(("end", "status"), [("sys.exit(3)", 3), ("sys.exit()", 1), ("os.abort()", 1)])
def test_one_that_never_begins_to_serve_ends_all(end, status, keep):
    assert keep(f"if orders['number']: time.sleep(10)\n{end}", count=2)[0] == status


@pytest.mark.parametrize(("refused", "ended"), [(1, (1, 0)), (2, (0, 2))])
def test_one_that_cannot_be_started_ends_no_others(refused, ended, keep, caplog, monkeypatch):
    opened, open_process = [], trio.lowlevel.open_process

    async def open_unless_refused(*args, **keywords):
        opened.append(args)
        if len(opened) == refused:
            raise OSError(errno.EAGAIN, "no more processes")
        return await open_process(*args, **keywords)

    monkeypatch.setattr(trio.lowlevel, "open_process", open_unless_refused)
    assert keep("ready()\nif begun == 2: stop()\nsys.exit(7)") == ended
    assert f"a worker could not be started: [Errno {errno.EAGAIN}] no more processes" in caplog.text
    assert caplog.text.count("worker 0 has ended (not started)") == refused - 1


def test_they_get_another_folder_where_somebody_has_removed_theirs(keep, caplog, monkeypatch):
    monkeypatch.setattr(supervisor, "_LOOK_SECONDS", 0.01)
    script = """
import shutil
ready()
os.rename(folder, folder + ".removed")
shutil.rmtree(folder + ".removed")
while not os.path.isdir(orders["records"]) or not os.path.isdir(orders["folder"]):
    time.sleep(0.01)
stop()
"""
    assert keep(script) == (0, 1)
    assert caplog.text.count("was removed, and is made anew") == 1


def test_where_it_cannot_be_made_anew_that_is_told_once(keep, caplog, monkeypatch):
    def fail(_):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(supervisor, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(WorkerFolder, "mend", fail)
    assert keep("ready()\nif begun == 2: stop()\ntime.sleep(0.1)") == (0, 2)
    assert caplog.text.count("was removed, and cannot be made anew: [Errno 28] no room") == 1


def test_they_go_on_where_something_else_has_taken_the_place_of_their_folder(keep, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # it is left behind
    script = """
ready()
if begun == 2: stop()
os.rename(folder, folder + ".removed")
open(folder, "w").close()
"""
    assert keep(script) == (0, 2)


def test_they_go_on_without_the_folder_that_they_have_in_common(keep):
    script = """
import shutil
absent = os.pread(orders["board"], 99, 0) == 2 * bytes([255] * 4)
os.pwrite(orders["board"], bytes(4), 4 * orders["number"])
ready()
if begun == 3 or begun == 2 and absent: stop()
shutil.rmtree(folder)
"""
    assert keep(script) == (0, 2)


def test_the_folder_is_locked_so_that_nobody_cleans_it_up(keep):
    script = """
import fcntl
locked = os.open(folder, os.O_RDONLY)
try:
    fcntl.flock(locked, fcntl.LOCK_SH | fcntl.LOCK_NB)
except BlockingIOError:
    ready()
    stop()
"""
    assert keep(script) == (0, 1)


def test_a_worker_has_the_lock_as_well_as_it_may_live_longer_than_who_keeps_it(keep):
    script = """
def is_folder(descriptor):
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), os.stat(folder))
if any(map(is_folder, range(3, 99))):
    ready()
    stop()
"""
    assert keep(script) == (0, 1)


def test_one_that_says_nothing_any_more_is_killed(keep, caplog, monkeypatch):
    monkeypatch.setattr(worker_process, "HUNG_SECONDS", 0.2)
    assert keep("ready()\nif begun == 2: stop()\ntime.sleep(10)") == (0, 2)
    assert "is killed" in caplog.text


@pytest.mark.parametrize(
    ("says", "lacking", "seconds"),
    [(b"", "not begun to serve", 300), (b'{"name": "it", "urls": []}\n', "said nothing", 30)],
)
async def test_one_is_waited_for_no_longer_than_it_may_take(says, lacking, seconds, caplog, autojump_clock):
    killed = []
    worker = worker_process.WorkerProcess(WorkerConfig(3, "home", b"", "", "", 0, []), 0, lambda _: None)
    control, its_end = memory_stream_pair()
    await its_end.send_all(says)
    await worker._listen(SimpleNamespace(kill=lambda: killed.append(trio.current_time())), control)
    assert killed == [pytest.approx(seconds)]
    assert worker.ready == bool(says)
    assert caplog.messages == [f"worker 3 has {lacking} for {seconds} s, and is killed"]


async def test_one_that_stood_still_with_who_keeps_it_may_speak_first(caplog, mock_clock):
    worker = worker_process.WorkerProcess(WorkerConfig(3, "home", b"", "", "", 0, []), 0, lambda _: None)
    control, its_end = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker._listen, SimpleNamespace(kill=nursery.cancel_scope.cancel), control)
        await its_end.send_all(b'{"name": "it", "urls": []}\n')
        for _ in range(3):
            await wait_all_tasks_blocked()
            mock_clock.jump(3600)
            await wait_all_tasks_blocked()
            await its_end.send_all(b"\n")
        await its_end.aclose()
    assert caplog.messages == []


def test_one_that_is_heard_of_is_not(keep, caplog, monkeypatch):
    monkeypatch.setattr(worker_process, "HUNG_SECONDS", 0.5)
    says = "for _ in range(8):\n    control.sendall(bytes([10]))\n    time.sleep(0.1)\nstop()"
    assert keep("ready()\n" + says) == (0, 1)
    assert "is killed" not in caplog.text


REPLACED = """
path = os.environ["STARTED"] + ".log"
def say(what):
    with open(path, "a") as log:
        log.write(what + chr(10))
def wait_for(what, times=1):
    while not os.path.exists(path) or open(path).read().split(chr(10)).count(what) < times:
        time.sleep(0.01)
def end(*_):
    say(f"end {number}")
    os._exit(0)
def replace():
    os.kill(os.getppid(), signal.SIGHUP)
signal.signal(signal.SIGTERM, end)
number = orders["number"]
again = os.path.exists(path) and f"begin {number}" in open(path).read().split(chr(10))
say(f"begin {number}")
"""


def test_they_are_replaced_one_by_one(keep, tmp_path):
    script = """
ready()
if number == 1:
    wait_for("begin 0")
    replace()
elif again:
    wait_for("end 1")
    stop()
time.sleep(10)
"""
    assert keep(REPLACED + script, count=2) == (0, 4)
    log = (tmp_path / "started.log").read_text().split("\n")
    assert log[2:6] == ["begin 2", "end 0", "begin 0", "end 1"]


def test_where_a_new_one_cannot_begin_the_others_go_on(keep, tmp_path, caplog):
    script = """
if number == 2:
    say(str(os.getpid()))
    say("exit")
    sys.exit(3)
ready()
if number == 1:
    wait_for("begin 0")
    for times in (1, 2):
        replace()
        wait_for("exit", times)
        pid = int(open(path).read().split()[-2])
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(pid, 0)
                time.sleep(0.01)
    stop()
time.sleep(10)
"""
    assert keep(REPLACED + script, count=2) == (0, 4)
    assert "could not begin to serve (exit status 3)" in caplog.text


def test_one_that_does_not_begin_is_killed_when_they_are_to_be_replaced_again(keep, caplog, monkeypatch):
    monkeypatch.setattr(supervisor, "_SLOW_SECONDS", 0.0)
    script = """
if number == 1 and begun == 2: time.sleep(10)
ready()
if begun == 1:
    replace()
    wait_for("begin 1")
    replace()
    time.sleep(10)
stop()
"""
    assert keep(REPLACED + script) == (0, 3)
    assert "has not begun to serve for 0 s" in caplog.text
    assert "could not begin to serve (signal 9)" in caplog.text


def test_one_that_does_not_end_after_its_drain_is_killed(keep, caplog, monkeypatch):
    monkeypatch.setattr(supervisor, "_SLOW_SECONDS", 0.0)
    script = """
ready()
if begun == 1:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    replace()
    time.sleep(10)
if begun == 2:
    replace()
    time.sleep(10)
stop()
"""
    assert keep(REPLACED + script, drain_timeout=0) == (0, 3)
    assert "worker 0 has not ended 0 s after its drain, and is killed" in caplog.text


def test_an_address_that_cannot_be_listened_on_is_said_before_anything_is_started():
    with pytest.raises(CannotListenError):
        supervisor.run_workers(2, ServeOptions(bind="192.0.2.1:1"))


def test_figures_that_cannot_be_listened_for_are_said_before_anything_is_started(tmp_path):
    (tmp_path / "figures.2").mkdir()  # where the one would have them that takes another one's place
    at = f"unix:{tmp_path}/figures"
    with pytest.raises(CannotListenError, match=f"metrics: cannot listen on {at}.2: "):
        supervisor.run_workers(2, ServeOptions(bind="127.0.0.1:0"), at)


def test_the_end_of_its_terminal_is_its_end(tmp_path):
    keeper = f"""
import fcntl, sys, termios
from mcpbus import ServeOptions
from mcpbus.workers import supervisor
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.orig_argv = [sys.executable, "-c", {BEGIN + "ready()" + chr(10) + "time.sleep(60)"!r}]
supervisor.run_workers(1, ServeOptions(bind="127.0.0.1:0"))
"""
    terminal, its_end = os.openpty()
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), its_end)
    environment = os.environ | {"STARTED": str(tmp_path / "started")}
    command = [sys.executable, "-c", keeper]
    with subprocess.Popen(command, **pipes, env=environment, start_new_session=True) as process:
        os.close(its_end)
        said = b""
        while b"is served at" not in said:
            said += os.read(terminal, 1024)
        os.close(terminal)
        try:
            process.wait(60)
        finally:
            process.kill()
    assert len((tmp_path / "started").read_text().split()) == 1


def test_a_second_signal_does_not_wait(tmp_path):
    # In a process of its own, which that signal ends.
    holds_on = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nready()\nprint(0, flush=True)\ntime.sleep(3600)"
    )
    keeper = f"""
import signal, sys
from mcpbus import ServeOptions
from mcpbus.workers import supervisor
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored where tests run in the background
sys.orig_argv = [sys.executable, "-c", {BEGIN + holds_on!r}]
supervisor.run_workers(1, ServeOptions(bind="127.0.0.1:0", drain_timeout=3600))
"""
    folder = tmp_path / "folder"
    folder.mkdir()
    environment = os.environ | {"STARTED": str(tmp_path / "started"), "TMPDIR": str(folder)}
    with subprocess.Popen([sys.executable, "-c", keeper], stdout=subprocess.PIPE, env=environment) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in {-signal.SIGTERM, -signal.SIGINT}
        assert process.stdout.read() == b""  # the worker has ended, too
        assert not list(folder.iterdir())
