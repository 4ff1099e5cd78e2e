"""Is a JSON value what a schema of Google's discovery documents says? And a partial one what its `fields` mask says?

A schema is a JSON schema of Google's own kind: `$ref` by name, 64-bit numbers as strings, `readOnly`, and
`annotations.required` with the ids of the methods that demand the field. Findings are sentences, none = all is well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

Schema = Mapping[str, Any]
Mask = dict[str, Any]  # field -> mask of what is below it; {} = all of it

FORMATS = {
    "int64": r"-?[0-9]{1,19}",
    "uint64": r"[0-9]{1,20}",
    "byte": r"[-A-Za-z0-9+/_\s]*={0,2}",
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)",
    "google-datetime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)",
    "google-duration": r"-?[0-9]+(\.[0-9]{1,9})?s",
    "date": r"\d{4}-\d\d-\d\d",
}
RANGES = {"int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1)}


@cache
def whole(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{pattern})\Z")


@dataclass(frozen=True)
class Values:
    """The values of one message. `sent`: by a client, so nothing that only the server writes may be in it; null is
    the same as nothing there, or takes a field away."""

    schemas: Mapping[str, Schema]
    method: str
    sent: bool

    def check(self, value: Any, schema: Schema, where: str) -> Iterator[str]:
        while "$ref" in schema:
            schema = self.schemas[schema["$ref"]]
        if value is None:
            if not self.sent:
                yield f"{where}: null"
            return
        kind = schema.get("type", "any")
        if kind == "object":
            yield from self._object(value, schema, where)
        elif kind == "array":
            if not isinstance(value, list):
                yield f"{where}: {value!r} is no array"
                return
            for number, one in enumerate(value):
                yield from self.check(one, schema["items"], f"{where}[{number}]")
        elif kind != "any":
            yield from scalar(value, schema, where)

    def _object(self, value: Any, schema: Schema, where: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{where}: {value!r} is no object"
            return
        fields, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, one in value.items():
            at = f"{where}.{name}"
            if name in fields:
                if self.sent and fields[name].get("readOnly") and name != "kind":  # kind is echoed by many
                    yield f"{at}: sent, but it is read-only"
                yield from self.check(one, fields[name], at)
            elif others is not None:
                yield from self.check(one, others, at)
            elif fields:
                yield f"{at}: there is no such field"
        if self.sent:
            for name, field in fields.items():
                if name not in value and self.method in field.get("annotations", {}).get("required", ()):
                    yield f"{where}.{name}: required, but not sent"


def scalar(value: Any, schema: Schema, where: str) -> Iterator[str]:
    """Text, numbers and booleans of a body."""
    kind, form = schema["type"], schema.get("format", "")
    if kind == "string":
        if not isinstance(value, str):
            yield f"{where}: {value!r} is no string"
        else:
            yield from text(value, schema, where)
    elif kind == "boolean":
        if not isinstance(value, bool):
            yield f"{where}: {value!r} is no boolean"
    elif kind == "number":
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"{where}: {value!r} is no number"
    elif isinstance(value, bool) or not isinstance(value, int):
        yield f"{where}: {value!r} is no integer"
    else:
        yield from _ranged(value, schema, form, where)


def text(value: str, schema: Schema, where: str) -> Iterator[str]:
    """A string against its enum, pattern and format."""
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {', '.join(schema['enum'])}"
    for pattern in (schema.get("pattern"), FORMATS.get(schema.get("format", ""))):
        if pattern is not None and not whole(pattern).match(value):
            yield f"{where}: {value!r} does not match {pattern}"


def parameter(value: str, schema: Schema, where: str) -> Iterator[str]:
    """A parameter of a path or query, where everything is text."""
    kind = schema.get("type", "string")
    if kind == "string":
        yield from text(value, schema, where)
    elif kind == "boolean":
        if value not in ("true", "false"):
            yield f"{where}: {value!r} is neither true nor false"
    elif kind == "integer":
        if not whole(r"-?[0-9]+").match(value):
            yield f"{where}: {value!r} is no integer"
        else:
            yield from _ranged(int(value), schema, schema.get("format", ""), where)
    elif not whole(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?").match(value):
        yield f"{where}: {value!r} is no number"


def _ranged(value: int, schema: Schema, form: str, where: str) -> Iterator[str]:
    low, high = RANGES.get(form, (None, None))
    low = int(schema["minimum"]) if "minimum" in schema else low
    high = int(schema["maximum"]) if "maximum" in schema else high
    if (low is not None and value < low) or (high is not None and value > high):
        yield f"{where}: {value} is not within {low} and {high}"


# --- masks ----------------------------------------------------------------------------------------------------------


def parse_mask(words: str) -> Mask:
    """`items/*/instances(name,id),nextPageToken` as nested dicts. Raises ValueError."""
    tokens = re.findall(r"[A-Za-z0-9_*.\-]+|[/(),]", words)
    if "".join(tokens) != words.replace(" ", ""):
        raise ValueError(words)
    mask = _selection(tokens)
    if tokens:
        raise ValueError(words)
    return mask


def _selection(tokens: list[str]) -> Mask:
    found: Mask = {}
    while True:
        below: Mask = found
        while True:
            if not tokens or tokens[0] in "/(),":
                raise ValueError("a field is missing")
            below = below.setdefault(tokens.pop(0), {})
            if not tokens or tokens[0] != "/":
                break
            tokens.pop(0)
        if tokens and tokens[0] == "(":
            tokens.pop(0)
            below.update(_selection(tokens))
            if not tokens or tokens.pop(0) != ")":
                raise ValueError("a bracket is not closed")
        if not tokens or tokens[0] != ",":
            return found
        tokens.pop(0)


def unknown_in_mask(mask: Mask, schema: Schema, schemas: Mapping[str, Schema], where: str) -> Iterator[str]:
    """Fields that are in the mask and not in the schema: the real service responds with 400."""
    while "$ref" in schema or schema.get("type") == "array":
        schema = schemas[schema["$ref"]] if "$ref" in schema else schema["items"]
    fields, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, below in mask.items():
        if name == "*":
            inner = [others] if others is not None else [{"properties": fields}] if not below else []
            for one in inner:
                if below:
                    yield from unknown_in_mask(below, one, schemas, f"{where}/*")
        elif name in fields:
            if below:
                yield from unknown_in_mask(below, fields[name], schemas, f"{where}/{name}")
        elif others is None or name in below:
            yield f"{where}/{name}: there is no such field"
        elif below:
            yield from unknown_in_mask(below, others, schemas, f"{where}/{name}")


def outside_mask(value: Any, mask: Mask, where: str) -> Iterator[str]:
    """Fields of a response that are not in its mask."""
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from outside_mask(one, mask, f"{where}[{number}]")
    elif isinstance(value, dict) and mask:
        for name, one in value.items():
            below = mask.get(name, mask.get("*"))
            if below is None:
                yield f"{where}.{name}: answered, but `fields` does not ask for it"
            elif below:
                yield from outside_mask(one, below, f"{where}.{name}")
