"""What the lane writes: heads that say what the body is, and nothing that could be read as another head."""

import pytest

from mcpbus.serving.http1.encoder import encode_answer, encode_chunk, encode_head


def lines(head):
    return head.decode("latin-1").split("\r\n")


def test_an_answer_is_its_head_and_its_body():
    first, *fields = lines(encode_answer(200, [(b"content-type", b"text/plain")], b"body"))
    assert first == "HTTP/1.1 200 OK"
    assert fields[0] == "content-type: text/plain"
    assert fields[1].startswith("date: ")
    assert fields[2:] == ["content-length: 4", "", "body"]


def test_a_length_that_is_stated_is_not_stated_again():
    head = encode_answer(200, [(b"content-length", b"7")], b"", bodiless=True)
    assert head.count(b"content-length") == 1


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body(status):
    assert b"content-length" not in encode_answer(status, [], b"")


def test_a_status_without_a_name_is_said_all_the_same():
    assert encode_head(299, [], b"").startswith(b"HTTP/1.1 299 \r\n")


@pytest.mark.parametrize(
    "field",
    [
        (b"x", b"a\r\nset-cookie: b"),
        (b"x", b"a\nb"),
        (b"x", b"a\rb"),
        (b"x", b"\0"),
        (b"x y", b"a"),
        (b"", b"a"),
        (b"x:", b"a"),
    ],
)
def test_what_would_be_read_as_something_else_is_not_said(field):
    with pytest.raises(ValueError, match="header field"):
        encode_head(200, [field], b"")


def test_an_empty_chunk_would_end_the_body():
    assert encode_chunk(b"") == b""
    assert encode_chunk(b"x" * 17) == b"11\r\n" + b"x" * 17 + b"\r\n"
