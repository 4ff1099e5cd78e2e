"""The profile of pods: a claim survives them, everything else of a pod goes with it, and the node continues to cost.

What the documentation of Kubernetes says is documented; the rest comes from the settings. How long a node gives a pod
when it shuts down itself is the cluster's, and unknown here.
"""

from __future__ import annotations

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
from supervisor.providers.kubernetes.objects import BEFORE_START_S, MACHINES, grace_s
from supervisor.providers.kubernetes.settings import KubernetesSettings
from supervisor.providers.kubernetes.traits import TRAITS

DAY = "2026-11-26"
JOBS, PODS, DISRUPTIONS = "Kubernetes: Jobs", "Kubernetes: Pod Lifecycle", "Kubernetes: Disruptions"
VOLUMES, EPHEMERAL = "Kubernetes: Persistent Volumes", "Kubernetes: Ephemeral Storage"
OWN_PAGE = "docs/providers/kubernetes.md"
YES, NO = Survival.YES, Survival.NO
DELETE, SHRINK = "delete the Job", "shrink the pool"


def profile(s: KubernetesSettings, on: str) -> Profile:
    """The same in all pools. `on`: the day when the settings were read."""
    return Profile(
        kind=TRAITS.kind,
        title=TRAITS.title,
        meter_stop=Fact(note=TRAITS.meter),  # no verb of ours: a release does not shrink the pool
        irreversible=_fact(False, f"{OWN_PAGE}: nothing is in the pod that the next one needs"),
        detach=_fact("a Job", f"{JOBS}: a pod belongs to no connection"),
        preemptible=_fact(True, f"{DISRUPTIONS}: preemption by priority, drains, and nodes that end"),
        notice_s=_fact(0.0, f"{PODS}: TERM is the notice"),
        kill_grace_s=_grace(s, on),
        survives_connection_drop=_fact(True, f"{JOBS}: a pod belongs to no connection"),
        survives_reboot=_fact(False, f"{OWN_PAGE}: restartPolicy Never; the supervisor starts the next attempt"),
        native_requeue=_fact(False, f"{OWN_PAGE}: backoffLimit 0; the supervisor starts the next attempt"),
        session_cap_s=_fact(NO_LIMIT, f"{JOBS}: no limit but activeDeadlineSeconds"),
        idle_cap_s=_fact(NO_LIMIT, f"{JOBS}: no limit depends on activity"),
        dead_man_s=_fact(
            Limits().machine_max_s + BEFORE_START_S,
            f"{OWN_PAGE}: activeDeadlineSeconds is machine_max_s of the run, and half an hour to wait for a node",
        ),
        quota=_fact("resource quotas of the namespace", "Kubernetes: Resource Quotas"),
        region_lock=_fact("", f"{OWN_PAGE}: a claim may be of one zone: kubectl describe pv"),
        shared_fs=_shared(s, on),
        local_nvme=Fact(note="measure it in a pod: df -B1 /"),
        store_reach=_fact(Reach.DIRECT, f"{OWN_PAGE}: the agent opens the object store itself"),
        tiers=_tiers(s),
        verbs=_verbs(),
    )


def _fact(value: Any, note: str) -> Fact[Any]:
    return Fact(value, Source.DOCUMENTED, DAY, note)


def _grace(s: KubernetesSettings, on: str) -> Fact[Any]:
    if s.kubernetes_grace_s is None:
        note = f"{OWN_PAGE}: terminationGracePeriodSeconds; a node that shuts down itself gives less"
        return _fact(float(grace_s(s)), note)
    return Fact(float(grace_s(s)), Source.USER, on, "the setting kubernetes_grace_s")


def _shared(s: KubernetesSettings, on: str) -> Fact[Any]:
    if not s.kubernetes_claim:
        return _fact("", f"{OWN_PAGE}: pods share no file system without kubernetes_claim")
    return Fact(s.kubernetes_claim_mount, Source.USER, on, f"the setting kubernetes_claim = {s.kubernetes_claim}")


def _tiers(s: KubernetesSettings) -> tuple[Tier, ...]:
    """`/` is the writable layer of the container. What is in memory counts for its memory limit."""
    layer = Tier(
        "container layer",
        ("/", "~"),
        **_survives(f"{PODS}: it goes with its container", YES, NO, NO, NO),
        bytes_cap=Fact(note=f"measure it: df -B1 /; kubernetes_disk limits it to {s.kubernetes_disk}"),
        inodes_cap=Fact(note="measure it: df -i /"),
    )
    folder = Tier(
        "machine's folder (emptyDir)",
        (MACHINES,),
        **_survives(f"{EPHEMERAL}: it goes with its pod", YES, NO, NO, NO),
        bytes_cap=Fact(note=f"measure it: df -B1 {MACHINES}; kubernetes_disk limits it to {s.kubernetes_disk}"),
        inodes_cap=Fact(note=f"measure it: df -i {MACHINES}"),
    )
    memory = Tier("memory", MEMORY_PATHS, **_survives("Linux: tmpfs(5), of this pod only", YES, NO, NO, NO))
    if not s.kubernetes_claim:
        return layer, folder, memory
    mount = s.kubernetes_claim_mount
    claim = Tier(
        "volume claim",
        (mount,),
        **_survives(f"{VOLUMES}: it outlives every pod", YES, YES, YES, YES),
        bytes_cap=Fact(note=f"measure it: df -B1 {mount}"),
        inodes_cap=Fact(note=f"measure it: df -i {mount}"),
    )
    return layer, folder, memory, claim


def _survives(note: str, *answers: Survival) -> Any:
    """`answers`: for the process's end, a requeue elsewhere, a stop (a reboot of the node) and a release."""
    columns = ("survives_process", "survives_requeue", "survives_stop", "survives_destroy")
    return {column: _fact(answer, note) for column, answer in zip(columns, answers, strict=True)}


def _verbs() -> tuple[Verb, ...]:
    return (
        Verb(
            DELETE,
            End.DESTROY,
            By.SUPERVISOR,
            command=TRAITS.removal,
            stops_meter=_fact(Stops.NO, TRAITS.meter),
            undo=_fact(False, f"{OWN_PAGE}: the pod's folder goes with it"),
            left_usd_per_gb_month=Fact(note="the price of the claim's storage class"),
        ),
        Verb(
            SHRINK,
            End.DESTROY,
            By.PERSON,
            stops_meter=_fact(Stops.YES, f"{OWN_PAGE}: an autoscaler of the cluster does it, or a person"),
            undo=_fact(False, f"{OWN_PAGE}: a claim stays"),
            left_usd_per_gb_month=Fact(note="the price of the claim's storage class"),
        ),
    )
