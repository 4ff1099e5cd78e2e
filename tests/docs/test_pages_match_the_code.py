"""Pages that repeat what the code says are compared with the code: whoever changes one is told about the other."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from supervisor.api.errors import STATUS
from supervisor.cli.server.docs import states_markdown
from supervisor.domain import errors
from supervisor.domain.causes import Cause
from supervisor.domain.status import Status
from supervisor.settings.env.file import OLD_KEYS
from supervisor.wiring import settings as wired

ROOT = Path(__file__).resolve().parents[2]
# Pages that tell a user what to type.
GUIDES = (
    "README.md",
    "CONTRIBUTING.md",
    *(
        str(path.relative_to(ROOT))
        for folder in ("docs", "docs/causes", "docs/providers")
        for path in sorted((ROOT / folder).glob("*.md"))
    ),
)

DEFAULTS = wired.load({}, {"HOME": "/h"})


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def first_column(markdown: str) -> list[str]:
    """The words in code quotes with which the rows of the page's tables begin."""
    return re.findall(r"^\| `([^`]+)` \|", markdown, flags=re.MULTILINE)


DOMAIN_CODES = {
    kind.code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.SpotError)
}


def drawn() -> str:
    """Section 9 of the page of rules."""
    return page("docs/rules.md").split("\n## 9. Statuses, moves, causes\n\n")[1]


def test_the_statuses_and_causes_of_the_page_of_rules_are_those_that_the_tables_draw():
    assert drawn() == states_markdown(), "put into section 9 what `spot docs states` prints"


def test_the_drawing_names_every_status_and_the_table_every_cause():
    text = drawn()
    assert [word for word in [*Status, *Cause] if f"`{word}`" not in text] == []


def test_a_page_that_misses_a_move_would_be_seen():
    """The broken variant: one row fewer."""
    lines = states_markdown().splitlines()
    assert "\n".join(line for line in lines if "| `pending` | `waiting` |" not in line) + "\n" != states_markdown()


def test_the_page_of_errors_lists_every_code_once():
    listed = first_column(page("docs/errors.md"))
    assert sorted(listed) == sorted(set(listed))
    assert (DOMAIN_CODES | set(STATUS)) - set(listed) == set()


def test_the_page_of_errors_tells_the_http_status_of_each_code():
    told = dict(re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|", page("docs/errors.md"), flags=re.MULTILINE))
    assert told == {code: str(status) for code, status in STATUS.items()}


def test_the_page_of_settings_lists_every_setting_once_with_its_default():
    listed = [name for name in first_column(page("docs/settings.md")) if not name.isupper()]
    assert sorted(listed) == sorted(DEFAULTS.flat)


def test_the_page_of_settings_lists_every_old_key_that_becomes_a_setting():
    listed = [name for name in first_column(page("docs/settings.md")) if name.isupper()]
    assert sorted(listed) == sorted(key for key, old in OLD_KEYS.items() if old.setting is not None)


@pytest.mark.parametrize("name", sorted(DEFAULTS.flat))
def test_the_defaults_on_the_page_are_those_of_the_code(name: str):
    row = re.search(rf"^\| `{name}` \| ([^|]*) \|", page("docs/settings.md"), flags=re.MULTILINE)
    assert row is not None
    told = row.group(1).strip()
    default = "" if name in ("database_url", "store_url") else DEFAULTS.value(name)  # they depend on the data folder
    if isinstance(default, bool) or not isinstance(default, int | float | str) or default == "":
        assert told
    else:
        assert told.strip("`") == (f"{default:g}" if isinstance(default, float) else str(default))


def calls_in(text: str, program: str) -> set[str]:
    """The first words after `program` in code blocks and code quotes."""
    code = re.findall(r"```[a-z]*\n(.*?)```", text, flags=re.DOTALL)
    quotes = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    found = set()
    for line in [*"\n".join(code).splitlines(), *quotes]:
        found.update(re.findall(rf"(?:^|[;&] ?)(?:\$ )?(?:\S*/)?{program} ([a-z][a-z-]*)", line.strip()))
    return found


def test_every_command_that_a_page_quotes_exists():
    from supervisor.cli.main import COMMANDS

    quoted = {command for guide in GUIDES for command in calls_in(page(guide), "spot")}
    assert quoted - set(COMMANDS) == set()
    assert {"submit", "serve"} <= quoted


def strange_flags(text: str) -> set[str]:
    """Options of `spot` in code blocks that the command which they are given to does not have."""
    from supervisor.cli.main import cli

    found = set()
    for block in re.findall(r"```[a-z]*\n(.*?)```", text, flags=re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            call = re.search(r"(?:^|[;&] ?|\$ |/bin/|-u spot )spot ([a-z-]+.*)", line)
            if call is None:
                continue
            line_without_texts = re.sub(r'"[^"]*"', "TEXT", call.group(1))
            words = re.split(r"\s(?:--\s|#|\|)|;|: ", line_without_texts + " ")[0].split()
            command: click.Command | None = cli
            with click.Context(cli, **cli.context_settings) as context:
                while words and isinstance(command, click.Group) and command is not None:
                    command = command.get_command(context, words.pop(0))
            if command is None:
                continue
            known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
            flags = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            found.update(f"{command.name} {flag}" for flag in flags - known - {"--help", "-h"})
    return found


@pytest.mark.parametrize("guide", GUIDES)
def test_every_option_that_a_page_shows_is_one_of_its_command(guide: str):
    assert strange_flags(page(guide)) == set()


def test_an_option_that_a_command_does_not_have_would_be_found():
    text = "```sh\nspot serve &\nsudo -u spot spot token create --name ci --expires 90d\nspot ls -- --no\n```\n"
    assert strange_flags(text) == {"create --name"}


def test_every_make_target_that_a_page_quotes_exists():
    targets = set(re.findall(r"^([a-z-]+):", page("Makefile"), flags=re.MULTILINE))
    quoted = {target for guide in GUIDES for target in calls_in(page(guide), "make")}
    assert quoted - targets == set()
    assert {"demo", "test"} <= quoted


def test_a_quoted_command_that_does_not_exist_would_be_found():
    text = "Run `spot dance` or\n```\nspot submit x.yaml; spot hop\n$ .venv/bin/spot ls\n```\n"
    assert calls_in(text, "spot") == {"dance", "submit", "hop", "ls"}


def test_every_numbered_section_that_the_code_cites_is_in_the_rules():
    rules = page("docs/rules.md")
    numbers = set(re.findall(r"^## (\d+)\.", rules, flags=re.MULTILINE))
    cited = set()
    for path in (ROOT / "supervisor").rglob("*.py"):
        for group in re.findall(r"RULES sections? ([\d, and]*\d)", path.read_text(encoding="utf-8")):
            cited.update(re.findall(r"\d+", group))
    assert cited - numbers == set()
    assert cited


def test_every_document_that_the_code_names_is_there():
    named = set()
    for path in (ROOT / "supervisor").rglob("*.py"):
        named.update(re.findall(r"docs/[a-z0-9/-]+\.md", path.read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
    assert named
