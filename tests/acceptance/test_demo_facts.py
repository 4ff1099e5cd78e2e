"""docs/evidence.md shows the facts of a real run of the demo, in the form that `spot show --facts` prints today."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from examples import demo
from examples.demo_verdict import EXPECTED_CAUSES
from supervisor.cli.views.show import facts_lines
from supervisor.wording.attempt import FACTS

ROOT = Path(__file__).resolve().parents[2]
GIB = 2**30


@pytest.fixture(scope="module")
def shown() -> list[str]:
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- demo facts: begin -->\n```\n(.*?)\n```\n<!-- demo facts: end -->", page, re.DOTALL)
    assert found is not None
    title, head, empty, *lines = found.group(1).split("\n")
    assert title == f"$ spot show {demo.RUN_ID} --facts"
    assert (head.split(), empty) == ([demo.RUN_ID, "✔", "completed", "finished"], "")
    return lines


def facts_of(lines: list[str]) -> dict[str, Any]:
    """What the first block says, as an agent would have noted it."""
    begins = lines.index("")
    facts: dict[str, Any] = {}
    names = {label: name for label, name in FACTS if label} | {"": "python_executable"}
    for line in lines[1:begins]:
        label, text = line[2:11].strip(), line[12:]
        facts[names[label]] = None if text == "none" else text
    count, _, sha256 = facts["packages"].partition(", sha256 ")
    facts.update(packages=["x==1"] * int(count), packages_sha256=sha256, seeds={})
    facts.update(command=facts["command"].split(), memory_bytes=float(facts["memory_bytes"].split()[0]) * GIB)
    return facts


def test_the_page_shows_it_as_the_command_prints_it(shown: list[str]) -> None:
    facts = facts_of(shown)
    rows = [line.split() for line in shown if re.match(r"\d  ", line)]
    attempts = [{"attempt": int(number), "cause": cause, "facts": facts} for number, cause, *_ in rows]
    assert facts_lines({"attempts": attempts, "differs": []}) == shown
    assert {attempt["cause"] for attempt in attempts} == {*EXPECTED_CAUSES, "finished"}


def test_it_is_the_training_of_the_demo_and_of_the_readme(shown: list[str]) -> None:
    facts = facts_of(shown)
    assert facts["command"][1:] == ["train.py", *demo.ARGUMENTS]
    assert f"code {facts['code'][:12]}: 1 file" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_line_of_another_form_would_be_seen(shown: list[str]) -> None:
    """The broken variant: a label that nothing prints."""
    changed = [line.replace("  kernel    ", "  kernel-is ") for line in shown]
    with pytest.raises(KeyError):
        facts_of(changed)
