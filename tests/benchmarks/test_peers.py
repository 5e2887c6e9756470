"""The descriptions of peers are whole: what they name is there, and says what they say."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from benchmarks.peers import PEERS, built
from benchmarks.peers.built import Built
from benchmarks.peers.peer import Absent, Setting

FOLDER = Path(built.__file__).parent
README = (FOLDER / "README.md").read_text()
EACH = pytest.mark.parametrize("peer", PEERS, ids=[peer.name for peer in PEERS])


def pip_pin(manifest: str, package: str) -> str | None:
    found = re.search(rf"^{re.escape(package)}==(\S+)$", manifest, re.MULTILINE)
    return found and found[1]


def npm_pin(manifest: str, package: str) -> str | None:
    return json.loads(manifest)["dependencies"].get(package)


def go_pin(manifest: str, package: str) -> str | None:
    found = re.search(rf"^\t{re.escape(package)} v(\S+)$", manifest, re.MULTILINE)
    return found and found[1]


def cargo_pin(manifest: str, package: str) -> str | None:
    found = re.search(rf'^{re.escape(package)} = \{{ version = "=([^"]+)"', manifest, re.MULTILINE)
    return found and found[1]


PINS: dict[str, Callable[[str, str], str | None]] = {
    "requirements.txt": pip_pin,
    "package.json": npm_pin,
    "go.mod": go_pin,
    "Cargo.toml": cargo_pin,
}


def test_names_are_unique():
    names = [peer.name for peer in PEERS]
    assert len(set(names)) == len(names)
    titles = [peer.title for peer in PEERS]
    assert len(set(titles)) == len(titles)


@EACH
def test_its_manifest_pins_the_version_that_is_reported(peer: Built):
    assert PINS[peer.files[0]](peer.manifest, peer.package) == peer.version


@EACH
def test_its_files_are_there_and_name_no_place(peer: Built):
    for file in peer.files:
        text = (FOLDER / peer.source / file).read_text()
        assert not re.search(r"https?://|/home/|/root/|/work/", text), file


@EACH
def test_it_asks_for_nothing_that_is_never_set(peer: Built):
    text = "".join((FOLDER / peer.source / file).read_text() for file in peer.files)
    asked = {Setting(name) for name in re.findall(r"BENCH_\w+", text)}
    heeded = {setting for setting in Setting if setting.name in {able.name for able in peer.abilities}}
    assert heeded <= asked


@EACH
def test_the_readme_tells_of_it(peer: Built):
    [row] = [line for line in README.splitlines() if line.startswith(f"| {peer.title} |")]
    assert f"`{peer.package}` {peer.version} |" in row
    assert f"| {peer.revision} |" in row


@attrs.frozen(kw_only=True)
class Counting(Built):
    """Built of the files of a peer, by noting that it was."""

    builds: list[str] = attrs.field(factory=list)
    fails: list[str] = attrs.field(factory=list)

    def build(self, folder):
        self.builds.append(sorted(path.name for path in folder.iterdir()))
        if self.fails:
            raise Absent(self.fails.pop())

    def command(self, folder, port):
        raise AssertionError


@pytest.fixture
def counting():
    return Counting(
        name="counting",
        title="",
        language="",
        package="",
        version="",
        source="go-sdk",
        files=("go.mod", "main.go"),
    )


def test_it_is_built_once(counting, tmp_path):
    counting.install(tmp_path)
    counting.install(tmp_path)
    assert counting.builds == [["go.mod", "main.go"]]


def test_it_is_built_again_when_its_files_have_changed(counting, tmp_path):
    counting.install(tmp_path)
    attrs.evolve(counting, source="mcp-go").install(tmp_path)
    assert len(counting.builds) == 2
    assert (tmp_path / "main.go").read_text() == (FOLDER / "mcp-go" / "main.go").read_text()


def test_it_is_built_again_after_a_failure(counting, tmp_path):
    counting.install(tmp_path)
    other = attrs.evolve(counting, source="mcp-go")
    counting.fails.append("no network")
    with pytest.raises(Absent, match="no network"):
        other.install(tmp_path)
    counting.install(tmp_path)
    assert len(counting.builds) == 3


def test_one_source_is_built_with_and_without_a_feature(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(built, "run", lambda arguments, folder: asked.append((folder.name, arguments[-2:])))
    for peer in PEERS:
        if peer.name in {"rmcp", "rmcp-http2"}:
            (tmp_path / peer.name).mkdir()
            peer.install(tmp_path / peer.name)
    assert asked == [("rmcp", ["--target-dir", "target"]), ("rmcp-http2", ["--features", "http2"])]


def test_without_its_toolchain_it_is_absent(tmp_path):
    [peer] = [peer for peer in PEERS if peer.name == "go-sdk"]
    with pytest.raises(Absent, match="no-such-tool is not installed"):
        attrs.evolve(peer, toolchain=("no-such-tool",)).prepare(tmp_path / "peer")
    assert not (tmp_path / "peer").exists()


def test_it_is_built_again_with_other_features(tmp_path, monkeypatch):
    builds = []
    monkeypatch.setattr(built, "run", lambda command, _folder: builds.append(command))
    rust = next(peer for peer in PEERS if peer.name == "rmcp")
    for peer in (rust, rust, attrs.evolve(rust, features=("http2",)), rust):
        peer.install(tmp_path)
    assert ["--features" in command for command in builds] == [False, True, False]
