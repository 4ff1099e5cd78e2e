"""Healthy set-ups pass every gate without a warning, without an unread value, and with nothing left to ask."""

from __future__ import annotations

import math

import pytest

from supervisor.domain.gates.checks import CHECKS, Gate
from supervisor.domain.gates.verdicts import Passage, may_go_on
from supervisor.lifecycle.gates.audit import Card
from supervisor.lifecycle.gates.judging import Facts, judge
from supervisor.lifecycle.gates.rules import Skip
from supervisor.lifecycle.gates.teardown import Approved
from tests.gates.setups import GB, H100, MANIFEST, NO_CODE, NO_GPU, NOW, box, cloud, skips, this_computer

A100 = "NVIDIA A100-SXM4-80GB"
NO_SMOKE = Skip("the spec has no smoke command")

SETUPS: dict[str, Facts] = {
    "a rented box with a bucket in its region": box(),
    "a box of the lab, which nobody bills": box(
        audit={"clocks": ()}, teardown={**skips(Skip("nothing is billed"), "approved", "released_at", "left_bytes")}
    ),
    "a box that cannot reach the store: the supervisor relays": box(
        access={"store_refused": ("read", "write", "precondition"), "relays": True}
    ),
    "a box whose login cannot copy files: the supervisor relays them": box(
        access={"copies_files": False, "relays": True}
    ),
    "a box behind a firewall, with its mirror": box(
        access={"mirror_needed": True, "mirror": "https://mirror.example", "speed_bytes": 30_000_000}
    ),
    "this computer, with one GPU": this_computer(),
    "this computer, without a GPU": this_computer(
        audit=skips(NO_GPU, "gpus", "driver_cuda"), access={"framework_gpus": NO_GPU}, launch={"gpu_used": NO_GPU}
    ),
    "a preemptible VM": cloud(),
    "a VM on demand: no notice is needed where nothing is preempted": cloud(
        audit={"notice_s": Skip("the platform takes no machine back")}
    ),
    "two of eight cards are free, and two are requested": box(
        audit={
            "gpus_expected": ("H100", "H100"),
            "gpus": (*(Card(H100, "python (bob)") for _ in range(6)), Card(H100), Card(H100)),
        },
        access={"framework_gpus": 2, "gpus_requested": 2},
    ),
    "two kinds of cards, one of each requested": box(
        audit={"gpus_expected": ("A100", "H100"), "gpus": (Card(H100), Card(A100))}
    ),
    "a session of a day, with a save every hour": box(
        audit={"limit_s": 86_400.0, "restore_s": 600.0, "checkpoint_every_s": 3600.0}
    ),
    "a session that holds exactly a restore and three saves": box(
        audit={"limit_s": 1860.0, "restore_s": 60.0, "checkpoint_every_s": 600.0}
    ),
    "a disk that holds exactly what is needed": box(audit={"free_bytes": 28 * GB, "hog_bytes": 1 * GB}),
    "inodes just below the limit": box(audit={"inodes_used_pct": 89.9}),
    "a save that fits its notice to the second": box(audit={"checkpoint_s": 20.0, "upload_s": 20.0}),
    "a command without code and without a smoke": box(
        smoke={
            **skips(NO_CODE, "crlf_files", "machine_code"),
            **skips(NO_SMOKE, "first_step", "ran_first", "exit_code"),
        },
        launch={"code_changed": NO_CODE}, results={"made_by": NO_CODE},
    ),
    "a short run that nobody is told about": box(
        monitor={"expect_runtime_s": 1800.0, "layers_missing": ("announcements",)}
    ),
    "a driver and an image of the same CUDA": box(audit={"driver_cuda": "12.4", "image_cuda": "12.4"}),
    "a driver of a newer minor version with two digits": box(audit={"driver_cuda": "12.10", "image_cuda": "12.9"}),
    "a run that was preempted before": cloud(monitor={"last_cause": "preempted"}),
    "a disk that stays and costs nothing": box(teardown={"left_bytes": 5 * GB, "left_usd_per_month": 0.0}),
    "a stop that keeps the box, approved as such": box(
        teardown={"verb": "stop", "approved": Approved("bob", "stop", "gpu1", MANIFEST)}
    ),
    "results that a person gave up with the box": box(
        teardown={"approved": Approved("ada", "destroy", "gpu1", accepts_loss=True)}
    ),
    "a first sign after exactly a minute": box(launch={"first_beat_s": 60.0, "first_line_s": 59.0}),
    "a training whose second start skips a step that was not saved twice": box(
        smoke={"first_step": 2, "second_from": 3}
    ),
    "a box without limits": box(audit={"limit_s": math.inf}),
}  # fmt: skip


def passages(facts: Facts) -> list[Passage]:
    verdicts = judge(facts)
    return [may_go_on(gate, verdicts, (), NOW) for gate in Gate]


@pytest.mark.parametrize("story", SETUPS)
def test_a_healthy_setup_passes_every_gate_without_a_warning(story: str) -> None:
    assert [passage for passage in passages(SETUPS[story]) if passage != Passage(passage.gate)] == []


def test_twenty_setups_are_healthy_at_least() -> None:
    assert len(SETUPS) >= 20


def test_every_check_is_judged_in_the_order_of_the_list() -> None:
    assert [verdict.check for verdict in judge(box())] == list(CHECKS)
    assert [verdict.check for verdict in judge(box(), Gate.SMOKE)] == [
        name for name, check in CHECKS.items() if check.gate == Gate.SMOKE
    ]
