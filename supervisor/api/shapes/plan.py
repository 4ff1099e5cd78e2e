"""What a run is asked for: the plan of a submit, the spec and what its machines are started with, changes of a run that
exists already, stops and resumes of many at once, and imports of the older runner's runs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from supervisor.api.shapes.answers import GPU, Answer, Placement, Run
from supervisor.api.shapes.bodies import ListParameters, RunId
from supervisor.api.shapes.health import FindingShown
from supervisor.api.shapes.run_spec import WHOLE, LabelKey, LabelValue, LimitsSpec, Names, RunSpec, Strict


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


MERGE_PATCH = "application/merge-patch+json"


class ChangeBody(Strict):
    """A JSON merge patch (RFC 7396). What is not named stays; null takes a label away, and gives a limit or the zones
    back their default. `zones`: of later attempts, in this order; [] = all."""

    labels: Annotated[dict[LabelKey, LabelValue | None], Field(max_length=128)] | None = None
    limits: LimitsSpec | None = None
    zones: Names | None = None

    def as_patch(self) -> dict[str, Any]:
        """What was named, as plain JSON values."""
        return self.model_dump(mode="json", exclude_unset=True)


class ChangedRun(Run):
    """`before`, `after`: the values that counted and count now, by name (`limits.budget_usd`, `labels.team`, `zones`);
    empty where nothing differs. `warnings`: what the change brings about at once."""

    warnings: list[str]
    before: dict[str, Any]
    after: dict[str, Any]


class ManyParameters(ListParameters):
    """Which runs: the filters of the list. `page_size`: how many of them one request looks at; 0 = 1000."""

    all: Annotated[bool, Field(description="every run, in the place of a filter")] = False

    @model_validator(mode="after")
    def _meant(self) -> ManyParameters:
        given = self.model_fields_set - {"all", "cursor", "page_size", "sort"}
        named = any(getattr(self, name) not in (None, [], "") for name in given)
        if named and self.all:
            raise ValueError("all=true and a filter contradict each other; leave one of them out")
        if not named and not self.all:
            raise ValueError("a filter is needed, such as label=KEY=VALUE or status=WORD; all=true means every run")
        return self


class ManyBody(Strict):
    """`dry_run`: tell what would be done, and do nothing. `expect`: how many matching runs you have seen; 409 where
    there are more or fewer."""

    dry_run: bool = False
    expect: Annotated[int, Field(ge=0, le=10**9), WHOLE] | None = None


class RefusedRun(Answer):
    """`code`: as in the answer to the same wish for this run alone."""

    run_id: str
    code: str
    detail: str


class ManyDone(Answer):
    """`matched`: all runs of the filter when this request began. `changed`, `runs`: those that were changed by this
    request (or would be), 1000 at most. `unchanged`: those that it looked at or passed over, because the wish means
    nothing to them. `more`: others may be left; ask again with `next_cursor` as `cursor` and without `expect`."""

    dry_run: bool
    matched: int
    changed: int
    unchanged: int
    refused: list[RefusedRun]
    runs: list[str]
    more: bool
    next_cursor: str | None


class ImportBody(Strict):
    """`run_id`: the new name; without it the old one, or one made of it. `spec`: instead of what the old run says of
    itself. `dry_run`: only tell what would be done."""

    url: Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=255)] = Field(
        description="gs://BUCKET/runs/RUN_ID, or file:///FOLDER/runs/RUN_ID for a copy on the service's computer"
    )
    run_id: RunId | None = None
    spec: RunSpec | None = None
    dry_run: bool = False


class ImportedFile(Answer):
    name: str
    size: int


class ImportedRun(Answer):
    """`step`: of the checkpoint; null where the old run did not write it down, it counts as 0 then. `left_out`: what
    was not carried over, and why. `run` is null after a dry run."""

    run_id: str
    source: str
    dry_run: bool
    old_state: str | None
    step: int | None
    files: list[ImportedFile]
    events: int
    spec: dict[str, Any]
    left_out: list[str]
    warnings: list[str]
    run: Run | None
