"""The OpenAPI document is valid, and breaks no client of the released one.

openapi/released.json is what clients may rely on, without descriptions and examples. It is compared instead of an older
commit, so that a clone without history gets the same result. `make release-openapi` records an intended change; it
counts only with a line in the changelog that has the mark of the new file, because clients look there.

A request must still accept whatever it accepted. A response may gain fields and words, because clients must accept
unknown ones, and must keep every field that it had, in a type that it could have before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openapi_spec_validator import OpenAPIV31SpecValidator

Json = dict[str, Any]
Schemas = Mapping[str, Json]
DOCUMENT, RELEASED = Path("openapi/openapi.json"), Path("openapi/released.json")
WORDS = frozenset({"description", "summary", "examples", "example", "tags", "info", "servers"})
MARK_DIGITS = 12
METHODS = ("get", "head", "put", "post", "patch", "delete")
ANYTHING = ("null", "boolean", "integer", "number", "string", "array", "object")
LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
EXACT = ("pattern", "format", "const", "uniqueItems", "multipleOf", "propertyNames")


def check(root: Path) -> list[str]:
    """Every problem with the documents below `root`."""
    now = json.loads((root / DOCUMENT).read_text(encoding="utf-8"))
    released = (root / RELEASED).read_text(encoding="utf-8")
    problems = [
        f"{DOCUMENT}: {error.message[:300]} at {'/'.join(map(str, error.path))}"
        for error in OpenAPIV31SpecValidator(now).iter_errors()
    ]
    if mark(released) not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        problems.append(f"CHANGELOG.md: no line describes the change of the released API ({mark(released)})")
    return problems + [f"{DOCUMENT}: {line}" for line in breaking(json.loads(released), now)]


def release(root: Path) -> None:
    """Let clients rely on the present document."""
    now = json.loads((root / DOCUMENT).read_text(encoding="utf-8"))
    text = json.dumps(contract(now), indent=1, sort_keys=True) + "\n"
    (root / RELEASED).write_text(text, encoding="utf-8")
    print(f"wrote {RELEASED}; describe the change in CHANGELOG.md, with ({mark(text)})")


def mark(released: str) -> str:
    """The name of one content of openapi/released.json in the changelog."""
    return f"API {hashlib.sha256(released.encode()).hexdigest()[:MARK_DIGITS]}"


def contract(document: Json) -> Json:
    """The document without its texts for people: what programs rely on."""
    return {key: _without_words(value) for key, value in document.items() if key not in WORDS}


def _without_words(part: Any, names: bool = False) -> Any:
    """`names`: the keys of this object are names of ours (fields, headers), not words of OpenAPI."""
    if isinstance(part, list):
        return [_without_words(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        key: _without_words(value, key in ("properties", "headers", "schemas") and not names)
        for key, value in part.items()
        if names or key not in WORDS
    }


def breaking(before: Json, now: Json) -> list[str]:
    """Each line: an operation, and what an older client can no longer do with it."""
    comparison = Comparison(before["components"]["schemas"], now["components"]["schemas"])
    problems: list[str] = []
    for path, methods in before["paths"].items():
        for method in METHODS:
            if method not in methods:
                continue
            new, name = now["paths"].get(path, {}).get(method), f"{method.upper()} {path}"
            reasons = ["is gone"] if new is None else _operation(comparison, methods[method], new)
            problems += [f"{name}: {reason}" for reason in reasons]
    return problems


def _operation(comparison: Comparison, old: Json, new: Json) -> Iterator[str]:
    if old["operationId"] != new["operationId"]:
        yield "its operationId has changed, which names it in generated clients"
    yield from (f"needs the scope {scope}" for scope in sorted(_scopes(new) - _scopes(old)))
    yield from _parameters(comparison, old, new)
    yield from _request(comparison, old.get("requestBody", {}), new.get("requestBody", {}))
    yield from _responses(comparison, old["responses"], new["responses"])


def _scopes(operation: Json) -> set[str]:
    return {scope for scheme in operation.get("security", ()) for scope in scheme.get("token", ())}


def _parameters(comparison: Comparison, old: Json, new: Json) -> Iterator[str]:
    before, now = (
        {f"the {parameter['in']} parameter {parameter['name']}": parameter for parameter in side.get("parameters", ())}
        for side in (old, new)
    )
    yield from (f"{name} is gone" for name in sorted({*before} - {*now}))
    for name, parameter in now.items():
        earlier = before.get(name, {})
        if parameter.get("required") and not earlier.get("required"):
            yield f"{name} is now required"
        if earlier:
            yield from comparison.request(earlier["schema"], parameter["schema"], name)


def _request(comparison: Comparison, old: Json, new: Json) -> Iterator[str]:
    if new.get("required") and not old.get("required"):
        yield "a body is now required"
    for media_type, body in old.get("content", {}).items():
        if media_type not in new.get("content", {}):
            yield f"a body of {media_type} is no longer accepted"
        else:
            yield from comparison.request(body["schema"], new["content"][media_type]["schema"], "#")


def _responses(comparison: Comparison, old: Json, new: Json) -> Iterator[str]:
    """Error responses all have one shape and may come and go; the shape itself is compared where it stays."""
    for status, before in old.items():
        if status not in new:
            if status.startswith("2"):
                yield f"the response {status} is gone"
            continue
        now = new[status]
        for header in sorted({*before.get("headers", ())} - {*now.get("headers", ())}):
            yield f"the response {status} no longer carries {header}"
        for media_type, content in before.get("content", {}).items():
            if media_type not in now.get("content", {}):
                yield f"the response {status} is no longer {media_type}"
            else:
                new_schema = now["content"][media_type]["schema"]
                yield from comparison.response(content["schema"], new_schema, f"response {status} ")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two documents: their schemas by name. `at` of the methods: where the schema stands."""

    before: Schemas
    now: Schemas

    def request(self, old: Any, new: Any, at: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """What the schema `new` of a body or parameter refuses, and `old` accepted."""
        if (step := _step(old, new)) in seen:
            return
        seen |= {step} if step else set()
        old, new = _resolved(old, self.before), _resolved(new, self.now)
        if _choices(old) or _choices(new):
            for choice in _choices(old) or [old]:
                like = _like(choice, self.before, _choices(new) or [new], self.now)
                yield from min(([*self.request(choice, other, at, seen)] for other in like), key=len)
            return
        if lost := _types(old) - _accepted(_types(new)):
            yield f"{at}: the type {', '.join(sorted(lost))} is no longer accepted"
            return
        yield from _narrowed(old, new, at)
        yield from _fewer_fields(old, new, at)
        if _without_null(old.get("default")) != _without_null(new.get("default")):
            yield f"{at}: the meaning of leaving it out has changed"
        for name, part in old.get("properties", {}).items():
            if name in new.get("properties", {}):
                yield from self.request(part, new["properties"][name], f"{at}/{name}", seen)
        for key in ("items", "additionalProperties"):
            if isinstance(old.get(key), dict) or isinstance(new.get(key), dict):
                yield from self.request(old.get(key), new.get(key), f"{at}/*", seen)

    def response(self, old: Any, new: Any, at: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """What `new` can hold, or leave out, that a reader of `old` does not expect."""
        if (step := _step(old, new)) in seen:
            return
        seen |= {step} if step else set()
        old, new = _resolved(old, self.before), _resolved(new, self.now)
        if _choices(old) or _choices(new):
            for choice in _choices(new) or [new]:
                like = _like(choice, self.now, _choices(old) or [old], self.before)
                yield from min(([*self.response(other, choice, at, seen)] for other in like), key=len)
            return
        if strange := _types(new) - _accepted(_types(old)):
            yield f"{at}: may now be {', '.join(sorted(strange))}"
            return
        if old.get("format") != new.get("format"):
            yield f"{at}: the format has changed"
        fields, present = old.get("properties", {}), new.get("properties", {})
        yield from (f"{at}/{name}: is gone" for name in sorted({*fields} - {*present}))
        optional = {*old.get("required", ())} - {*new.get("required", ())}
        yield from (f"{at}/{name}: may now be left out" for name in sorted(optional & {*present}))
        for name, part in fields.items():
            if name in present:
                yield from self.response(part, present[name], f"{at}/{name}", seen)
        for key in ("items", "additionalProperties"):
            if isinstance(old.get(key), dict):
                yield from self.response(old[key], new.get(key), f"{at}/*", seen)


def _resolved(part: Any, schemas: Schemas) -> Json:
    """Without a reference at its top. `true` and a missing schema accept anything."""
    schema = part if isinstance(part, dict) else {}
    while "$ref" in schema:
        target = schemas[schema["$ref"].rpartition("/")[2]]
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _step(old: Any, new: Any) -> str:
    """The name of a pair of references, so that a model that holds itself is compared once; "" = no such pair."""
    if isinstance(old, dict) and isinstance(new, dict) and "$ref" in old and "$ref" in new:
        return f"{old['$ref']} {new['$ref']}"
    return ""


def _choices(schema: Json) -> list[Json]:
    choices: list[Json] = schema.get("anyOf") or schema.get("oneOf") or []
    return choices


def _like(schema: Json, schemas: Schemas, choices: list[Json], theirs: Schemas) -> list[Json]:
    """The choices that can have its type, because only these are worth a comparison; all, where none can."""
    types = _types(_resolved(schema, schemas))
    return [choice for choice in choices if types & _accepted(_types(_resolved(choice, theirs)))] or choices


def _types(schema: Json) -> set[str]:
    kinds = schema.get("type", ANYTHING)
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _accepted(types: set[str]) -> set[str]:
    return types | {"integer"} if "number" in types else types


def _without_null(default: Any) -> Any:
    """A new field that is null in an object's default means what its absence meant."""
    if not isinstance(default, dict):
        return default
    return {name: value for name, value in default.items() if value is not None}


def _fewer_fields(old: Json, new: Json, at: str) -> Iterator[str]:
    required = {*new.get("required", ())} - {*old.get("required", ())}
    yield from (f"{at}/{name}: is now required" for name in sorted(required))
    if new.get("additionalProperties") is False:
        if old.get("additionalProperties") is not False:
            yield f"{at}: unknown fields are no longer accepted"
        lost = {*old.get("properties", ())} - {*new.get("properties", ())}
        yield from (f"{at}/{name}: is no longer accepted" for name in sorted(lost))


def _narrowed(old: Json, new: Json, at: str) -> Iterator[str]:
    if "enum" in new and (lost := [str(word) for word in old.get("enum", ()) if word not in new["enum"]]):
        yield f"{at}: no longer accepted: {', '.join(lost)}"
    if "enum" in new and "enum" not in old:
        yield f"{at}: only certain words are accepted now"
    for key in LOWER:
        if key in new and (key not in old or new[key] > old[key]):
            yield f"{at}: {key} is now {new[key]}"
    for key in UPPER:
        if key in new and (key not in old or new[key] < old[key]):
            yield f"{at}: {key} is now {new[key]}"
    for key in EXACT:
        if key in new and new[key] != old.get(key):
            yield f"{at}: {key} has changed"
