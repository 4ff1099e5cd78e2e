"""Two OpenAPI documents, before and now: what would break a client that was written for the one before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.openapi_schemas import Comparison, Side

Json = dict[str, Any]
METHODS = ("get", "head", "put", "post", "patch", "delete")


def breaking(before: Json, now: Json) -> list[str]:
    """Each line: which operation, and what a client of before can no longer do with it."""
    sides = Comparison(Side(before["components"]["schemas"]), Side(now["components"]["schemas"]))
    problems: list[str] = []
    for path, method, old in _operations(before):
        new = now["paths"].get(path, {}).get(method)
        name = f"{method.upper()} {path}"
        if new is None:
            problems.append(f"{name}: is gone")
        else:
            problems += [f"{name}: {problem}" for problem in _operation(sides, old, new)]
    return problems


def _operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield path, method, methods[method]


def _operation(sides: Comparison, old: Json, new: Json) -> Iterator[str]:
    if old["operationId"] != new["operationId"]:
        yield "its operationId has changed, by which generated clients call it"
    yield from _security(old, new)
    yield from _parameters(sides, old, new)
    yield from _body(sides, old.get("requestBody", {}), new.get("requestBody", {}))
    yield from _answers(sides, old["responses"], new["responses"])


def _security(old: Json, new: Json) -> Iterator[str]:
    """A token that was enough must still be enough."""
    had = {scope for each in old.get("security", ()) for scope in each.get("token", ())}
    for scope in sorted({scope for each in new.get("security", ()) for scope in each.get("token", ())} - had):
        yield f"needs the scope {scope}"


def _parameters(sides: Comparison, old: Json, new: Json) -> Iterator[str]:
    were = {(parameter["in"], parameter["name"]): parameter for parameter in old.get("parameters", ())}
    are = {(parameter["in"], parameter["name"]): parameter for parameter in new.get("parameters", ())}
    for place, name in sorted({*were} - {*are}):
        yield f"the {place} parameter {name} is gone"
    for key, parameter in are.items():
        was = were.get(key)
        if parameter.get("required") and not (was or {}).get("required"):
            yield f"the {key[0]} parameter {key[1]} is now required"
        if was is not None:
            yield from sides.body(was["schema"], parameter["schema"], f"the {key[0]} parameter {key[1]}")


def _body(sides: Comparison, old: Json, new: Json) -> Iterator[str]:
    if new.get("required") and not old.get("required"):
        yield "a body is now required"
    for media_type, was in old.get("content", {}).items():
        body = new.get("content", {}).get(media_type)
        if body is None:
            yield f"a body of {media_type} is no longer accepted"
        else:
            yield from sides.body(was["schema"], body["schema"], "#")


def _answers(sides: Comparison, old: Json, new: Json) -> Iterator[str]:
    """Refusals all have one shape and may come and go; the shape itself is compared where it stays."""
    for status, was in old.items():
        if status not in new:
            if status.startswith("2"):
                yield f"the answer {status} is gone"
            continue
        answer = new[status]
        for header in sorted({*was.get("headers", ())} - {*answer.get("headers", ())}):
            yield f"the answer {status} no longer carries {header}"
        for media_type, content in was.get("content", {}).items():
            if media_type not in answer.get("content", {}):
                yield f"the answer {status} is no longer {media_type}"
            else:
                yield from sides.answer(content["schema"], answer["content"][media_type]["schema"], f"answer {status} ")
