"""The `filter` parameter of Compute Engine's lists: the documented part of AIP-160, and the older `name eq re`.

OR binds tighter than AND, two terms side by side are AND, `labels.k:*` asks whether the label exists. The two ways of
writing may not be mixed. What cannot be read is HTTP 400, never "everything".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from tests.cloud.compute_errors import ApiError

Test = Callable[[Mapping[str, Any]], bool]
_TOKEN = re.compile(r"""\s*(\(|\)|!=|<=|>=|=|<|>|:|-(?=[A-Za-z(])|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s()=!<>:"']+)""")
_OPERATORS = {"=", "!=", ":", "<", ">", "<=", ">="}
_OLD = {"eq", "ne"}


@lru_cache(maxsize=1024)
def parse_filter(text: str) -> Test:
    """Raises ApiError (400) for what Compute Engine would refuse."""
    if not text.strip():
        return lambda _: True
    reader = _Reader(text)
    test = reader.conjunction()
    if reader.tokens or len(reader.styles) > 1:
        raise reader.refused()
    return test


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.styles = text, list[str](), set[str]()
        at, text = 0, text.strip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.refused()
            self.tokens.append(match.group(1))
            at = match.end()
        self.tokens.reverse()

    def refused(self) -> ApiError:
        return ApiError(400, "Invalid value for field 'filter': '%s'. Invalid list filter expression." % self.text)

    def peek(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def take(self) -> str:
        if not self.tokens:
            raise self.refused()
        return self.tokens.pop()

    def conjunction(self) -> Test:
        parts = [self.disjunction()]
        while self.peek() not in ("", ")"):
            if self.peek() == "AND":
                self.take()
            parts.append(self.disjunction())
        return parts[0] if len(parts) == 1 else lambda row: all(part(row) for part in parts)

    def disjunction(self) -> Test:
        parts = [self.factor()]
        while self.peek() == "OR":
            self.take()
            parts.append(self.factor())
        return parts[0] if len(parts) == 1 else lambda row: any(part(row) for part in parts)

    def factor(self) -> Test:
        if self.peek() in ("NOT", "-"):
            self.take()
            inner = self.factor()
            return lambda row: not inner(row)
        if self.peek() == "(":
            self.take()
            inner = self.conjunction()
            if self.take() != ")":
                raise self.refused()
            return inner
        return self.term()

    def term(self) -> Test:
        path, operator, value = self.take(), self.take(), self.take()
        if not re.fullmatch(r"[A-Za-z][\w.-]*", path) or value in ("(", ")") or value in _OPERATORS:
            raise self.refused()
        if operator in _OLD:
            self.styles.add("old")
            return _old(path, operator, _unquoted(value))
        if operator not in _OPERATORS:
            raise self.refused()
        self.styles.add("new")
        return _compare(path.split("."), operator, _unquoted(value))


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[:1] in "\"'" and value else value


def _values(row: Any, path: list[str]) -> list[Any]:
    """Every value at this path, in lists too. Label keys have no dots, as paths have none."""
    found = [row]
    for step in path:
        found = [one for value in found for one in (value if isinstance(value, list) else [value])]
        found = [value[step] for value in found if isinstance(value, dict) and step in value]
    return [one for value in found for one in (value if isinstance(value, list) else [value])]


def _text(value: Any) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _old(path: str, operator: str, pattern: str) -> Test:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ApiError(400, "Invalid value for field 'filter': '%s'. %s" % (pattern, error)) from error
    steps = path.split(".")

    def test(row: Mapping[str, Any]) -> bool:
        hit = any(expression.fullmatch(_text(value)) for value in _values(row, steps))
        return hit if operator == "eq" else not hit

    return test


def _compare(path: list[str], operator: str, value: str) -> Test:
    if operator == ":":
        if value == "*":
            return lambda row: bool(_values(row, path))
        wanted = value.lower()
        return lambda row: any(
            wanted in _text(one).lower() or (isinstance(one, dict) and value in one) for one in _values(row, path)
        )
    if operator in ("=", "!="):
        if "*" in value:
            shape = re.compile(".*".join(re.escape(part) for part in value.split("*")))
            equal: Test = lambda row: any(shape.fullmatch(_text(one)) for one in _values(row, path))  # noqa: E731
        else:
            equal = lambda row: any(_text(one) == value for one in _values(row, path))  # noqa: E731
        return equal if operator == "=" else lambda row: not equal(row)
    return lambda row: any(_ordered(_text(one), operator, value) for one in _values(row, path))


def _ordered(left: str, operator: str, right: str) -> bool:
    a, b = (float(left), float(right)) if _number(left) and _number(right) else (left, right)
    return {"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b}[operator]  # type: ignore[operator]


def _number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d+)?", text) is not None
