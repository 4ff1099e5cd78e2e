"""The table of old and new commands is complete, and each new command is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from supervisor.cli.main import cli
from tests.acceptance.old_commands import OLD

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migration.md"
HEADING = "## Commands, old and new"
NAMES = {"RUN": "digits-7", "FILE.env": "old.env"}


def table(text: str) -> dict[str, list[str]]:
    """Old command -> the new ones of its row."""
    section = text.split(HEADING, 1)[1].split("\n## ", 1)[0]
    found: dict[str, list[str]] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and cells[0].startswith("`"):
            old = cells[0].strip("`").replace("\\|", "|")
            assert old not in found, f"{old} stands there twice"
            assert cells[2], f"{old}: what is different is not told"
            found[old] = re.findall(r"`([^`]+)`", cells[1])
    return found


ROWS = table(PAGE.read_text(encoding="utf-8"))


def parse(line: str) -> None:
    """Raises ClickException for what the command line does not take; nothing is carried out."""
    words = [NAMES.get(word, word) for word in shlex.split(line)]
    assert words.pop(0) == "spot", line
    context, command = click.Context(cli), cli
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None, line
        command = found
        context = click.Context(command, context, name)
    command.make_context(name, words)


def test_every_old_command_has_its_row() -> None:
    assert list(ROWS) == list(OLD)


@pytest.mark.parametrize("line", sorted({new for found in ROWS.values() for new in found}))
def test_every_new_command_is_one_that_the_command_line_takes(line: str) -> None:
    parse(line)


def test_each_row_names_a_new_command() -> None:
    assert [old for old, new in ROWS.items() if not new] == []


@pytest.mark.parametrize(
    "line", ["spot status digits-7", "spot stop --everything", "spot watch digits-7 soon", "spot dev dance"]
)
def test_a_command_that_does_not_exist_would_be_found(line: str) -> None:
    with pytest.raises(click.ClickException):
        parse(line)


def test_a_row_that_is_missing_would_be_found() -> None:
    text = "\n".join(line for line in PAGE.read_text().splitlines() if "`ops watch 60`" not in line)
    assert list(table(text)) != list(OLD)
