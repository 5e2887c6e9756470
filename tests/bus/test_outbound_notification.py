"""What is said is one line of the very JSON that a plain encoder would make of it."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from staging import staged, tool

from mcpbus.core import outbound
from mcpbus.core.receipt import Ledger
from mcpbus.core.subscription import stamped
from mcpbus.protocol.enums import LogLevel
from mcpbus.protocol.routes import MessageKind

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)


def message(method, **params):
    return {"jsonrpc": "2.0", "method": method, "params": params}


@given(st.sampled_from(list(LogLevel)), VALUES, st.none() | TEXTS)
def test_a_log_line_is_one_line_with_its_level_its_data_and_its_logger_if_it_has_one(level, data, logger):
    line = outbound.log(Ledger(), MessageKind.LOG, level.value, data, logger)
    named = {} if logger is None else {"logger": logger}
    assert json.loads(line.data) == message(outbound.MESSAGE, level=level.value, data=data, **named)
    assert line.level is level
    assert b"\n" not in line.data


def test_raw_json_is_brought_onto_one_line():
    line = outbound.log(Ledger(), MessageKind.LOG, "info", msgspec.Raw(b'{"a":\r\n[1,\n2]}'), None)
    assert json.loads(line.data)["params"]["data"] == {"a": [1, 2]}
    assert not {b"\n", b"\r"} & {line.data[i : i + 1] for i in range(len(line.data))}


@pytest.mark.parametrize("raw", [b"{}", b'{"a":\r\n[1,\n2]}', '{"é":"é"}'.encode()])
def test_raw_params_are_sent_as_they_are_on_one_line(raw):
    said = outbound.custom(Ledger(), MessageKind.CUSTOM, "notifications/x", msgspec.Raw(raw))
    assert json.loads(said.data) == message("notifications/x", **json.loads(raw))
    assert b"\n" not in said.data


@pytest.mark.parametrize(
    "raw",
    [b"", b"null", b"[]", b"1", b'{"a":', b'{"a":01}', b"{},1", b'{"a":"\xff"}', b'{"a":' + b"[" * 10_000],
)
def test_raw_params_that_are_not_the_text_of_an_object_are_refused(raw):
    books = Ledger()
    with pytest.raises(TypeError, match="params is not the JSON text of an object"):
        outbound.custom(books, MessageKind.CUSTOM, "notifications/x", msgspec.Raw(raw))
    assert books.emitted == 0


@given(NUMBERS, st.none() | NUMBERS, st.none() | TEXTS)
def test_the_parts_of_progress(value, total, message):
    said = outbound.progress(Ledger(), value, total, message)
    wanted = {"progress": value, "total": total, "message": message}
    parts = {name: part for name, part in wanted.items() if part is not None}
    assert json.loads(b"{" + said.data) == parts
    parts.pop("message", None)
    assert json.loads(b"{" + said.mute_data) == parts


@pytest.mark.parametrize(
    ("error", "say"),
    [
        (ValueError, lambda books: outbound.log(books, MessageKind.LOG, "loud", "x", None)),
        (TypeError, lambda books: outbound.log(books, MessageKind.LOG, "info", object(), None)),
        (ValueError, lambda books: outbound.progress(books, float("nan"), None, None)),
        (ValueError, lambda books: outbound.progress(books, 1, float("inf"), None)),
        (ValueError, lambda books: outbound.progress(books, 10**400, None, None)),
        (TypeError, lambda books: outbound.progress(books, 1, None, object())),
        (ValueError, lambda books: outbound.custom(books, MessageKind.CUSTOM, "tools/list", None)),
        (ValueError, lambda books: outbound.custom(books, MessageKind.CUSTOM, "notifications/", None)),
        (
            ValueError,
            lambda books: outbound.custom(books, MessageKind.CUSTOM, outbound.PROGRESS, None),
        ),
        (
            ValueError,
            lambda books: outbound.custom(books, MessageKind.CUSTOM, "notifications/cancelled", None),
        ),
        (
            TypeError,
            lambda books: outbound.custom(books, MessageKind.CUSTOM, "notifications/x", {"a": object()}),
        ),
        (TypeError, lambda books: outbound.custom(books, MessageKind.CUSTOM, "notifications/x", [1])),
        (TypeError, lambda books: outbound.custom(books, MessageKind.CUSTOM, 3, None)),
    ],
)
def test_what_cannot_be_said_raises_where_it_is_said_and_is_in_no_books(error, say):
    books = Ledger()
    with pytest.raises(error):
        say(books)
    assert books.emitted == 0


@given(st.none() | st.dictionaries(TEXTS, VALUES, min_size=1, max_size=3), st.integers() | TEXTS)
def test_a_stamped_change_has_the_id_of_its_listen_with_its_type(params, listen):  # S-7
    stamp = {"io.modelcontextprotocol/subscriptionId": listen}
    plain = {"jsonrpc": "2.0", "method": "notifications/x"} | ({} if params is None else {"params": params})
    change = json.loads(stamped(json.dumps(plain, separators=(",", ":")).encode(), listen))
    assert change == {**plain, "params": {**(params or {}), "_meta": stamp}}
    assert type(change["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]) is type(listen)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-11-25"])
async def test_progress_has_a_text_where_the_revision_knows_one(revision, autojump_clock):
    async with staged() as stage:
        session = await stage.probe.initialize(revision)
        request = session.request("tools/call", tool(), progress_token="t")
        await (await stage.call()).ctx.progress(1, 2, "half")
        params = (await request.message())["params"]
        assert (params["progress"], params["total"]) == (1, 2)
        assert params.get("message") == (None if revision == "2024-11-05" else "half")


@pytest.mark.parametrize(("value", "total"), [("a", None), (1, "a")])
def test_progress_that_is_no_number_is_named(value, total):
    with pytest.raises(TypeError, match=r"progress and total are numbers, not .*'a'"):
        outbound.progress(Ledger(), value, total, None)
