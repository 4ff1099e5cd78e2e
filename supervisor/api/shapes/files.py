"""What a run leaves: files, logs, code bundles; and what it costs: money, stored bytes, their purge."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from supervisor.api.shapes.answers import Answer, Run
from supervisor.api.shapes.bodies import NoParameters
from supervisor.api.shapes.run_spec import WHOLE, Strict


class LogAnswer(Answer):
    run_id: str
    attempt: int | None
    text: str
    offset: int
    next_offset: int
    size: int
    complete: bool
    line: int | None = Field(description="Number of the line in which `offset` lies; null: not known yet.")
    lines: int | None = Field(description="Lines of the whole log; null: not counted to its end yet.")
    counted_bytes: int = Field(description="So far lines were counted; ask again, and it goes on.")


class LogText(LogAnswer):
    """Offsets count bytes of the attempt's whole log. `complete`: nothing will follow `next_offset`. With `line` beyond
    what is counted yet, `line` is null and the text empty: ask again."""


class LogMatch(Answer):
    line: int | None
    offset: int = Field(description="The byte where the line begins.")
    text: str = Field(description="Of the line, around the first place: at most 640 bytes.")
    skipped_bytes: int = Field(description="of the line, before `text`")
    cut_bytes: int = Field(description="of the line, after `text`")


class LogMatches(LogAnswer):
    """Of a search: at most 100 lines. Go on from `next_offset` while there is `more`; `text` is empty."""

    matches: list[LogMatch]
    more: bool


class CodeShown(Answer):
    """`size_bytes`: of its files; `stored_bytes`: of the gzip in the object store."""

    sha256: str
    files: int
    size_bytes: int
    stored_bytes: int


Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class FileParameters(NoParameters):
    kind: Annotated[
        list[Literal["results", "checkpoints", "logs", "evidence", "code"]],
        Field(max_length=16, description="may be given several times; none = all"),
    ] = []
    page_size: Annotated[int, Field(ge=0, description="0 = 200; above 1000 is taken as 1000")] = 0
    cursor: Annotated[str, StringConstraints(max_length=1024)] | None = None


class PulledBody(Strict):
    """`results_sha256`: of the names, sizes and checksums that were pulled; `files`: how many."""

    results_sha256: Sha256
    files: Annotated[int, Field(ge=0, le=10**9), WHOLE]


class FileShown(Answer):
    """`path`: relative to the run's folder, as in the address of the file. `sha256` null: nobody has it."""

    path: str
    kind: str
    size: int
    sha256: str | None
    updated: datetime | None


class LeftOutShown(Answer):
    name: str
    why: str


class PartialResults(Answer):
    """Results as they were saved last: with the checkpoint of `step`, or at the end of `attempt`. `left_out`: the
    first 100 files whose newest content is not among them."""

    attempt: int
    step: int | None
    left_out: list[LeftOutShown]


class FileList(Answer):
    """`complete`: the run is over, nothing will be added. `results_sha256`: of the verified results.
    `partial_results`: null once the work is done, and where nothing was saved."""

    run_id: str
    files: list[FileShown]
    next_cursor: str | None
    complete: bool
    results_sha256: str | None
    partial_results: PartialResults | None


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


class PurgedRun(Run):
    """`deleted_files`, `deleted_bytes`: by this request; one that was cut off before may have deleted others."""

    deleted_files: int
    deleted_bytes: int


class CostList(Answer):
    runs: list[RunCost]
    code: CodeCost
    next_cursor: str | None
