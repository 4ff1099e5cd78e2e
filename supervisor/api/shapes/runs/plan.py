"""The plan of a submit: the answer of POST /v1/runs?validate_only=true."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from supervisor.api.shapes.answers import GPU, Answer
from supervisor.api.shapes.system.health import FindingShown

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
