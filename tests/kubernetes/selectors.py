"""labelSelector and fieldSelector of a list, as the API reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.kubernetes.errors import bad_request
from tests.kubernetes.kinds import META_FIELDS, Kind

Test = Callable[[Mapping[str, Any]], bool]
_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_EQUALS = re.compile(rf"({_KEY})\s*(=|==|!=)\s*({_VALUE})")
_AMONG = re.compile(rf"({_KEY})\s+(in|notin)\s+\(([^()]*)\)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_COMMA = re.compile(r",(?![^()]*\))")


def by_labels(text: str) -> Test:
    """Raises ApiError."""
    tests = [_label_test(part.strip()) for part in _COMMA.split(text) if part.strip()]

    def holds(resource: Mapping[str, Any]) -> bool:
        labels = resource["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return holds


def _label_test(part: str) -> Test:
    if match := _EQUALS.fullmatch(part):
        key, operator, value = match.groups()
        return lambda labels: (labels.get(key) == value) != (operator == "!=")
    if match := _AMONG.fullmatch(part):
        key, operator, values = match[1], match[2], {value.strip() for value in match[3].split(",")}
        return lambda labels: (labels.get(key) in values) != (operator == "notin")
    if match := _EXISTS.fullmatch(part):
        return lambda labels: (match[2] in labels) != (match[1] == "!")
    raise bad_request(f'unable to parse requirement: "{part}"')


def by_fields(kind: Kind, text: str) -> Test:
    """Raises ApiError."""
    tests: list[Test] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"([^=!]+)(=|==|!=)(.*)", part)
        if match is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        name, operator, value = match.groups()
        if name not in META_FIELDS | kind.fields:
            raise bad_request(f"field label not supported: {name}")
        tests.append(lambda resource, name=name, sign=operator, value=value: (  # type: ignore[misc]
            (_field(resource, name) == value) != (sign == "!=")
        ))  # fmt: skip
    return lambda resource: all(test(resource) for test in tests)


def _field(resource: Mapping[str, Any], path: str) -> str:
    value: Any = resource
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return "" if value is None else str(value)
