"""docs/llms.txt is what `spot docs llms` prints, and has every command and sub-command with its line of help, and every
tool of `spot mcp`. It is a link to the file that the supervisor serves."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from supervisor.cli import main
from supervisor.cli.mcp import tools
from supervisor.cli.server.docs import llms_text

PAGE = Path(__file__).parents[2] / "docs" / "llms.txt"
REMEDY = "run: spot docs llms > docs/llms.txt"


def test_the_file_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == llms_text(), REMEDY


def test_it_has_every_command_with_its_line() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    missing = [name for name, (_, text) in main.COMMANDS.items() if f"- `spot {name}`: {text}" not in lines]
    assert missing == []
    named = {line.split("`")[1] for line in lines if line.startswith("- `spot ")}
    assert named == {f"spot {name}" for name in [*main.COMMANDS, *sub_commands()]}
    assert {"spot token create", "spot dev preempt", "spot mcp"} <= named


def sub_commands() -> set[str]:
    with click.Context(main.cli) as ctx:
        groups = {name: main.cli.get_command(ctx, name) for name in main.COMMANDS}
        return {
            f"{name} {sub}"
            for name, group in groups.items()
            if isinstance(group, click.Group)
            for sub, command in group.commands.items()
            if not command.hidden
        }


def test_it_has_every_tool_and_says_which_ones_need_write() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for name, tool in tools.TOOLS.items():
        mark = "`, only with `--write`: " if tool.write else "`: "
        assert f"- `{name}{mark}{' '.join(tool.text.split())}" in lines


def test_a_new_tool_or_sub_command_is_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tools.READ, "list_walks", tools.Tool(text="List walks."))
    assert PAGE.read_text(encoding="utf-8") != llms_text()
    monkeypatch.undo()
    with click.Context(main.cli) as ctx:
        group = main.cli.get_command(ctx, "token")
    monkeypatch.setitem(group.commands, "dance", click.Command("dance", help="Dance."))
    assert PAGE.read_text(encoding="utf-8") != llms_text()


def test_a_new_command_or_another_line_of_help_is_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    for changed in ({"dance": ("server.dev", "Dance.")}, {"ls": ("runs.runs", "List something else.")}):
        monkeypatch.setitem(main.SECTIONS, "Look", {**main.SECTIONS["Look"], **changed})
        assert PAGE.read_text(encoding="utf-8") != llms_text()
        monkeypatch.undo()
