"""Scenario files as lines: a verb, its words, and its options. The modules `*_verbs` and `expectations` define them.

One line is one verb: `submit digits zones=a,b steps=1000`. `#` starts a comment, quotes keep a text together, times are
written 30s, 5min, 2h, 1d. The first line of a file is a comment that describes its story.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

OPTION = re.compile(r"([a-z_]+)(<=|>=|!=|=|~)(.*)\Z", re.DOTALL)
TIME = re.compile(r"(-?\d+(?:\.\d+)?)(s|min|h|d)\Z")
T = TypeVar("T")
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class ScenarioError(Exception):
    """The file uses something that does not exist, or an expectation is not met."""


@dataclass(frozen=True)
class Option:
    name: str
    sign: str  # = != <= >= ~
    value: str


@dataclass(frozen=True)
class Line:
    number: int
    text: str
    verb: str
    words: tuple[str, ...]
    options: tuple[Option, ...]

    def word(self, position: int, what: str) -> str:
        if position >= len(self.words):
            raise ScenarioError(f"{self.verb!r} needs {what}")
        return self.words[position]

    def values(self) -> dict[str, str]:
        """Options of a verb: name=value only."""
        strange = [option for option in self.options if option.sign != "="]
        if strange:
            raise ScenarioError(f"{strange[0].name}{strange[0].sign} is not an option of a verb")
        return {option.name: option.value for option in self.options}


def seconds(text: str) -> float:
    """`5min` -> 300.0"""
    match = TIME.match(text)
    if match is None:
        raise ScenarioError(f"{text!r} is not a time such as 30s, 5min, 2h")
    return float(match.group(1)) * SECONDS[match.group(2)]


def choose(table: Mapping[str, T], name: str) -> T:
    if name not in table:
        raise ScenarioError(f"{name!r} is none of {', '.join(table)}")
    return table[name]


def yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ScenarioError(f"{text!r} is neither yes nor no")
    return text == "yes"


def lines_of(path: Path) -> list[Line]:
    raw = path.read_text(encoding="utf-8").splitlines()
    if not raw or not raw[0].startswith("# "):
        raise ScenarioError(f"{path.name} does not start with a comment that describes its story")
    lines = [line_of(number, text) for number, text in enumerate(raw, 1)]
    return [line for line in lines if line is not None]


def line_of(number: int, text: str) -> Line | None:
    try:
        parts = shlex.split(text, comments=True)
    except ValueError as error:
        raise ScenarioError(f"line {number}: {error}") from None
    if not parts:
        return None
    words, options = [], []
    for part in parts[1:]:
        match = OPTION.match(part)
        if match is None:
            words.append(part)
        else:
            options.append(Option(*match.groups()))
    return Line(number, text.strip(), parts[0], tuple(words), tuple(options))
