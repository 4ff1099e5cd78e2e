"""The README shows a real run of the demo. It may be shortened by whole lines, and it may not drift from the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from examples import demo
from examples.demo_disasters import DISASTERS
from examples.demo_screen import Screen
from examples.demo_verdict import EXPECTED_CAUSES, Facts, summary
from supervisor.cli.views.runs import ATTEMPTS

README = Path(__file__).resolve().parents[2] / "README.md"
STAMPED = re.compile(r"\d\d:\d\d:\d\d  (?:  (?:· |= |[a-z_]+: ))?\S.*")
CONTINUED = re.compile(r" {10}(?: {4})?\S.*")
LEFT_OUT = "…"


def block(text: str) -> list[str]:
    found = re.search(r"<!-- demo output: begin -->\n```\n(.*?)\n```\n<!-- demo output: end -->", text, re.DOTALL)
    assert found is not None
    return found.group(1).split("\n")


@pytest.fixture(scope="module")
def shown() -> list[str]:
    return block(README.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def last(shown: list[str]) -> dict[str, Any]:
    return dict(json.loads(shown[-1]))


def table(lines: list[str]) -> list[str]:
    """The rows of the attempts, without the titles above and the shares below them."""
    titles = next(number for number, line in enumerate(lines) if line.startswith("#  "))
    rows = [line for line in lines[titles + 1 :] if re.match(r"\d+  ", line)]
    assert lines[titles + 1 : titles + 1 + len(rows)] == rows
    return rows


def live(lines: list[str]) -> list[str]:
    """The lines that the screen wrote: all but the last, and what a `spot` command printed below its title."""
    found, printing = [], False
    for line in lines[:-1]:
        printing = "  $ spot " in line or (printing and not _by_screen(line))
        if line and (not printing or _by_screen(line)):
            found.append(line)
    return found


def _by_screen(line: str) -> bool:
    return bool(line == LEFT_OUT or STAMPED.fullmatch(line) or CONTINUED.fullmatch(line))


def test_every_line_has_a_form_that_the_screen_writes(shown: list[str]):
    strangers = [
        line
        for line in live(shown)
        if line != LEFT_OUT and not STAMPED.fullmatch(line) and not CONTINUED.fullmatch(line)
    ]
    assert strangers == []


def test_the_screen_writes_these_forms_and_no_others(capsys: pytest.CaptureFixture[str]):
    screen, long = Screen(), "words " * 40
    for say in (screen.title, screen.detail, screen.event, screen.figures, screen.problem, screen.disaster):
        say(long)
    screen.sentence("awaiting_teardown", long)
    lines = [line for line in capsys.readouterr().out.split("\n") if line]
    assert [line for line in lines if not STAMPED.fullmatch(line) and not CONTINUED.fullmatch(line)] == []
    assert sum(bool(STAMPED.fullmatch(line)) for line in lines) == 6
    assert max(map(len, lines)) <= 118


def test_the_settings_are_those_of_the_demo(shown: list[str], capsys: pytest.CaptureFixture[str]):
    values = {name: getattr(demo.Demo, name) for name in ("title", "settings", "zones")}
    demo.Demo.show_settings(SimpleNamespace(screen=Screen(), processes=SimpleNamespace(folder="F"), **values))  # type: ignore[arg-type]
    told = capsys.readouterr().out.split("\n")[:3]
    assert [line[10:] for line in shown[:3]] == [line[10:] for line in told]


def test_the_training_is_that_of_the_demo(shown: list[str]):
    assert any(line.endswith("examples/digits/train.py " + " ".join(demo.ARGUMENTS)) for line in shown)


def test_all_five_disasters_are_there_in_order(shown: list[str]):
    announced = [line[10:] for line in shown if re.match(r"[\d:]{8}  \d/5 ", line)]
    patterns = [re.sub(r"\\\{.*?\\\}", r"\\S+", re.escape(text)) for text in DISASTERS]
    assert len(announced) == len(patterns)
    assert all(re.fullmatch(p, line) for p, line in zip(patterns, announced, strict=True))


def test_the_table_is_the_one_that_spot_show_prints(shown: list[str], last: dict[str, Any]):
    titles = next(line for line in shown if line.startswith("#  "))
    assert re.split(r" {2,}", titles) == list(ATTEMPTS.columns)
    cells = [re.split(r" {2,}", row) for row in table(shown)]
    assert [row[1] for row in cells] == last["zones"]
    assert [row[4] for row in cells] == last["causes"]
    assert sum(int(row[6].replace(",", "")) for row in cells) == last["steps_lost"]


def test_the_training_travels_as_a_bundle_and_its_results_are_pulled(shown: list[str], last: dict[str, Any]):
    submitted = next(number for number, line in enumerate(shown) if "$ spot submit" in line)
    assert re.match(r"code [0-9a-f]{12}: 1 file, \S+ kB of examples/digits \(stored, ", shown[submitted + 1])
    pulled = next(number for number, line in enumerate(shown) if "$ spot pull" in line)
    assert shown[pulled + 1] == f"OK {last['pulled']}/{last['pulled']}, errors 0"


def test_the_log_ends_in_commands_that_readme_tells_and_that_exist(capsys: pytest.CaptureFixture[str]):
    """At a terminal; a program reads JSON there."""
    from supervisor.cli.main import COMMANDS

    demo.show_next_commands(Screen())
    last = capsys.readouterr().out.rstrip("\n").splitlines()[-1]
    assert last.strip() == demo.NEXT[-1]
    assert last.strip() in README.read_text(encoding="utf-8")
    for command in demo.NEXT:
        assert re.findall(r"spot ([a-z]+)", command)[0] in COMMANDS


def test_what_the_demo_says_fits_on_one_screen(shown: list[str]):
    assert len(shown) <= 20


def test_the_last_line_is_a_summary_of_a_good_demo(last: dict[str, Any]):
    assert list(last) == list(summary(Facts(demo.RUN_ID)))
    assert (last["run_id"], last["status"], last["results_verified"]) == (demo.RUN_ID, "completed", True)
    assert last["attempts"] == len(last["causes"]) == len(last["zones"])
    assert set(EXPECTED_CAUSES) < set(last["causes"])
    assert last["causes"][-1] == "finished"
    assert re.fullmatch("[0-9a-f]{64}", last["weights_sha256"])
    assert last["weights_sha256"] == last["uninterrupted_sha256"]


def test_a_line_of_another_form_would_be_seen():
    """The broken variants: a line made up by hand, a stamp without its room."""
    assert not STAMPED.fullmatch("digits-demo: completed")
    assert not STAMPED.fullmatch("12:00:00 running: x")
    assert not CONTINUED.fullmatch("     five blanks")
