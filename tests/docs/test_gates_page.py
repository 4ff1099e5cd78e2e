"""The page of gates has the list of checks as the code has it, and the codes of gates are on the page of errors."""

from __future__ import annotations

import re
from pathlib import Path

from supervisor.cli.server.docs import gates_markdown
from supervisor.domain.gates.checks import CHECKS, Gate, error_code
from supervisor.domain.gates.verdicts import GateState, State

DOCS = Path(__file__).resolve().parents[2] / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def checks_on_the_page() -> str:
    return page("providers/gates.md").split("says how long a verdict counts.\n\n")[1]


def test_the_checks_on_the_page_are_those_of_the_code() -> None:
    assert checks_on_the_page() == gates_markdown(), "put into docs/providers/gates.md what `spot docs gates` prints"


def test_a_check_that_the_page_misses_would_be_seen() -> None:
    """The broken variant: one row fewer."""
    lines = gates_markdown().splitlines()
    assert "\n".join(line for line in lines if "`inodes`" not in line) + "\n" != gates_markdown()
    assert re.findall(r"^\| `([a-z_]+)` \|", gates_markdown(), flags=re.MULTILINE) == list(CHECKS)


def test_the_page_names_every_state_and_verdict() -> None:
    text = page("providers/gates.md")
    assert [word for word in [*State, *GateState] if f"`{word}`" not in text] == []


def test_the_codes_of_gates_are_on_the_page_of_errors_with_their_gates() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| (G\d)(?: to (G\d))? \|", page("errors.md"), flags=re.MULTILINE)
    shown = {code: (first, last or first) for code, first, last in rows}
    gates: dict[str, list[Gate]] = {}
    for check in CHECKS.values():
        if check.code or check.gate in (Gate.AUDIT, Gate.ACCESS, Gate.SMOKE, Gate.LAUNCH):
            gates.setdefault(error_code(check), []).append(check.gate)
    assert shown == {code: (min(of_code), max(of_code)) for code, of_code in gates.items()}
