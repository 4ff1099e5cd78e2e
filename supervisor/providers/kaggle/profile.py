"""The profile of sessions of Kaggle notebooks: nothing of a session survives but the output of a version that ended.

What Kaggle's client and its documentation say is documented; what only Kaggle's pages of people say is unknown here,
and the weekly hours are measured with each reading.
"""

from __future__ import annotations

from typing import Any

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
)
from supervisor.providers.kaggle.api import Hours, Weekly
from supervisor.providers.kaggle.settings import CPU, GPU, TPU, KaggleSettings
from supervisor.providers.kaggle.traits import TRAITS

DAY = "2026-11-27"
CLI, SDK = "kaggle-cli: kernels", "kagglesdk 0.1.38: kernels API"
OWN_PAGE = "docs/providers/kaggle.md"
CANCEL = "cancel the session"
CANCELS = f"{SDK}: CancelKernelSession, with the id that the session reports"
BY_HAND = f"{OWN_PAGE}: on Kaggle's page; a session without the internet says no id, and what it did is lost"
YES, NO, VERIFY = Survival.YES, Survival.NO, Survival.VERIFY
OUTPUT = (VERIFY, NO, NO, VERIFY)
NAMES = {GPU: "GPU", TPU: "TPU"}


def profile(s: KaggleSettings, on: str, zone: str = "", quota: Weekly | None = None, read_at: float = 0.0) -> Profile:
    """`on`: the day when the settings were read. `zone` "": of all. `quota`: of the last reading, at `read_at`."""
    return Profile(
        kind=TRAITS.kind,
        title=TRAITS.title,
        meter_stop=_fact(CANCEL, f"{TRAITS.meter}"),
        irreversible=_fact(False, f"{OWN_PAGE}: nothing is in the session that the next one needs"),
        detach=_fact("a private version", f"{CLI}: a push runs the notebook; no browser is open"),
        preemptible=_fact(True, f"{OWN_PAGE}: Kaggle may end any session, and announces nothing"),
        notice_s=_fact(0.0, f"{OWN_PAGE}: no signal announces an end"),
        kill_grace_s=_fact(0.0, f"{OWN_PAGE}: no signal announces an end"),
        survives_connection_drop=_fact(True, f"{CLI}: a push runs the notebook; no browser is open"),
        survives_reboot=_fact(False, f"{OWN_PAGE}: the supervisor pushes the next session"),
        native_requeue=_fact(False, f"{OWN_PAGE}: the supervisor pushes the next session"),
        session_cap_s=Fact(s.kaggle_session_cap_s, Source.USER, on, "the setting kaggle_session_cap_s"),
        idle_cap_s=_fact(
            NO_LIMIT, f"{OWN_PAGE}: a pushed version has no idle limit; an interactive session has one, not known here"
        ),
        dead_man_s=Fact(s.kaggle_session_cap_s, Source.USER, on, "session_timeout_seconds of the push"),
        unpaid=_fact(
            "Kaggle ends the session; where the weekly hours can be read, its agent leaves before that; otherwise what "
            "came after the last checkpoint is lost",
            f"{SDK}: GetAcceleratorQuotaStatistics",
        ),
        quota=_quota(zone, quota, read_at),
        region_lock=_fact("", f"{CLI}: no choice of a region"),
        shared_fs=_fact("", f"{OWN_PAGE}: sessions share no file system"),
        local_nvme=Fact(note="measure it in a session: df -B1 /kaggle/temp"),
        driver_cuda_max=Fact(note="measure it in a session: nvidia-smi"),
        store_reach=_reach(s.kaggle_internet),
        tiers=_tiers(),
        verbs=(
            Verb(
                CANCEL,
                End.DESTROY,
                By.SUPERVISOR if s.kaggle_internet else By.PERSON,
                stops_meter=_fact(Stops.YES, CANCELS if s.kaggle_internet else BY_HAND),
                undo=_fact(False, f"{OWN_PAGE}: the notebook is deleted after it"),
                left_usd_per_gb_month=_fact(0.0, TRAITS.meter),
            ),
        ),
    )


def _reach(internet: bool) -> Fact[Any]:
    if internet:
        return _fact(Reach.DOOR, f"{OWN_PAGE}: through the supervisor, for this run alone")
    return _fact(Reach.OUTPUT, f"{OWN_PAGE}: the output of the version, which the supervisor fetches at its end")


def hours_text(zone: str, hours: Hours | None) -> str:
    """How much of the weekly hours is used."""
    noun = f"the weekly {NAMES.get(zone, zone)} hours of this account"
    if hours is None or hours.allowed_s is None:
        return f"{noun} are not known"
    used, allowed = (hours.used_s + hours.reserved_s) / 3600, hours.allowed_s / 3600
    return f"{noun} are used up ({used:.1f} of {allowed:.1f} h)"


def _quota(zone: str, quota: Weekly | None, read_at: float) -> Fact[Any]:
    if zone == CPU:
        return Fact(note=f"{SDK}: has no weekly hours of sessions without an accelerator")
    parts = []
    every = () if quota is None else ((GPU, quota.gpu), (TPU, quota.tpu))
    for each, hours in every:
        if hours is not None and hours.allowed_s is not None and zone in ("", each):
            parts.append(f"{hours.used_s / 3600:.1f} of {hours.allowed_s / 3600:.1f} weekly {NAMES[each]} hours used")
    if not parts:
        return Fact(note=f"{SDK}: GetAcceleratorQuotaStatistics; spot doctor reads it")
    return Fact(", ".join(parts), Source.MEASURED, day_of(read_at), f"{SDK}: GetAcceleratorQuotaStatistics")


def _fact(value: Any, note: str) -> Fact[Any]:
    return Fact(value, Source.DOCUMENTED, DAY, note)


def _tiers() -> tuple[Tier, ...]:
    return (
        Tier(
            "output of the version",
            ("/kaggle/working",),
            **_survives(f"{CLI}: kernels output; of a version that ended, and no later session sees it", *OUTPUT),
            bytes_cap=Fact(note="measure it: df -B1 /kaggle/working"),
            inodes_cap=Fact(note="measure it: df -i /kaggle/working"),
        ),
        Tier(
            "scratch",
            ("/", "~", "/kaggle/temp", "/tmp"),  # noqa: S108 - of the session
            **_survives(f"{OWN_PAGE}: it goes with the session", YES, NO, NO, NO),
            bytes_cap=Fact(note="measure it: df -B1 /kaggle/temp"),
            inodes_cap=Fact(note="measure it: df -i /kaggle/temp"),
        ),
        Tier("inputs", ("/kaggle/input",), **_survives(f"{CLI}: mounted, read only", YES, YES, YES, YES)),
        Tier("memory", MEMORY_PATHS, **_survives("Linux: tmpfs(5), of this session only", YES, NO, NO, NO)),
    )


def _survives(note: str, *answers: Survival) -> Any:
    """`answers`: for the process's end, a requeue elsewhere, a stop and a release."""
    columns = ("survives_process", "survives_requeue", "survives_stop", "survives_destroy")
    return {column: _fact(answer, note) for column, answer in zip(columns, answers, strict=True)}
