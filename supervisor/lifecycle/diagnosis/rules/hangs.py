"""Stalls: nothing moves, and the dump of the threads shows where they stand."""

from __future__ import annotations

from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Where
from supervisor.lifecycle.diagnosis.rule import Rule, Tier
from supervisor.lifecycle.diagnosis.signs import FAILED, SENT_BY_US, is_value

# place -> (what stands still, where it failed, remedies)
_PLACES: dict[str, tuple[str, Where, tuple[str, ...]]] = {
    "input": ("its main thread waits for the data loader", Where.DATA, ("see_dump", "fewer_workers")),
    "collective": ("its processes wait for each other", Where.CODE, ("see_dump", "nccl_timeout")),
    "gpu_kernel": ("it waits for a kernel of the GPU", Where.CARD, ("see_dump", "check_card")),
    "lock": ("its threads wait for a lock", Where.CODE, ("see_dump",)),
    "network": ("it waits for the network", Where.PLACE, ("see_dump", "set_timeouts")),
    "disk": ("it waits for a disk, and no signal reaches it", Where.MACHINE, ("see_dump", "other_machine")),
    "stopped": ("it is stopped by a signal", Where.MACHINE, ("see_dump", "ask_killer")),
    "unknown": ("the dump does not show where", Where.UNKNOWN, ("see_dump", "longer_stall")),
}

RULES = tuple(
    Rule(
        f"HANG.{place}", (), Tier.AGENT, (is_value("hang.place", place),), (FAILED, SENT_BY_US), Certainty.CERTAIN,
        Cause.STALLED, where, Retry.ONCE_IDENTICAL,
        "{own:nothing moves}[ for {still}]" + f"; {text}", remedies,
    )
    for place, (text, where, remedies) in _PLACES.items()
)  # fmt: skip
