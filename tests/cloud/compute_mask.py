"""The `fields` parameter of Google's REST APIs: `items(name,scheduling/preemptible),nextPageToken`, `items/*/status`.

A segment passes through lists by itself; `*` stands for every key of a map.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from tests.cloud.compute_errors import ApiError

Mask = dict[str, "Mask | None"]  # None = the whole value
_TOKEN = re.compile(r"\s*([(),/]|[A-Za-z0-9_*$-]+)")


@lru_cache(maxsize=256)
def parse_mask(text: str) -> Mask | None:
    """None for a mask that keeps everything. Raises ApiError (400) for a text that is not a mask."""
    tokens, at = [], 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _refused(text)
        tokens.append(match.group(1))
        at = match.end()
    tokens.reverse()
    mask = _list(tokens, text)
    if tokens or not mask:
        raise _refused(text)
    return None if "*" in mask and mask["*"] is None else mask


def apply_mask(value: Any, mask: Mask | None) -> Any:
    if mask is None:
        return value
    if isinstance(value, list):
        return [apply_mask(one, mask) for one in value]
    if not isinstance(value, dict):
        return value
    if "*" in mask:
        return {key: apply_mask(one, mask["*"]) for key, one in value.items()}
    return {
        key: value[key] if inner is None else apply_mask(value[key], inner)
        for key, inner in mask.items()
        if key in value
    }


def _list(tokens: list[str], text: str) -> Mask:
    mask: Mask = {}
    while True:
        name = tokens.pop() if tokens else ""
        if name in ("", "(", ")", ",", "/"):
            raise _refused(text)
        _merge(mask, name, _inner(tokens, text))
        if not tokens or tokens[-1] != ",":
            return mask
        tokens.pop()


def _inner(tokens: list[str], text: str) -> Mask | None:
    if tokens and tokens[-1] == "/":
        tokens.pop()
        name = tokens.pop() if tokens else ""
        if name in ("", "(", ")", ",", "/"):
            raise _refused(text)
        return {name: _inner(tokens, text)}
    if tokens and tokens[-1] == "(":
        tokens.pop()
        inner = _list(tokens, text)
        if not tokens or tokens.pop() != ")":
            raise _refused(text)
        return inner
    return None


def _merge(into: Mask, name: str, inner: Mask | None) -> None:
    known = into.get(name)
    if name not in into or (known is not None and inner is None):
        into[name] = inner
    elif known is not None and inner is not None:
        for key, deeper in inner.items():
            _merge(known, key, deeper)


def _refused(text: str) -> ApiError:
    return ApiError(400, "Invalid field selection %s" % text, "invalidParameter")
