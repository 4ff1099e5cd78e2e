"""The profile of machines on this computer: nothing is billed, and only a machine's own folder ends with it.

Every value is documented by this project's own pages. What depends on the computer (its disks, driver, way to the
internet) is measured on it, and unknown until then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from supervisor.domain.policies import Limits
from supervisor.domain.profile import (
    MEMORY_PATHS,
    NO_LIMIT,
    By,
    End,
    Fact,
    Profile,
    Reach,
    Source,
    Stops,
    Survival,
    Tier,
    Verb,
)
from supervisor.providers.local.traits import TRAITS

DAY = "2026-11-26"
ARCHITECTURE = "docs/architecture.md"
RULES = "docs/rules.md"
TMPFS = "Linux: tmpfs(5)"
YES, NO = Survival.YES, Survival.NO


def profile(machines: Path, most: int | None, on: str) -> Profile:
    """`machines`: the folder of their folders; `most`: machines at once, None = only the limits of the zones. `on`: the
    day when the settings were read."""
    here = "the machines are processes of this computer"
    return Profile(
        kind=TRAITS.kind,
        title=TRAITS.title,
        meter_stop=_fact("", f"{TRAITS.meter}: {here}"),
        irreversible=_fact(False, f"{here}; a release ends nothing that cannot be started again"),
        detach=_fact("a process group of its own", f"{ARCHITECTURE}: the agent outlives the supervisor"),
        preemptible=_fact(False, f"{here}; only `spot dev preempt` takes one away"),
        notice_s=Fact(note="nothing takes this computer away"),
        survives_connection_drop=_fact(True, f"{here}: there is no connection"),
        survives_reboot=_fact(False, f"{RULES}: host_rebooted; the supervisor starts the next attempt"),
        native_requeue=_fact(False, f"{RULES}: the supervisor starts the next attempt"),
        session_cap_s=_fact(NO_LIMIT, here),
        idle_cap_s=Fact(note="the computer may have a timer of its own that suspends it"),
        dead_man_s=_fact(Limits().machine_max_s, f"{RULES}: the agent ends itself after machine_max_s of the run"),
        quota=_quota(most, on),
        region_lock=_fact("", f"{here}, in every zone"),
        shared_fs=_fact("/", f"{here}: they share its file systems"),
        cross_zone_usd_per_gb=_fact(0.0, f"{here}, in every zone"),
        store_reach=_fact(Reach.DIRECT, f"{ARCHITECTURE}: the agent opens the object store itself"),
        tiers=_tiers(machines),
        verbs=(
            Verb(
                "release",
                End.DESTROY,
                By.SUPERVISOR,
                stops_meter=_fact(Stops.YES, TRAITS.meter),
                undo=_fact(False, f"{ARCHITECTURE}: the machine's folder is archived without its work"),
                left_usd_per_gb_month=_fact(0.0, TRAITS.meter),
            ),
        ),
    )


def _fact(value: Any, note: str) -> Fact[Any]:
    return Fact(value, Source.DOCUMENTED, DAY, note)


def _quota(most: int | None, on: str) -> Fact[Any]:
    if most is None:
        return Fact("machines at once in each zone", Source.USER, on, "the setting local_capacity")
    return Fact(f"{most} at once", Source.USER, on, "the setting local_machines, or what the computer allows")


def _tiers(machines: Path) -> tuple[Tier, ...]:
    return (
        Tier(
            "this computer",
            ("/", "~"),
            **_survives("no machine of ours owns them", YES, YES, YES, YES),
            bytes_cap=Fact(note="measure it: df -B1"),
            inodes_cap=Fact(note="measure it: df -i"),
        ),
        Tier(
            "machine's folder",
            (f"{machines}/*",),
            **_survives(f"{ARCHITECTURE}: removed at the release", YES, NO, YES, NO),
            bytes_cap=Fact(note=f"measure it: df -B1 {machines}"),
            inodes_cap=Fact(note=f"measure it: df -i {machines}"),
        ),
        Tier("memory", MEMORY_PATHS, **_survives(TMPFS, YES, YES, NO, YES)),
    )


def _survives(note: str, *answers: Survival) -> Any:
    """`answers`: for the process's end, a requeue elsewhere, a stop (a reboot of the computer) and a release."""
    columns = ("survives_process", "survives_requeue", "survives_stop", "survives_destroy")
    return {column: _fact(answer, note) for column, answer in zip(columns, answers, strict=True)}
