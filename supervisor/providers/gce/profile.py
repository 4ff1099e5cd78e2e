"""The profile of machines on Google Compute Engine: what survives which end, and what stops the bill.

Every value is documented, by Google or by this project's own pages, or comes from the settings; what is measured on a
machine joins it later. Nobody has measured the rest: it stays unknown.
"""

from __future__ import annotations

from typing import Any

from supervisor.domain.policies import Limits
from supervisor.domain.profile import (
    MEMORY_PATHS,
    NO_LIMIT,
    UNKNOWN,
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
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.traits import TRAITS

SCRATCH = "/mnt/disks/scratch"  # of machines/startup_machine.sh
SPOT_PAGE = "Google: Create and use Spot VMs"
STATES_PAGE = "Google: Compute Engine instance life cycle"
STATES_DAY = "2026-04-14"
DISCOVERY = "Google: discovery document compute.v1, revision 20261106"
DISCOVERY_DAY = "2026-11-06"
STOP_PAGE = "Google: gcloud compute instances stop: its option keeps or discards local SSDs"
OWN_PAGE = "docs/google-cloud.md"
WITH_MACHINE = f"{OWN_PAGE}: it is deleted with its machine"
OUTLIVES = f"{OWN_PAGE}: it outlives every machine"
YES, NO = Survival.YES, Survival.NO


def profile(config: GceConfig, on: str) -> Profile:
    """The same in all zones. `on`: the day when the settings were read."""
    return Profile(
        kind=TRAITS.kind,
        title=TRAITS.title,
        meter_stop=_fact("delete", f"{STATES_PAGE}: disks and addresses are billed until they are deleted", STATES_DAY),
        irreversible=_fact(True, f"{OWN_PAGE}: the boot disk is deleted with its machine"),
        detach=_fact("a service of the machine's own systemd", f"{OWN_PAGE}, From request to release"),
        preemptible=_fact(True, f"{SPOT_PAGE}; a machine at the on-demand price is not preempted"),
        notice_s=_notice(config, on),
        kill_grace_s=_fact(30.0, f"{SPOT_PAGE}: up to 30 s, best effort"),
        survives_connection_drop=_fact(True, f"{OWN_PAGE}: no connection to the machine is kept"),
        survives_reboot=UNKNOWN,
        native_requeue=_fact(False, f"{OWN_PAGE}: a preempted machine is deleted; the supervisor starts the next one"),
        session_cap_s=_fact(NO_LIMIT, "Google: Create and use preemptible VMs: Spot VMs have no maximum run time"),
        idle_cap_s=UNKNOWN,
        dead_man_s=_fact(
            Limits().machine_max_s, f"{DISCOVERY}: maxRunDuration, which is machine_max_s of the run", DISCOVERY_DAY
        ),
        stopped_kept_s=_fact(NO_LIMIT, f"{STATES_PAGE}: a stopped machine keeps its disks", STATES_DAY),
        quota=_fact(
            "CPUs, GPUs and disks for each region, Spot GPUs apart; GPUS_ALL_REGIONS for the project",
            f"{OWN_PAGE}, Zone fallback",
        ),
        region_lock=_region_lock(config, on),
        shared_fs=_shared_fs(config, on),
        local_nvme=Fact(note=f"{OWN_PAGE}: {SCRATCH}, where the machine type includes local SSDs (A3, A2 Ultra, G4)"),
        driver_cuda_max=Fact(note="the boot writes the version of the driver to the console"),
        store_reach=_fact(Reach.DIRECT, f"{OWN_PAGE}: Cloud Storage, with the account of the machine"),
        tiers=_tiers(config),
        verbs=_verbs(config),
    )


def _fact(value: Any, note: str, on: str = "2026-11-26") -> Fact[Any]:
    return Fact(value, Source.DOCUMENTED, on, note)


def _setting(value: Any, name: str, on: str) -> Fact[Any]:
    return Fact(value, Source.USER, on, f"the setting {name}")


def _notice(config: GceConfig, on: str) -> Fact[Any]:
    if config.notice_s:
        return _setting(float(config.notice_s), "gce_notice_s", on)
    return _fact(0.0, f"{DISCOVERY}: the default; gce_notice_s = 120 asks for two minutes", DISCOVERY_DAY)


def _region_lock(config: GceConfig, on: str) -> Fact[Any]:
    if config.data_disk is None:
        return _fact("", f"{OWN_PAGE}: no disk outlives its machine, so any zone can have the next one")
    return _setting(f"the disk {config.data_disk.name}, in {config.data_disk.zone}", "gce_data_disk_zone", on)


def _shared_fs(config: GceConfig, on: str) -> Fact[Any]:
    disk = config.data_disk
    if disk is None or not disk.read_only:
        return _fact("", f"{OWN_PAGE}: machines share the bucket and no file system")
    return _setting(disk.mount, "gce_data_disk_read_only", on)


def _tiers(config: GceConfig) -> tuple[Tier, ...]:
    """`/` and the home are on the boot disk, in the container too."""
    cap: Fact[Any] = Fact(note=f"measure it: df -B1 /; gce_boot_disk_gb asks for {config.boot_disk_gb} GB")
    boot = Tier(
        "boot disk",
        ("/", "~"),
        **_survives(WITH_MACHINE, YES, NO, YES, NO),
        bytes_cap=cap,
        inodes_cap=Fact(note="measure it: df -i /"),
    )
    memory = Tier("memory", MEMORY_PATHS, **_survives("Linux: tmpfs(5)", YES, NO, NO, NO))
    scratch = Tier(
        "scratch",
        (SCRATCH,),
        **_survives(STOP_PAGE, YES, NO, Survival.VERIFY, NO),
        bytes_cap=Fact(note=f"measure it: df -B1 {SCRATCH}"),
        inodes_cap=Fact(note=f"measure it: df -i {SCRATCH}"),
    )
    return (boot, memory, scratch, *_data_disk(config), *_bucket(config))


def _data_disk(config: GceConfig) -> tuple[Tier, ...]:
    if config.data_disk is not None:
        mount, survives = config.data_disk.mount, _survives(OUTLIVES, YES, YES, YES, YES)
    elif config.new_disk is not None:
        mount, survives = config.new_disk.mount, _survives(WITH_MACHINE, YES, NO, YES, NO)
    else:
        return ()
    return (Tier("data disk", (mount,), **survives),)


def _bucket(config: GceConfig) -> tuple[Tier, ...]:
    survives = _survives(OUTLIVES, YES, YES, YES, YES)
    return (Tier("bucket", (config.store_url,), **survives),) if config.store_url else ()


def _survives(note: str, *answers: Survival) -> Any:
    """`answers`: for the process's end, a requeue elsewhere, a stop and the end of the machine."""
    columns = ("survives_process", "survives_requeue", "survives_stop", "survives_destroy")
    return {column: _fact(answer, note) for column, answer in zip(columns, answers, strict=True)}


def _verbs(config: GceConfig) -> tuple[Verb, ...]:
    left = UNKNOWN if config.data_disk is not None else _fact(0.0, f"{OWN_PAGE}: nothing of the machine is left")
    return (
        Verb(
            "delete",
            End.DESTROY,
            By.SUPERVISOR,
            command=TRAITS.removal,
            stops_meter=_fact(Stops.YES, STATES_PAGE, STATES_DAY),
            undo=_fact(False, OWN_PAGE),
            left_usd_per_gb_month=left,
        ),
        Verb(
            "stop",
            End.STOP,
            By.PERSON,
            command="gcloud compute instances stop {name} --zone={zone} --project={account}",
            stops_meter=_fact(
                Stops.PARTLY, f"{STATES_PAGE}: processors are not billed; disks and addresses are", STATES_DAY
            ),
            undo=_fact(True, f"{STATES_PAGE}; the supervisor deletes a stopped machine of its own", STATES_DAY),
            left_usd_per_gb_month=Fact(note=f"the price of {config.boot_disk_type} in Google's list of prices"),
        ),
    )
