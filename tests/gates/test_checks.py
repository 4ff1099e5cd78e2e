"""The list of checks is complete: every line of the lifecycle checklist and every rule of the platform plan."""

from __future__ import annotations

import re
from collections import Counter
from string import Formatter

from supervisor.cli.main import COMMANDS
from supervisor.domain.gates.checks import CHECKS, Gate, checks_of
from tests.gates.checklist import CHECKLIST

PLAN_CODES = {
    "G0": {
        "CHECKPOINT_NOT_DURABLE", "REGION_MISMATCH", "DISK_TOO_SMALL", "INODES_LOW", "GPU_NOT_FREE", "DRIVER_TOO_OLD",
        "LIMIT_TOO_SHORT", "KNOWN_TO_FAIL", "PLACE_QUARANTINED",
    },
    "G1": {"HOST_KEY_UNKNOWN", "STORE_UNREACHABLE", "SECRET_UNREADABLE"},
    "G2": {"SMOKE_FAILED", "DOES_NOT_RESUME"},
    "G3": {"LAUNCH_NOT_ALIVE", "DIES_WITH_CONNECTION"},
    "G4": set(),
    "G5": {"RESULTS_UNVERIFIED"},
    "G6": {"NOT_APPROVED", "METER_UNCONFIRMED"},
}  # fmt: skip
# Rules of the plan's gates that the checklist has no line for, and those of incidents.
OF_THE_PLAN = {
    "driver", "time_limit", "notice", "host_key", "store_access", "bundle_hash", "process_ours", "gpu_used",
    "verb_done", "meter_stopped", "storage_left", "known_to_fail", "place_quarantined",
}  # fmt: skip


def test_every_line_of_the_checklist_has_its_checks() -> None:
    assert len(CHECKLIST) == 40, "33 boxes and 7 verify lines"
    checks_of_box = {
        box: {name for name, check in CHECKS.items() if box in check.boxes}
        for box in {*CHECKLIST, *(box for check in CHECKS.values() for box in check.boxes)}
    }
    assert checks_of_box == {box: set(names) for box, (_, names) in CHECKLIST.items()}


def test_every_line_has_a_check_of_its_own() -> None:
    alone = Counter(check.boxes[0] for check in CHECKS.values() if len(check.boxes) == 1)
    assert set(alone) == set(CHECKLIST)


def test_every_rule_of_the_plan_is_there() -> None:
    assert {name for name, check in CHECKS.items() if not check.boxes} == OF_THE_PLAN
    assert {gate: {check.code for check in checks_of(gate)} - {""} for gate in Gate} == PLAN_CODES


def test_ids_are_stable_words_and_sentences_are_sentences() -> None:
    for name, check in CHECKS.items():
        assert name == check.id
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
        assert not check.says.endswith(".")
        assert check.fix.endswith(".")
        assert check.fix[0].isupper()
        assert check.young_s > 0


def test_commands_in_fixes_exist() -> None:
    commands = {word for check in CHECKS.values() for word in re.findall(r"spot ([a-z-]+)", check.fix)}
    assert commands <= set(COMMANDS)
    fields = {field for check in CHECKS.values() for _, field, _, _ in Formatter().parse(check.fix) if field}
    assert "" not in fields
