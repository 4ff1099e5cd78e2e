"""The tables of old commands and files are complete, and each new command is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from supervisor.cli.main import cli
from supervisor.services.migration import importing, oldrun
from supervisor.services.runs.submit import ONLY_OLDER_RUNNER
from tests.acceptance.old_commands import OLD
from tests.importing.oldrunner import old_run

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
    context, command = click.Context(cli, **cli.context_settings), cli
    while isinstance(command, click.Group):
        parent = context
        name, found, words = command.resolve_command(parent, words)
        assert found is not None, line
        command = found
        context = click.Context(command, parent, name)
    # Without its parent the command would keep a help option of its own, which later tests in this process would see.
    command.make_context(name, words, parent)


def first_day() -> list[str]:
    text = PAGE.read_text(encoding="utf-8").split("## The first day", 1)[1].split("\n## ", 1)[0]
    lines = [line for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [line.split("  #")[0].strip() for line in lines if line.startswith("spot ")]


def files_of_old() -> set[str]:
    names = {key.split("/", 2)[2] for key in old_run()} | set(ONLY_OLDER_RUNNER) | {oldrun.STOP}
    return {re.sub(r"instances/[0-9]+", "instances/<n>", name) for name in names}


def untold(names: set[str], rows: set[str]) -> set[str]:
    """The names that no row has, neither the file nor a folder that it lies in, nor anything in this folder."""
    return {
        name
        for name in names
        if not any(name == row or (row.endswith("/") and name.startswith(row)) for row in rows)
        and not (name.endswith("/") and any(row.startswith(name) for row in rows))
    }


def test_every_line_of_the_first_day_is_one_that_the_command_line_takes() -> None:
    assert [line.split()[1] for line in first_day()] == [
        "config", "doctor", "serve", "import", "import", "resume", "submit", "watch",
    ]  # fmt: skip
    for line in first_day():
        parse(line)


def test_the_first_day_resumes_the_name_that_an_import_from_the_own_bucket_gives() -> None:
    assert f"spot resume RUN_ID{importing.SUFFIX}" in first_day()


def test_every_file_of_the_older_runner_is_written_again_or_told_to_be_gone() -> None:
    text = PAGE.read_text(encoding="utf-8").split("## Labels and files", 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
    rows = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert untold(files_of_old(), rows) == set()
    assert untold({"state.json", "tomorrow.json"}, rows) == {"tomorrow.json"}
    assert {"runner_label", "run_id", "project", "region"} <= rows


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
