"""Changes of a run that exists already, and stops and resumes of many at once: what is taken, what is answered."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from supervisor.api.shapes.answers import Answer, Run
from supervisor.api.shapes.bodies import ListParameters
from supervisor.api.shapes.run_spec import WHOLE, LabelKey, LabelValue, LimitsSpec, Names, Strict

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
            raise ValueError(
                "a filter is needed, such as label=KEY=VALUE or status=WORD; all=true means every run"
            )
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
