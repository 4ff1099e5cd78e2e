"""The shapes of the answers, for the OpenAPI document and for tests.

Answers are made by hand in services/*_view and are never validated on the way out; a test validates them against
these. Clients must accept fields and words that they do not know.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

GPU = "What a machine of this shape has for the training: L4, 8 × A100 80GB. null: nothing, or not known."
CAUSE = "One word of the cause table; clients must accept words that they do not know."


def _open(schema: dict[str, Any]) -> None:
    schema.pop("additionalProperties", None)  # tests hold us to what is told; clients must bear more


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, json_schema_extra=_open)


class Placement(Answer):
    provider: str
    region: str
    zone: str
    shape: str
    gpu: str | None = Field(description=GPU)
    spot: bool


class BeatShown(Answer):
    age_s: float
    phase: str


class StallShown(Answer):
    polls: int
    limit: int


class Progress(Answer):
    step: int | None
    total: int | None
    steps_per_s: float | None
    eta_s: float | None
    metrics: dict[str, float]


class Cost(Answer):
    """`known` false: an attempt had no known price and is left out, so the sums are lower bounds."""

    usd: float
    on_demand_usd: float
    budget_usd: float | None
    known: bool


class Counters(Answer):
    attempts: int
    tries: int
    counted: int
    user_failures: int
    preemptions: int
    no_progress: int


class NextAction(Answer):
    what: str
    at: datetime | None


class Results(Answer):
    files: int
    size_bytes: int
    missing: list[str]
    pulled: bool
    pull_required: bool


class ImageShown(Answer):
    """`name` as the spec has it; `digest`: the exact content that the machines run, null where it could not be pinned
    (yet). `follow_tag`: each attempt takes what the tag names then."""

    name: str
    digest: str | None
    pinned: bool
    follow_tag: bool


class StopShown(Answer):
    actor: str
    at: datetime


class Run(Answer):
    """`machine_id`, `price_usd_per_h`: of the machine that is not known gone yet. `attempt`: number of the newest."""

    run_id: str
    generation: int
    owner: str
    status: str
    cause: str | None = Field(description=CAUSE)
    status_text: str
    detail: str
    hold: str
    needs_person: str
    attempt: int | None
    placement: Placement | None
    machine_id: str | None
    beat: BeatShown | None
    stall: StallShown
    progress: Progress | None
    checkpoint_step: int | None
    price_usd_per_h: float | None
    cost: Cost
    counters: Counters
    next_action: NextAction
    results_manifest_sha256: str | None
    results: Results | None
    purging: bool
    purged_at: datetime | None
    kept_until: datetime | None
    stop: StopShown | None
    image: ImageShown | None
    labels: dict[str, str]
    created_at: datetime
    generation_at: datetime
    status_since: datetime
    version: int


class SubmittedRun(Run):
    """`differs`: JSON pointers of what the new spec changed."""

    warnings: list[str]
    differs: list[str]


class Summary(Answer):
    """Counts by status under the same filter, without its `status`. `last_tick_age_s`: since this process last looked
    at its runs, null: it has not. `tick_late`: it is too long ago (as in /readyz), and no other replica does it
    instead."""

    counts: dict[str, int]
    usd_per_h: float
    last_tick_age_s: float | None
    tick_late: bool


class SparkPoint(Answer):
    """`gap`: no line leads here from the point before, because another attempt began or nothing was heard meanwhile."""

    at: datetime
    step: int
    gap: bool


class ListedRun(Run):
    """`sparkline`: where `include=sparkline` was asked for, oldest first, from the first point to the newest."""

    sparkline: list[SparkPoint] = []


class RunList(Answer):
    runs: list[ListedRun]
    summary: Summary
    next_cursor: str | None


class EventShown(Answer):
    """`source`: supervisor or cloud. The cloud's own events have no id of ours (null), their kind is the cloud's word,
    and `data` has the operation's id, the machine and its zone."""

    id: int | None
    run_id: str | None
    at: datetime
    generation: int
    attempt: int
    kind: str
    text: str
    actor: str
    data: dict[str, Any]
    source: str


class EventList(Answer):
    """`cloud_unread`: why the cloud's own events, which were asked for, are not among these."""

    events: list[EventShown]
    complete: bool
    cloud_unread: str | None


class BeatAnswer(Answer):
    next_s: float
    stop: bool
    follow_logs: bool


class ProblemError(Answer):
    pointer: str
    detail: str


class Problem(Answer):
    """RFC 9457. `code` is stable; `meta` holds every value of the text."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: list[ProblemError]
    meta: dict[str, Any]
    request_id: str
