"""Two schemas of one body or answer, before and now: what a client of before would no longer be able to do.

A body must still accept whatever it accepted. An answer may gain fields and words, because clients must accept unknown
ones, and must keep every field that it had, in a type that it could have before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
ANYTHING = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
EXACT = ("pattern", "format", "const", "uniqueItems", "multipleOf", "propertyNames")


@dataclass(frozen=True, slots=True)
class Side:
    """One document: its schemas by name."""

    schemas: Mapping[str, Json]

    def resolved(self, part: Any) -> Json:
        """Without a reference at its top. `true` and a missing schema accept anything."""
        schema = part if isinstance(part, dict) else {}
        while "$ref" in schema:
            named = self.schemas[schema["$ref"].rpartition("/")[2]]
            schema = {**named, **{key: value for key, value in schema.items() if key != "$ref"}}
        return schema


def _without_null(default: Any) -> Any:
    """A field that is new in an object's default and null there means what its absence meant."""
    if not isinstance(default, dict):
        return default
    return {name: value for name, value in default.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Comparison:
    before: Side
    now: Side

    def body(self, old: Any, new: Any, at: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """What the schema `new` of a body or parameter refuses, and `old` accepted. `at`: where it stands."""
        if (step := _step(old, new)) in seen:
            return
        seen |= {step} if step else set()
        old, new = self.before.resolved(old), self.now.resolved(new)
        if _choices(old) or _choices(new):
            for each in _choices(old) or [old]:
                like = _like(each, _choices(new) or [new], self.before, self.now)
                yield from min((list(self.body(each, choice, at, seen)) for choice in like), key=len)
            return
        if lost := _types(old) - _accepted(_types(new)):
            yield f"{at}: the type {', '.join(sorted(lost))} is no longer accepted"
            return
        yield from _narrowed(old, new, at)
        yield from self._fewer_fields(old, new, at)
        if _without_null(old.get("default")) != _without_null(new.get("default")):
            yield f"{at}: what is meant by leaving it out has changed"
        for name, part in old.get("properties", {}).items():
            if name in new.get("properties", {}):
                yield from self.body(part, new["properties"][name], f"{at}/{name}", seen)
        for key in ("items", "additionalProperties"):
            if isinstance(old.get(key), dict) or isinstance(new.get(key), dict):
                yield from self.body(old.get(key), new.get(key), f"{at}/*", seen)

    def answer(self, old: Any, new: Any, at: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """What `new` can say, or leaves out, that a reader of `old` does not expect."""
        if (step := _step(old, new)) in seen:
            return
        seen |= {step} if step else set()
        old, new = self.before.resolved(old), self.now.resolved(new)
        if _choices(old) or _choices(new):
            for each in _choices(new) or [new]:
                like = _like(each, _choices(old) or [old], self.now, self.before)
                yield from min((list(self.answer(choice, each, at, seen)) for choice in like), key=len)
            return
        if strange := _types(new) - _accepted(_types(old)):
            yield f"{at}: may now be {', '.join(sorted(strange))}"
            return
        if old.get("format") != new.get("format"):
            yield f"{at}: the format has changed"
        yield from self._lost_fields(old, new, at)
        for name, part in old.get("properties", {}).items():
            if name in new.get("properties", {}):
                yield from self.answer(part, new["properties"][name], f"{at}/{name}", seen)
        for key in ("items", "additionalProperties"):
            if isinstance(old.get(key), dict):
                yield from self.answer(old[key], new.get(key), f"{at}/*", seen)

    @staticmethod
    def _fewer_fields(old: Json, new: Json, at: str) -> Iterator[str]:
        for name in sorted({*new.get("required", ())} - {*old.get("required", ())}):
            yield f"{at}/{name}: is now required"
        closed = new.get("additionalProperties") is False
        if closed and old.get("additionalProperties") is not False:
            yield f"{at}: unknown fields are no longer accepted"
        if closed:
            for name in sorted({*old.get("properties", ())} - {*new.get("properties", ())}):
                yield f"{at}/{name}: is no longer accepted"

    @staticmethod
    def _lost_fields(old: Json, new: Json, at: str) -> Iterator[str]:
        for name in sorted({*old.get("properties", ())} - {*new.get("properties", ())}):
            yield f"{at}/{name}: is gone"
        for name in sorted({*old.get("required", ())} - {*new.get("required", ())}):
            if name in new.get("properties", {}):
                yield f"{at}/{name}: may now be left out"


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


def _step(old: Any, new: Any) -> str:
    """Names a pair of references, so that models that hold themselves are compared once; "" = it is none."""
    if isinstance(old, dict) and isinstance(new, dict) and "$ref" in old and "$ref" in new:
        return f"{old['$ref']} {new['$ref']}"
    return ""


def _choices(schema: Json) -> list[Json]:
    choices: list[Json] = schema.get("anyOf") or schema.get("oneOf") or []
    return choices


def _like(schema: Json, choices: list[Json], its: Side, theirs: Side) -> list[Json]:
    """Those of the choices that can be of its type: only with them it is worth comparing. All, where none can."""
    types = _types(its.resolved(schema))
    return [each for each in choices if types & _accepted(_types(theirs.resolved(each)))] or choices


def _types(schema: Json) -> set[str]:
    kinds = schema.get("type", ANYTHING)
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _accepted(types: set[str]) -> set[str]:
    return types | {"integer"} if "number" in types else types
