"""Worlds with a platform that lends its machines for some hours a week, and one that takes money."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.attempt import Attempt, Chain, Pulse
from supervisor.domain.machines import Offer, Placement, Quota
from supervisor.domain.observation import BEATS, World, sources_of
from supervisor.domain.policies import Knobs, Limits, Policy
from supervisor.domain.profile import Fact, Profile, Source
from supervisor.domain.run import Files, Run
from supervisor.domain.status import Status
from tests.lifecycle.sample_runs import MIN, NOW, H, run_in

FREE, PAID = "kaggle", "gce"
CAP_S = 9 * H
SATURDAY = NOW + 12 * H  # 00:00 UTC; NOW is a Friday noon
DAY = 24 * H
TOTAL = 100_000_000
POLICY = Policy(providers=(FREE, PAID), limits=Limits(wait_for_capacity_s=DAY))


def place(provider: str = FREE) -> Placement:
    return Placement(provider, "", f"{provider}-a", "t4", True)


def quota(left_h: float | None = 30.0, **fields: object) -> Quota:
    return replace(Quota("GPU hours", NOW, left_h, SATURDAY, 30.0), **fields)  # type: ignore[arg-type]


def profile(cap_s: float = CAP_S) -> Profile:
    return Profile("k", "K", session_cap_s=Fact(cap_s, Source.DOCUMENTED, "2026-01-01", "tests"))


def world(hours: Quota | None = None, **fields: object) -> World:
    base = World(
        Knobs("s"),
        offers={FREE: (Offer(place(), 0.0, 0.0),), PAID: (Offer(place(PAID), 0.5, 0.5),)},
        fresh=frozenset({BEATS}),
        sources=sources_of([FREE, PAID]),
        quotas={} if hours is None else {(FREE, "t4"): hours},
        profiles={(FREE, "kaggle-a"): profile(), (PAID, "gce-a"): Profile("g", "G")},
    )
    return replace(base, **fields)  # type: ignore[arg-type]


def chained(left_h: float, start_s: float = 10 * MIN, status: Status = Status.RECOVERING, **fields: object) -> Run:
    """A run between two sessions, with so much training left at 1 step/s; its last save took no time."""
    total = TOTAL
    files = Files(checkpoint_step=total - int(left_h * H))
    chain = Chain(total, {FREE: 1.0}, {FREE: start_s})
    base = run_in(status, provider=FREE, policy=POLICY, files=files, chain=chain)
    return replace(base, **fields)  # type: ignore[arg-type]


def with_deadline(run: Run, deadline: float) -> Run:
    return replace(run, policy=replace(run.policy, limits=replace(run.policy.limits, deadline=deadline)))


def session(since_h: float, **fields: object) -> tuple[Attempt, Pulse]:
    """A session on the free platform that trains at 1 step/s, with its pulse. It restored in ten minutes."""
    began = NOW - since_h * H
    first = Attempt(
        number=3, generation=1, launch_id="1.3.1", machine_name="m3", machine_id="m3", placement=place(),
        requested_at=began, started_at=began, price_usd_per_h=0.0, running_at=began, training_at=began + 10 * MIN,
        step_from=0,
    )  # fmt: skip
    made = int(since_h * H - 10 * MIN)
    pulse = Pulse("1.3.1", 9, "training", NOW - H, NOW, step=made, total=TOTAL, progress_at=NOW, steps_per_s=1.3)
    return replace(first, **fields), pulse  # type: ignore[arg-type]
