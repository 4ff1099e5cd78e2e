"""Style sheets as far as colours go: tokens of the light and the dark look, rules with what they set, and contrast as
WCAG 2 computes it (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

LOOKS = ("light", "dark")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_PAIR = re.compile(r"light-dark\(\s*([^(),]+(?:\([^)]*\))?)\s*,\s*([^(),]+(?:\([^)]*\))?)\s*\)")
_HEX = re.compile(r"#([0-9a-f]{6})\b", re.IGNORECASE)
VAR = re.compile(r"var\((--[a-z-]+)\)")

Tokens = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rule:
    selector: str
    sets: Mapping[str, str]  # property -> value as written


def rules(sheet: str) -> list[Rule]:
    """In their order; those within @media too."""
    found = []
    for selector, body in _RULE.findall(_COMMENT.sub("", sheet)):
        parts = (part.partition(":") for part in body.split(";") if ":" in part)
        sets = {name.strip(): value.strip() for name, _, value in parts}
        found.append(Rule(" ".join(selector.split()), sets))
    return found


def tokens(sheets: Iterable[str], look: str) -> dict[str, str]:
    """Name -> `#rrggbb`, for the tokens that are colors, from all sheets."""
    given = {
        name: colour(value, {}, look)
        for sheet in sheets
        for rule in rules(sheet)
        for name, value in rule.sets.items()
        if name.startswith("--")
    }
    return {name: value for name, value in given.items() if value is not None}


def colour(value: str, known: Tokens, look: str) -> str | None:
    """`#rrggbb` of the first colour that is written there; None = none of these tokens' (inherit, transparent)."""
    pair = _PAIR.search(value)
    if pair is not None:
        return colour(pair[1 + LOOKS.index(look)], known, look)
    for written in re.finditer(f"{_HEX.pattern}|{VAR.pattern}", value, re.IGNORECASE):
        return f"#{written[1].lower()}" if written[1] else known.get(written[2])
    return None


def contrast(one: str, other: str) -> float:
    """1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def on_grounds(sheets: Mapping[str, str], known: Tokens, look: str) -> Iterator[tuple[str, str, str]]:
    """(where, colour of its text, colour of its ground) of each rule that sets both."""
    for name, sheet in sheets.items():
        for rule in rules(sheet):
            ground = colour(rule.sets.get("background", rule.sets.get("background-color", "")), known, look)
            text = colour(rule.sets.get("color", ""), known, look)
            if text is not None and ground is not None:
                yield f"{name}: {rule.selector}", text, ground


def alone(sheets: Mapping[str, str], known: Tokens, look: str) -> Iterator[tuple[str, str]]:
    """(where, colour) of text whose rule leaves the ground to what is around it."""
    for name, sheet in sheets.items():
        for rule in rules(sheet):
            written = rule.sets.get("color", "")
            text = colour(written, known, look)
            if text is not None and "background" not in rule.sets and "background-color" not in rule.sets:
                yield f"{name}: {rule.selector}", text


def drawn(sheets: Mapping[str, str], known: Tokens, look: str, shapes: Container[str]) -> Iterator[tuple[str, str]]:
    """(where, color of its line, else of its area) of these shapes."""
    for name, sheet in sheets.items():
        for rule in rules(sheet):
            shape = colour(rule.sets.get("stroke", rule.sets.get("fill", "")), known, look)
            if shape is not None and f"{name}: {rule.selector}" in shapes:
                yield f"{name}: {rule.selector}", shape
