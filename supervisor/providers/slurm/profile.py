"""The profile of jobs of a Slurm cluster: the shared file system survives, the node's own disk does not.

What Slurm's manual says is documented; the grace times and limits of the partitions are read from the cluster.
"""

from __future__ import annotations

import os
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
    day_of,
    merge,
)
from supervisor.providers.slurm.cluster import Cluster, Partition
from supervisor.providers.slurm.settings import RELAY, SlurmSettings
from supervisor.providers.slurm.traits import TRAITS

DAY = "2026-11-26"
SBATCH, CONF = "Slurm: sbatch(1)", "Slurm: slurm.conf(5)"
OWN_PAGE = "docs/providers/slurm.md"
NODE_PATHS = ("/tmp", "/var/tmp")  # noqa: S108 - where TMPDIR of a job lies
YES, NO, VERIFY = Survival.YES, Survival.NO, Survival.VERIFY
SCANCEL = "scancel"


def mount_of(folder: str) -> str:
    """The mount point of the file system that has this folder; "" = the root's, or one in memory: not shared as a
    whole."""
    path = Path(folder)
    while not os.path.ismount(path):
        path = path.parent
    mount = str(path)
    return "" if mount in ("/", *NODE_PATHS, *MEMORY_PATHS) else mount


def documented(s: SlurmSettings, on: str, mount: str = "") -> Profile:
    """The same in all partitions. `on`: the day when the settings were read. `mount`: of the shared file system, "" =
    only slurm_folder is known to be shared."""
    return Profile(
        kind=TRAITS.kind,
        title=TRAITS.title,
        meter_stop=_fact(SCANCEL, f"{TRAITS.meter}; a cancelled job uses no more of them"),
        irreversible=_fact(False, f"{OWN_PAGE}: nothing is on the node that the next job needs"),
        detach=_fact("sbatch", f"{SBATCH}: a batch job belongs to no login"),
        notice_s=Fact(note="GraceTime of the partition: scontrol show partition"),
        kill_grace_s=Fact(note="KillWait: scontrol show config"),
        survives_connection_drop=_fact(True, f"{SBATCH}: a batch job belongs to no login"),
        survives_reboot=_fact(False, f"{CONF}: a job on a failed node is put back into the queue"),
        native_requeue=_fact(True, f"{SBATCH}: --requeue; {OWN_PAGE}: the supervisor starts the next attempt itself"),
        session_cap_s=Fact(note="MaxTime of the partition: scontrol show partition"),
        idle_cap_s=_fact(NO_LIMIT, f"{SBATCH}: no limit of a job depends on its activity"),
        dead_man_s=_fact(Limits().machine_max_s, f"{OWN_PAGE}: --time is machine_max_s of the run, or less"),
        quota=_fact("limits of the account and the QOS", "Slurm: resource_limits.html"),
        region_lock=_fact("", f"{OWN_PAGE}: all partitions share one file system"),
        shared_fs=Fact(s.slurm_folder, Source.USER, on, "the setting slurm_folder") if s.slurm_folder else Fact(),
        local_nvme=Fact(note="TmpFS of the cluster: scontrol show config"),
        store_reach=_store_reach(s, on),
        tiers=_tiers(s, mount),
        verbs=(
            Verb(
                SCANCEL,
                End.DESTROY,
                By.SUPERVISOR,
                stops_meter=_fact(Stops.YES, TRAITS.meter),
                undo=_fact(False, f"{OWN_PAGE}: the machine's folder is archived without its work"),
                left_usd_per_gb_month=_fact(0.0, TRAITS.meter),
            ),
        ),
    )


def measured(cluster: Cluster, zone: str) -> Profile:
    """What the cluster says of this partition; "" = of the whole cluster."""
    on = day_of(cluster.read_at)

    def fact(value: Any, name: str) -> Fact[Any]:
        return Fact(value, Source.MEASURED, on, f"{name} of the cluster {cluster.name}")

    partition = cluster.partitions.get(zone)
    facts: dict[str, Any] = {"kill_grace_s": fact(cluster.kill_wait_s, "KillWait")}
    if partition is not None:
        facts["preemptible"] = fact(preempts(cluster, partition), "PreemptMode")
        facts["session_cap_s"] = fact(NO_LIMIT if partition.max_s is None else partition.max_s, "MaxTime")
        facts["notice_s"] = fact(partition.grace_s if cluster.warns else 0.0, "GraceTime, SlurmctldParameters")
    return Profile(TRAITS.kind, "", **facts)


def preempts(cluster: Cluster, partition: Partition) -> bool:
    return not cluster.preempt_type.endswith("/none") and partition.preempt_mode.upper() != "OFF"


def profile(base: Profile, cluster: Cluster | None, zone: str) -> Profile:
    return base if cluster is None else merge(base, measured(cluster, zone))


def _fact(value: Any, note: str) -> Fact[Any]:
    return Fact(value, Source.DOCUMENTED, DAY, note)


def _store_reach(s: SlurmSettings, on: str) -> Fact[Any]:
    if s.slurm_store == RELAY:
        return Fact(Reach.RELAY, Source.USER, on, "the setting slurm_store")
    return _fact(Reach.DIRECT, f"{OWN_PAGE}: the agent opens the object store itself")


def _tiers(s: SlurmSettings, mount: str) -> tuple[Tier, ...]:
    folder = s.slurm_folder or "/SLURM_FOLDER"
    return (
        Tier(
            "shared file system",
            (folder, "~", *([mount] if mount else [])),
            **_survives(f"{OWN_PAGE}: every node sees it", YES, YES, YES, YES),
            bytes_cap=Fact(note=f"measure it: df -B1 {folder}"),
            inodes_cap=Fact(note=f"measure it: df -i {folder}"),
        ),
        Tier(
            "machine's folder",
            (f"{folder}/machines/*",),
            **_survives(f"{OWN_PAGE}: removed at the release", YES, NO, YES, NO),
            bytes_cap=Fact(note=f"measure it: df -B1 {folder}"),
            inodes_cap=Fact(note=f"measure it: df -i {folder}"),
        ),
        Tier(
            "node's own disk",
            ("/", *NODE_PATHS),
            **_survives("Slurm: TmpFS, $TMPDIR: of this node only, and often removed with the job", VERIFY, NO, NO, NO),
            bytes_cap=Fact(note="measure it on the node: df -B1 /tmp"),
            inodes_cap=Fact(note="measure it on the node: df -i /tmp"),
        ),
        Tier("memory", MEMORY_PATHS, **_survives("Linux: tmpfs(5), of this node only", YES, NO, NO, NO)),
    )


def _survives(note: str, *answers: Survival) -> Any:
    """`answers`: for the process's end, a requeue elsewhere, a stop (a reboot of the node) and a release."""
    columns = ("survives_process", "survives_requeue", "survives_stop", "survives_destroy")
    return {column: _fact(answer, note) for column, answer in zip(columns, answers, strict=True)}
