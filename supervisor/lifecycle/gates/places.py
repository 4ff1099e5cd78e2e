"""What is known of a place before a machine is started there, as facts of G0 and G1; and what of it stops a launch.

Everything comes from the run's row and from the profile of the zone, with the last reading of its host where there is
one. Less is never worse: what was not read stops nothing. Where the platform makes a new machine, or the machine is
this computer, few facts are known before the launch; their providers enforce the rest by rules of their own.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from supervisor.contract.cards import Card as HostCard
from supervisor.domain.gates.checks import Gate
from supervisor.domain.gates.verdicts import Verdict, may_go_on
from supervisor.domain.incidents import Blocked
from supervisor.domain.machines import HostFacts, Placement
from supervisor.domain.observation import World
from supervisor.domain.profile import End, Profile, Reach, Survival, survival, tier_of
from supervisor.domain.run import Run
from supervisor.lifecycle.gates.access import Access
from supervisor.lifecycle.gates.audit import Audit, Card
from supervisor.lifecycle.gates.judging import Facts, judge
from supervisor.lifecycle.gates.rules import Known, Skip, Unread
from supervisor.lifecycle.incidents import failing_incident, host_incident
from supervisor.wording.incidents import value_text

BEFORE_LAUNCH = (Gate.AUDIT, Gate.ACCESS)
# A fail of these may pass without a person: a process ends, a disk is cleared, a host comes back.
PASSING = frozenset({"disk_bytes", "durable_room", "gpus", "inodes", "reachable"})
OF_INCIDENTS = frozenset({"known_to_fail", "place_quarantined"})
CHECKPOINTS_ON_MACHINE = 1  # the others lie in the object store
MACHINE_MIN_BYTES = 200 * 10**6  # the agent, the code and the log of a machine
GB = 10**9

NO_STORE_LIMIT = Skip("the object store has no limit of its own")
NO_GPU = Skip("the machine has no GPU for the run")
NO_MEMORY = Unread("the spec does not say how much memory it needs", "Add needs.memory_gb to the spec.")
NO_CUDA = Unread("the spec does not say which CUDA it needs", "Add needs.cuda to the spec.")
NO_PACE = Unread("the spec does not say how often it saves", "Add expect_checkpoint_every_s to the spec.")
BY_LOGIN = Skip("the agent comes through the login itself, and files through the object store")


def store_of(store_url: str, run: Run) -> str:
    """The address of the run's files: of a folder its path."""
    return f"{_root(store_url)}/runs/{run.run_id}"


def _root(store_url: str) -> str:
    return store_url.rstrip("/").removeprefix("file://")


def stopping(run: Run, place: Placement, profile: Profile, world: World, now: float) -> tuple[Verdict, ...]:
    """The verdicts that stop a launch there: fails that no waiver covers. Those that only a person can fix first. They
    name no run: many runs may ask the same of a place."""
    host, store = profile.host, f"{_root(world.store_url)}/runs"
    facts = Facts(
        run="RUN",
        provider=place.provider,
        at=now if host is None else host.at,
        by="supervisor" if host is None else host.host,
        audit=with_incidents(audit_of(run, place.shape, profile, store), run, place, profile, blocked=world.blocked),
        access=access_of(profile, store),
    )
    # A reading of a host has its own age; what incidents stop is known now.
    verdicts = [
        replace(verdict, at=now, by="supervisor") if verdict.check in OF_INCIDENTS else verdict
        for verdict in judge(facts, *BEFORE_LAUNCH)
    ]
    stops = [each for gate in BEFORE_LAUNCH for each in may_go_on(gate, verdicts, run.waivers, now).stopped_by]
    return tuple(sorted(stops, key=lambda verdict: verdict.check in PASSING))


def audit_of(run: Run, shape: str, profile: Profile, store: str) -> Audit:
    """`store`: the address of its files."""
    host, policy = profile.host, run.policy
    needs, every_s, scratch_bytes = (
        policy.needs,
        policy.expect_checkpoint_every_s,
        _bytes(policy.needs.disk_gb) or MACHINE_MIN_BYTES,
    )
    free_bytes = None if host is None else host.free_bytes
    checkpoint_bytes = run.files.checkpoint_bytes or _bytes(policy.expect_checkpoint_gb)
    if checkpoint_bytes is None and free_bytes is not None and free_bytes < scratch_bytes:
        checkpoint_bytes = 0  # too small for any
    return Audit(
        durable_path=NO_STORE_LIMIT if "://" in store else store,
        checkpoints_path=store,
        results_path=store,
        survives=_survives(profile, store),
        ending="the machine's end" if profile.meter_verb is None else profile.meter_verb.verb,
        measured=_measured(host),
        documented=(),
        memory_limit_bytes=None if host is None else host.memory_bytes,
        memory_needed_bytes=NO_MEMORY if needs.memory_gb is None else _bytes(needs.memory_gb),
        data_path="the disk of the machine" if host is None else f"the disk of {host.host}",
        free_bytes=free_bytes,
        checkpoint_bytes=checkpoint_bytes,
        kept=CHECKPOINTS_ON_MACHINE,
        scratch_bytes=scratch_bytes,
        inodes_used_pct=None if host is None else host.inodes_used_pct,
        gpus_expected=_expected_gpus(host, shape, needs.gpu),
        gpus=None if host is None or host.cards is None else tuple(map(_card, host.cards)),
        driver_cuda=profile.driver_cuda_max.value,
        image_cuda=needs.cuda or NO_CUDA,
        limit_s=min(policy.limits.machine_max_s, profile.session_cap_s.value or inf),
        restore_s=restore_s(run),
        checkpoint_every_s=NO_PACE if every_s is None else every_s,
        notice_s=profile.saving_s,
    )


