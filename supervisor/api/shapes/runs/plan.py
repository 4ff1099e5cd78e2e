"""The plan of a submit: the answer of POST /v1/runs?validate_only=true.

The shapes of the answers that tell what a run was asked for, and what its machines are started with.

The shapes of the answers about money, stored files and their purge.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from supervisor.api.shapes.answers import GPU, Answer, Placement, Run
from supervisor.api.shapes.system.health import FindingShown

BOUND = "True: an attempt had no known price and is left out of the sum, which is therefore a lower bound."
NOW = "Price of the machine that is not known gone; null: there is none, or its price is not known."
UNREAD = "Null: the object store could not be read."
MONTH = "Null: the setting store_usd_per_gib_month is not set, or the store could not be read."


class StoredBytes(Answer):
    results: int
    checkpoints: int
    logs: int
    evidence: int
    other: int


class RunCost(Answer):
    """Costs are null where nothing of them is known, never 0."""

    run_id: str
    status: str
    attempts: int
    cost_usd: float | None
    lower_bound: bool = Field(description=BOUND)
    on_demand_usd: float | None
    usd_per_h: float | None = Field(description=NOW)
    files: int | None = Field(description=UNREAD)
    stored_bytes: StoredBytes | None = Field(description=UNREAD)
    stored_usd_per_month: float | None = Field(description=MONTH)


class CodeCost(Answer):
    """All code bundles together: runs share them, of all owners; so only who has the scope admin is told."""

    stored_bytes: int | None = Field(description=f"{UNREAD} Or not for this token.")
    stored_usd_per_month: float | None = Field(description=MONTH)


class CostList(Answer):
    runs: list[RunCost]
    code: CodeCost
    next_cursor: str | None


class PurgedRun(Run):
    """`deleted_files`, `deleted_bytes`: by this request; one that was cut off before may have deleted others."""

    deleted_files: int
    deleted_bytes: int


class RunSpecShown(Answer):
    """`spec`: as a submit takes it, fields that equal their default left out. `withheld`: JSON pointers of values that
    look like a secret and are dots here."""

    run_id: str
    generation: int
    spec: dict[str, Any]
    withheld: list[str]


class LaunchShown(Answer):
    """`launch`: what the newest request for a machine sends, in the platform's own words, made again from the run as it
    stands now; null: `why` tells. All but `run_id` null: no machine was asked for yet. `made_at_launch`: what another
    value is shown for."""

    run_id: str
    attempt: int | None
    machine: str | None
    placement: Placement | None
    requested_at: datetime | None
    launch: dict[str, Any] | None
    why: str
    made_at_launch: list[str]


WOULD = "create, resume, rerun or unchanged; clients must accept words that they do not know."


class PlannedPlace(Answer):
    """One place to try, in the order of the tries. Prices in $/h of the whole machine, null = unknown.
    `price_source`, `price_dated`: where that was read and on which day (YYYY-MM-DD). `cooling_until`: it refused lately
    and is not asked before. `chance`: how likely the platform calls it now, 0 to 1."""

    provider: str
    region: str
    zone: str
    shape: str
    gpu: str | None = Field(description=GPU)
    spot: bool
    price_usd_per_h: float | None
    on_demand_usd_per_h: float | None
    price_source: str | None
    price_dated: str | None
    cooling_until: datetime | None
    cooling_why: str | None
    chance: float | None


class PlannedCost(Answer):
    """`usd_per_h`: of the first place. `known` false: a price is unknown and left out. `max_runtime_usd`: of the
    dearest place for all of limits.max_runtime_s. `at_most_usd`: the smaller of that and the budget; null = nothing
    limits it. `lines` say the same in words."""

    usd_per_h: float | None
    least_usd_per_h: float | None
    most_usd_per_h: float | None
    known: bool
    max_runtime_usd: float | None
    budget_usd: float | None
    at_most_usd: float | None
    lines: list[str]


class PlannedLimits(Answer):
    max_runtime_s: float | None
    deadline: datetime | None
    max_attempts: int
    max_user_failures: int
    wait_for_capacity_s: float
    budget_usd: float | None
    machine_max_s: float


class Plan(Answer):
    """What the submit would do; nothing of it is done. `run_id` null: the submit would make one up. `launch`: what the
    first try would send, in the platform's own words (null = nothing is sent, or it could not be made);
    `made_at_launch`: what is not known before."""

    would: str = Field(description=WOULD)
    sentence: str
    run_id: str | None
    generation: int
    differs: list[str]
    warnings: list[str]
    zones: list[PlannedPlace]
    cost: PlannedCost
    limits: PlannedLimits
    checks: list[FindingShown]
    worst: str
    launch: dict[str, Any] | None
    made_at_launch: list[str]
