"""What comes of reading a head of HTTP/1.1, to compare two ways to read it."""

from mcpbus.serving.request_error import RequestError


def outcome(read):
    try:
        head = read()
    except RequestError as error:
        return error.status, error.text
    judged = head.judged
    fields = {name: judged.headers.raw(name.encode("latin-1")) for name in judged.headers}
    said = judged.verb, judged.path, judged.query, fields, judged.headers.accepted
    return said, head.length, head.raw, head.modern, head.keeps, head.expects, head.leaves
