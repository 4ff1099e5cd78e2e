"""docs/llms.txt is what `spot docs llms` prints, and has every command with its line of help."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.cli import main
from supervisor.cli.server.docs import llms_text

PAGE = Path(__file__).parents[2] / "docs" / "llms.txt"
REMEDY = "run: spot docs llms > docs/llms.txt"


def test_the_file_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == llms_text(), REMEDY


def test_it_has_every_command_with_its_line() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    missing = [name for name, (_, text) in main.COMMANDS.items() if f"- `spot {name}`: {text}" not in lines]
    assert missing == []
    assert len([line for line in lines if line.startswith("- `spot ")]) == len(main.COMMANDS)


def test_a_new_command_or_another_line_of_help_is_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    for changed in ({"dance": ("server.dev", "Dance.")}, {"ls": ("runs.runs", "List something else.")}):
        monkeypatch.setitem(main.SECTIONS, "Look", {**main.SECTIONS["Look"], **changed})
        assert PAGE.read_text(encoding="utf-8") != llms_text()
        monkeypatch.undo()
