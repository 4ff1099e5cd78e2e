"""The page of profiles: its tables name what the code has, and its example is what the command prints."""

from __future__ import annotations

import json

import click
import pytest

from supervisor.cli import output
from supervisor.cli.views.profile import profile_lines
from supervisor.domain.profile import Danger, Source, Stops, danger_clocks
from supervisor.providers.ssh.presets import names, preset
from supervisor.services.reading.profiles import profile_json
from supervisor.wording.figures import age_text
from supervisor.wording.profile import LABELS
from tools.project_files import ROOT

PAGE = (ROOT / "docs/providers/profiles.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table of a section, without its head."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_fact_stands_there_with_its_words_in_their_order() -> None:
    assert [row[:2] for row in rows("Facts")] == [[name, label] for name, label in LABELS.items()]


def test_every_danger_and_every_source_stands_there() -> None:
    assert [row[0] for row in rows("Dangers")] == list(Danger)
    assert [row[0] for row in rows("A value and its source")] == [*reversed(Source)]


@pytest.mark.parametrize("row", rows("Presets of rentals"), ids=lambda row: row[0])
def test_every_preset_is_described_as_it_is(row: list[str]) -> None:
    name, title, stops, undo = row
    profile = preset(name)
    verb = profile.meter_verb
    assert verb is not None
    assert title == profile.title
    assert stops == verb.verb + (" (partly)" if verb.stops_meter.value is Stops.PARTLY else "")
    assert undo.startswith("no" if profile.irreversible.value else "yes")
    kept = [clock.after_s for clock in danger_clocks(profile, None) if clock.danger is Danger.STOPPED_DELETED]
    if undo.startswith("yes"):
        assert undo.endswith(age_text(kept[0] or 0))


def test_no_preset_is_missing() -> None:
    assert tuple(row[0] for row in rows("Presets of rentals")) == names()


def test_the_example_is_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "terminal_columns", lambda: 100)
    shown = json.loads(json.dumps(profile_json(preset("generic"), None)))
    printed = "\n".join(map(click.unstyle, profile_lines(shown)))
    example = PAGE.partition("```text\n")[2].partition("\n```")[0]
    assert example in printed
