"""The shapes of the answers about money, stored files and their purge."""

from __future__ import annotations

from pydantic import Field

from supervisor.api.shapes.answers import Answer, Run

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
