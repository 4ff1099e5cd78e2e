"""How many cases of each family are right today: `floors.json`. The numbers may only rise."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.diagnosis.measuring import Judged

# Dangerous mistakes that are left today. A number may only fall.
LIMITS = {
    "certain_and_wrong": 0,
    "healthy_run_killed": 0,
    "user_bug_retried_for_money": 0,
    "free_failure_charged": 0,
    "batch_advice_without_memory": 0,
    "deleted_outside_scratch": 0,
    "hints_that_acted": 0,
    "quotes_not_verbatim": 0,
}
# The same by the beat alone, which decides what follows an end, and by a log and loose facts.
DOOR_LIMITS = {
    "beat": {
        "certain_and_wrong": 0,
        "healthy_run_killed": 0,
        "user_bug_retried_for_money": 5,
        "free_failure_charged": 0,
        "batch_advice_without_memory": 0,
        "deleted_outside_scratch": 0,
    },
    "files": {
        "certain_and_wrong": 0,
        "healthy_run_killed": 0,
        "user_bug_retried_for_money": 0,
        "free_failure_charged": 0,
        "batch_advice_without_memory": 0,
        "deleted_outside_scratch": 0,
    },
}
# What would really follow, by the table of causes.
ACT_LIMITS = {
    "healthy_run_killed": 0,
    "user_bug_retried_for_money": 0,
    "free_failure_charged": 0,
    "passing_failure_ended": 0,
    "without_facts": 14,
    "may_pass": 58,
}
FLOORS = Path(__file__).with_name("floors.json")


def floors_of(judged: Iterable[Judged]) -> dict[str, int]:
    return dict(sorted(Counter(each.case.family for each in judged if each.right).items()))


def read_floors() -> dict[str, int]:
    floors: dict[str, int] = json.loads(FLOORS.read_text())
    return floors


def write_floors(floors: dict[str, int]) -> None:
    """A number that would fall stays: raise it again, or lower it by hand and say why."""
    old = read_floors() if FLOORS.exists() else {}
    kept = {family: max(count, old.get(family, 0)) for family, count in floors.items()}
    FLOORS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
