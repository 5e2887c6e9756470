"""Arguments at random that conform to a schema, most of the time: a seed gives the same ones each time."""

import random
import string

_DEEPEST = 5
_FORMATS = {
    "date-time": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "uuid": "16fd2706-8baf-433b-82eb-8c7fada847da",
    "email": "ann@example.org",
    "uri": "https://example.org/a?b=c#d",
    "ipv4": "192.0.2.1",
}
_TEXTS = ("a", "two words", "x/y", "50%", "a&b=c", "é", "a,b", "#1", "a+b", "[x]", "~-_.")
_PATTERNED = (
    "a",
    "abc",
    "A1",
    "0",
    "1.0",
    "2026-01-02",
    "user",
    "tag-1",
    "0123456789abcdef0123456789abcdef01234567",
)


class RandomArguments:
    """Makes values of one schema.

    Args:
        schema: The schema, with its definitions under ``$defs``.
        seed: The seed.
    """

    def __init__(self, schema, seed):
        self._root = schema
        self._random = random.Random(seed)

    def make(self):
        """Return a value."""
        return self._value(self._root, 0)

    def _value(self, schema, depth):
        choose = self._random
        if isinstance(schema, bool):
            return choose.choice([None, 5, "text", True])
        schema = self._merged(schema, 0)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return choose.choice(schema["enum"])
        kinds = schema.get("type")
        if kinds is None:
            kinds = "object" if "properties" in schema else "array" if "items" in schema else "string"
        kinds = [kinds] if isinstance(kinds, str) else [each for each in kinds if each != "null"] or ["null"]
        return getattr(self, f"_{choose.choice(kinds)}")(schema, depth)

    def _merged(self, schema, depth):
        """Return a schema without references and choices: one branch of each is chosen, and all that must hold is put together."""
        if isinstance(schema, bool) or depth > 20:
            return {}
        parts = [
            {key: value for key, value in schema.items() if key not in {"$ref", "allOf", "anyOf", "oneOf"}}
        ]
        if "$ref" in schema:
            parts.append(self._root.get("$defs", {})[schema["$ref"].removeprefix("#/$defs/")])
        parts += schema.get("allOf", ())
        for keyword in ("anyOf", "oneOf"):
            branches = [each for each in schema.get(keyword, ()) if each != {"type": "null"}]
            if branches:
                parts.append(self._random.choice(branches))
        made = {}
        for index, part in enumerate(parts):
            inner = part if index == 0 else self._merged(part, depth + 1)
            for key, value in inner.items():
                if key == "properties":
                    known = made.get(key, {})
                    both = {
                        name: {"allOf": [known[name], value[name]]} for name in known.keys() & value.keys()
                    }
                    made[key] = {**known, **value, **both}
                elif key == "required":
                    made[key] = [*dict.fromkeys([*made.get(key, ()), *value])]
                elif key == "enum" and key in made:
                    made[key] = [each for each in made[key] if each in value]
                else:
                    made.setdefault(key, value)
        return made

    def _object(self, schema, depth):
        required = set(schema.get("required", ()))
        properties = {**dict.fromkeys(required, True), **schema.get("properties", {})}
        likely = 0.5 if depth < 2 else 0.2 if depth < _DEEPEST else 0
        return {
            name: self._value(each, depth + 1)
            for name, each in properties.items()
            if each is not False and (name in required or self._random.random() < likely)
        }

    def _array(self, schema, depth):
        least = schema.get("minItems", 0)
        most = min(schema.get("maxItems", 3), max(least, 3))
        count = self._random.randint(least, max(least, most)) if depth < _DEEPEST else least
        made = []
        for _ in range(count):
            value = self._value(schema.get("items", {"type": "string"}), depth + 1)
            if not (schema.get("uniqueItems") and value in made):
                made.append(value)
        return made

    def _string(self, schema, _):
        least, most = schema.get("minLength", 0), schema.get("maxLength", 10_000)
        if schema.get("contentEncoding") == "base64":
            return self._random.choice(["", "AP8=", "aGVsbG8="])
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        text = self._random.choice(_PATTERNED if "pattern" in schema else _TEXTS)
        while len(text) < least:
            text += self._random.choice(string.ascii_lowercase)
        return text[:most]

    def _integer(self, schema, _):
        least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        most = schema.get("maximum", schema.get("exclusiveMaximum", least + 100))
        step = schema.get("multipleOf", 1)
        value = self._random.randint(int(least), max(int(least), int(most)))
        return int(value // step * step)

    def _number(self, schema, depth):
        return self._integer({**schema, "multipleOf": 1}, depth) + self._random.choice([0, 0.5])

    def _boolean(self, _, __):
        return self._random.random() < 0.5

    def _null(self, _, __):
        return None
