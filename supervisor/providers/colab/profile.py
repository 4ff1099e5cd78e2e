"""The profile of sessions of Colab: nothing on their disks survives, and nobody can keep one alive.

Colab publishes few limits. What it does not publish is unknown here. What its official client says is documented.
"""

from __future__ import annotations

from typing import Any

from supervisor.domain.profile import By, End, Fact, Profile, Reach, Source, Stops, Survival, Tier, Verb
from supervisor.providers.colab.client import PACKAGE
from supervisor.providers.colab.settings import CLIENT, FREE_CAP_S, ColabSettings
from supervisor.providers.colab.traits import TRAITS

DAY = "2026-11-27"
FAQ = "the FAQ of Colab"
KEEP_ALIVE = f"{PACKAGE} docs/01_session_management.md"
REFUSED = f"{PACKAGE} issue 14"
OWN_PAGE = "docs/providers/colab.md"
IDLE_S = 5400.0
DRIVE = "/content/drive"
STOP, LEAVE = "colab stop", "runtime.unassign()"
YES, NO, VERIFY = Survival.YES, Survival.NO, Survival.VERIFY


def profile(s: ColabSettings, on: str) -> Profile:
    """The same in all ways. `on`: the day when the settings were read."""
    verb = STOP if s.has_client else LEAVE
    return Profile(
        kind=TRAITS.kind,
        title=TRAITS.title,
        meter_stop=_fact(verb, f"{TRAITS.meter}"),
        irreversible=_fact(False, f"{OWN_PAGE}: nothing is in the session that the next one needs"),
        detach=_fact("a process of its own", f"{OWN_PAGE}: the agent outlives the interrupt of its cell"),
        preemptible=_fact(True, f"{FAQ}: a session may end at any time, and its resources are not guaranteed"),
        notice_s=_fact(0.0, f"{FAQ}: nothing announces an end"),
        kill_grace_s=_fact(0.0, f"{OWN_PAGE}: no signal comes before it either"),
        survives_connection_drop=Fact(note=f"{FAQ}: a closed tab may end the session; {_kept_alive(s)}"),
        survives_reboot=_fact(False, f"{OWN_PAGE}: a new session is a new machine"),
        native_requeue=_fact(False, f"{OWN_PAGE}: the supervisor asks for the next session"),
        session_cap_s=_cap(s, on),
        idle_cap_s=_fact(IDLE_S, f"{KEEP_ALIVE}: about 90 minutes; {_kept_alive(s)}"),
        dead_man_s=_cap(s, on),
        quota=Fact(note=f"{FAQ}: the limits vary and are not published"),
        region_lock=_fact("", f"{OWN_PAGE}: Colab chooses the region"),
        shared_fs=_fact("", f"{OWN_PAGE}: Drive is no file system of a training, see its tier"),
        local_nvme=Fact(note="measure it in the session: df -B1 /content"),
        store_reach=_fact(Reach.DOOR, f"{OWN_PAGE}: over HTTPS through the supervisor, which must be reachable"),
        tiers=_tiers(),
        verbs=_verbs(s),
    )


def _fact(value: Any, note: str) -> Fact[Any]:
    return Fact(value, Source.DOCUMENTED, DAY, note)


def _kept_alive(s: ColabSettings) -> str:
    if not s.has_client:
        return "a cell that runs counts as activity"
    return f"the client keeps it alive as well as it can, for 24 h at most, and some accounts are refused ({REFUSED})"


def _cap(s: ColabSettings, on: str) -> Fact[float]:
    if s.colab_session_cap_s == FREE_CAP_S:
        return _fact(FREE_CAP_S, f"{FAQ}: at most 12 hours on the free plan, often less")
    return Fact(s.colab_session_cap_s, Source.USER, on, "the setting colab_session_cap_s")


def _tiers() -> tuple[Tier, ...]:
    """Of the folders that only a session has. The files of a run go through the supervisor: a store in /tmp is in the
    /tmp of its computer."""
    return (
        Tier(
            "session's disk",
            ("/content",),
            **_survives(f"{FAQ}: it is deleted with the session", YES, NO, NO, NO),
            bytes_cap=Fact(note="measure it in the session: df -B1 /content"),
            inodes_cap=Fact(note="measure it in the session: df -i /content"),
        ),
        Tier(
            "mounted Drive",
            (DRIVE,),
            **_survives(
                f"{OWN_PAGE}: a write may reach Drive half an hour later, or never", YES, VERIFY, VERIFY, VERIFY
            ),
            bytes_cap=Fact(note="the quota of the Drive: look at its page of storage"),
            inodes_cap=Fact(note="Drive counts no inodes"),
        ),
    )


def _survives(note: str, *answers: Survival) -> Any:
    """`answers`: for the process's end, a requeue elsewhere, a stop and a release."""
    columns = ("survives_process", "survives_requeue", "survives_stop", "survives_destroy")
    return {column: _fact(answer, note) for column, answer in zip(columns, answers, strict=True)}


def _verbs(s: ColabSettings) -> tuple[Verb, ...]:
    by_agent = Verb(
        LEAVE,
        End.DESTROY,
        By.SUPERVISOR,
        stops_meter=_fact(Stops.YES, f"{OWN_PAGE}: the cell gives the runtime back when its work is over"),
        undo=_fact(False, f"{FAQ}: its disk is deleted"),
        left_usd_per_gb_month=_fact(0.0, f"{FAQ}: nothing is left"),
    )
    if CLIENT not in s.colab_ways:
        return (by_agent,)
    by_client = Verb(
        STOP,
        End.DESTROY,
        By.SUPERVISOR,
        command=TRAITS.removal,
        stops_meter=_fact(Stops.YES, f"{KEEP_ALIVE}: stop ends the session and its keep-alive"),
        undo=_fact(False, f"{FAQ}: its disk is deleted"),
        left_usd_per_gb_month=_fact(0.0, f"{FAQ}: nothing is left"),
    )
    return by_client, by_agent
