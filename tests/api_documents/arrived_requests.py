"""What is in a request that has arrived, read as the document describes it by other code than that which wrote it.

Only what OpenAPI leaves no doubt about is read back: a value of a parameter is compared by the texts of its parts.
"""

import base64
import re
from email import message_from_bytes
from http.cookies import SimpleCookie
from urllib.parse import parse_qsl, unquote

import msgspec


def texts(value):
    """Return the parts of a value as texts, in order: names and values of an object, the items of a list, or the value."""
    if isinstance(value, dict):
        return [text for name, each in value.items() for text in (name, *texts(each))]
    if isinstance(value, list):
        return [text for each in value for text in texts(each)]
    if isinstance(value, bool):
        return [str(value).lower()]
    if value is None:
        return [""]
    return [value if isinstance(value, str) else msgspec.json.encode(value).decode()]


def differences(plan, given, request, base="https://api.example"):
    """Return what of a call did not arrive as the document has it, a line each.

    Args:
        plan: How the tool makes requests, of which its operation and the names of its arguments are used.
        given: The arguments.
        request: The request.
        base: The address of the API.
    """
    operation, found = plan.operation, []
    if request.method != operation.method:
        found.append(f"method {request.method}")
    path = operation.path.partition("#")[0].partition("?")[0]
    names = re.findall(r"\{([^{}]+)\}", path)
    parts = re.split(r"\{[^{}]+\}", path)
    pattern = base + "([^/?]*)".join(re.escape(part).replace("\\ ", "%20") for part in parts)
    matched = re.fullmatch(pattern, str(request.url).partition("?")[0])
    if matched is None:
        return [f"path {request.url} is not {path}"]
    in_path = dict(zip(names, matched.groups(), strict=True))
    query = parse_qsl(request.url.query.decode().replace("+", "%2B"), keep_blank_values=True)
    cookies = SimpleCookie(request.headers.get("cookie", ""))
    for parameter in operation.parameters:
        argument = plan.arguments[parameter.place, parameter.name]
        if argument not in given:
            continue
        value = given[argument]
        if parameter.json:
            value = msgspec.json.encode(value).decode()
        arrived = {
            "path": lambda parameter=parameter, value=value: _split(in_path[parameter.name], value),
            "query": lambda parameter=parameter, value=value: _of_query(query, parameter, value),
            "header": lambda parameter=parameter, value=value: _split(
                request.headers.get(parameter.name, ""), value, raw=True
            ),
            "cookie": lambda parameter=parameter, value=value: [
                unquote(cookies[parameter.name].value) if parameter.name in cookies else "nothing"
            ],
        }[parameter.place]()
        if arrived != texts(value):
            found.append(f"{parameter.place} {parameter.name}: {arrived!r} is not {texts(value)!r}")
    if operation.body is not None and "body" in given:
        found += _of_body(operation.body, given["body"], request)
    elif request.content:
        found.append("a body that was not given")
    return found


def _split(text, value, *, raw=False):
    read = str if raw else unquote
    if not isinstance(value, list | dict):
        return [read(text)]
    if not value:
        return []
    return [read(part) for part in re.split("[,=]" if isinstance(value, dict) else ",", text)]


def _of_query(query, parameter, value):
    name = parameter.name
    if parameter.style == "deepObject":
        return [
            text
            for key, each in query
            if (m := re.fullmatch(r"(.*)\[(.*)\]", key)) and m[1] == name
            for text in (m[2], each)
        ]
    if parameter.explode and isinstance(value, dict):
        return [text for key, each in query if key in value for text in (key, each)]
    if parameter.explode and isinstance(value, list):
        return [each for key, each in query if key == name]
    [text] = [each for key, each in query if key == name] or ["nothing"]
    if not isinstance(value, list | dict):
        return [text]
    # What lies between the parts is decoded by now, and so are the parts: only a text without it tells where they end.
    delimiter = {"spaceDelimited": " ", "pipeDelimited": "|"}.get(parameter.style, ",")
    return texts(value) if text == delimiter.join(texts(value)) else [text]


def _of_body(body, value, request):
    kind = request.headers["content-type"]
    match body.kind:
        case "json":
            same = msgspec.json.decode(request.content) == value
        case "binary":
            same = request.content == base64.b64decode(value)
        case "text":
            same = request.content.decode() == texts(value)[0]
        case "form":
            pairs = parse_qsl(request.content.decode(), keep_blank_values=True)
            same = all(
                name in {key.partition("[")[0] for key, _ in pairs} or each in ([], {})
                for name, each in value.items()
            ) or any(encoding.get("explode") for encoding in body.encoding.values())
        case _:
            message = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + request.content)
            parts = (
                [part.get_param("name", header="content-disposition") for part in message.get_payload()]
                if value
                else []
            )
            same = {*parts} == {name for name, each in value.items() if each != []}
    return [] if same else [f"body: {request.content[:200]!r} is not {value!r}"]
