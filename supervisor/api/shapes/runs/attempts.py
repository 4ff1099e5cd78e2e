"""The attempts of a run: where the time went, what was kept and lost, what each cost."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from supervisor.api.shapes.answers import CAUSE, Answer, Placement


class TryShown(Answer):
    number: int
    placement: Placement
    cause: str = Field(description=CAUSE)
    detail: str
    requested_at: datetime
    ended_at: datetime | None


class PhaseSeconds(Answer):
    waiting: float
    boot: float
    restore: float
    training: float
    lost: float


class SpanShown(Answer):
    """A stretch on the clock. `phase`: waiting, provisioning, boot, pull, restore, training or lost; clients must
    accept words that they do not know."""

    phase: str
    since: datetime
    until: datetime


class ExitShown(Answer):
    code: int | None
    signal: int | None
    sent_by_us: bool
    ran_s: float
    last_line: str
    retry_named: bool


class AttemptShown(Answer):
    number: int
    generation: int
    placement: Placement
    machine: str
    machine_id: str
    requested_at: datetime
    started_at: datetime
    ended_at: datetime | None
    gone_at: datetime | None
    cause: str | None = Field(description=CAUSE)
    evidence: str
    code: str | None
    phase_s: PhaseSeconds
    spans: list[SpanShown]
    step_from: int | None
    step_last: int | None
    step_kept: int | None
    steps_lost: int | None
    cost_usd: float | None
    price_usd_per_h: float | None
    exit: ExitShown | None
    tries: list[TryShown]


class Placing(Answer):
    """`spans`: how it has gone since the attempt before; empty where it is not being placed any more."""

    number: int
    tries: list[TryShown]
    spans: list[SpanShown]


class AttemptList(Answer):
    """`next`: the attempt that is being placed, with its failed tries; null while there is none."""

    run_id: str
    attempts: list[AttemptShown]
    next: Placing | None