def with_incidents(
    audit: Audit, run: Run, place: Placement | None, profile: Profile, *, blocked: Blocked | None
) -> Audit:
    """With what incidents say of the run's code and image, and of a host. A host whose cards are assigned one by one
    sets a faulty card aside by itself, and goes on with the others. `place` None: it is not known yet."""
    if blocked is None:
        return audit
    assigned = profile.host is not None and profile.host.cards is not None
    incident = None if assigned or place is None else host_incident(place, blocked)
    zone = "" if place is None else place.zone
    quarantine = "" if incident is None else f"GPUs of two runs on {zone} failed, which is incident {incident}"
    return replace(audit, known_failure=failure_text(run, blocked), quarantine=quarantine)


def failure_text(run: Run, blocked: Blocked) -> str:
    """What it would start with and is known to fail; "" = nothing. Without a word of other owners' runs."""
    failing = failing_incident(run, blocked)
    if failing is None:
        return ""
    what, incident = failing
    return f"the {what.kind} {value_text(what)} failed at once in several of your runs, which is incident {incident}"


def access_of(profile: Profile, store: str) -> Access:
    """Of a place without a host only what the profile says of the object store."""
    host, mirror, ports_change = profile.host, profile.mirror.value, profile.ports_change_on_restart.value
    common: dict[str, Any] = {
        "durable_path": store,
        "durable_listed": "://" in store or profile.is_apart or tier_of(profile, store) is not None,
        "relays": profile.store_reach.value is Reach.RELAY,
        "port_fixed": None if ports_change is None else not ports_change,
        "mirror_needed": None if mirror is None else mirror != "",
        "mirror": mirror,
    }
    if host is None:
        return Access(**common)
    every_s, tries = host.keepalive or (None, None)
    return Access(
        host=host.host,
        host_key=host.host_key,
        login_accepted=host.login_accepted,
        login_s=0.0 if host.login_accepted is False else host.login_s,
        keepalive_every_s=every_s,
        keepalive_tries=tries,
        responds=True if host.took_s is not None else None,
        copies_files=BY_LOGIN,
        store_refused=host.store_refused,
        **common,
    )


def _survives(profile: Profile, store: str) -> tuple[str, str] | None:
    """Checkpoints and results, after the end of the machine. A folder that was not seen on the host is not judged."""
    host, relays = profile.host, profile.is_apart
    is_folder = "://" not in store
    if host is not None and is_folder and not relays and (host.store_refused is None or "read" in host.store_refused):
        return None
    answer = survival(profile, store, End.DESTROY).value
    if relays or (answer is None and (host is None or not is_folder)):
        answer = Survival.YES  # apart from every machine
    return None if answer is None else (answer, answer)


def _measured(host: HostFacts | None) -> tuple[str, ...] | None:
    if host is None or host.free_bytes is None:
        return None
    return ("disk", "memory", *(("GPUs",) if host.cards is not None else ()))


def _expected_gpus(host: HostFacts | None, shape: str, name: str) -> Known[tuple[str, ...]]:
    """ "" is a part of every name: any GPU serves."""
    if host is None:
        return None
    count = host.cards_of.get(shape, 0)
    return (name,) * count if count else NO_GPU


def _card(card: HostCard) -> Card:
    """One that a machine of ours has counts as free: the queue decides about it."""
    busy = not card.free and not (card.ours and card.aside is None)
    return Card(f"{card.label} ({card.name})" if card.name else card.label, card.state if busy else "")


def restore_s(run: Run) -> float | None:
    """How long the last restore took; a run without a checkpoint restores nothing."""
    attempt = run.attempt
    if run.files.checkpoint_step is None:
        return 0.0
    if attempt is None or attempt.running_at is None or attempt.training_at is None:
        return None
    return max(0.0, attempt.training_at - attempt.running_at)


def _bytes(gigabytes: float | None) -> int | None:
    return None if gigabytes is None else int(gigabytes * GB)
