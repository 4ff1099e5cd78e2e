"""Every text is legible on every ground that it may have, in light and dark (WCAG 2 AA)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from supervisor.dashboard.rendering import OURS
from tests.dashboard import styles

TEXT, CONTROL = 4.5, 3.0
GROUNDS = ("--ground", "--card", "--sunken")  # of pages, cards, tables and texts of machines
TONES = ("good", "busy", "wait", "person", "bad", "still")
ANYWHERE = ("--text", "--quiet", "--link")
# Pictures, not text: their lines must be seen, the shading behind them need not.
SHAPES = {
    "charts.css: .chart-line": CONTROL,
    "charts.css: .chart-grid": 1.0,
    "charts.css: .chart-band": 1.0,
    "charts.css: .chart-band.even": 1.0,
}
SHEETS = {path.name: path.read_text() for path in sorted(Path(OURS).glob("*.css"))}
MAIN = SHEETS["style.css"]


def too_faint(sheets: dict[str, str], look: str) -> Iterator[str]:
    known = styles.tokens(sheets.values(), look)
    tinted = [f"--{tone}-ground" for tone in TONES]
    own = [(f"--{tone}", f"--{tone}-ground") for tone in TONES]
    on_any = product([f"--{tone}" for tone in TONES], GROUNDS)
    for text, ground in (*product(ANYWHERE, (*GROUNDS, *tinted)), *on_any, *own):
        yield from _judged(f"{text} on {ground}", known[text], known[ground], TEXT)
    for edge, ground in product(("--edge", "--focus"), GROUNDS):
        yield from _judged(f"{edge} on {ground}", known[edge], known[ground], CONTROL)
    for where, text, ground in styles.on_grounds(sheets, known, look):
        yield from _judged(where, text, ground, TEXT)
    for where, text in (*styles.alone(sheets, known, look), *styles.drawn(sheets, known, look, SHAPES)):
        least = SHAPES.get(where, TEXT)
        for ground in GROUNDS:
            yield from _judged(f"{where} on {ground}", text, known[ground], least)


def _judged(what: str, text: str, ground: str, least: float) -> Iterator[str]:
    ratio = styles.contrast(text, ground)
    if ratio < least:
        yield f"{what}: {ratio:.2f}, and {least} is needed"


@pytest.mark.parametrize("look", styles.LOOKS)
def test_every_text_can_be_read_on_every_ground(look: str) -> None:
    assert list(too_faint(SHEETS, look)) == []


@pytest.mark.parametrize(
    ("before", "after", "look", "complaint"),
    [
        ("--quiet: light-dark(#5a6472,", "--quiet: light-dark(#8a94a2,", "light", "--quiet on --card"),
        ("--good-ground: light-dark(#e1f5e8, #10301d)", "--good-ground: #3f8a5a", "dark", "--good on"),
        ("code, pre, kbd {", "code, pre, kbd { color: #999999;", "light", "style.css: code, pre, kbd on"),
        ("kbd { background: var(--sunken);", "kbd { background: #777777; color: #888888;", "dark", "style.css: kbd"),
    ],
)  # fmt: skip
def test_a_colour_that_is_too_faint_is_found(before: str, after: str, look: str, complaint: str) -> None:
    assert before in MAIN
    found = list(too_faint({"style.css": MAIN.replace(before, after)}, look))
    assert any(one.startswith(complaint) for one in found), found


def test_contrast_is_computed_as_the_guidelines_do() -> None:
    assert styles.contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert styles.contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=0.001)  # known to fail by a hair


def test_no_sheet_names_a_token_that_there_is_not() -> None:
    given = {name for sheet in SHEETS.values() for rule in styles.rules(sheet) for name in rule.sets}
    used = {name for sheet in SHEETS.values() for name in styles.VAR.findall(sheet)}
    assert used - given == set()
