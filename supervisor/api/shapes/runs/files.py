"""Bodies, parameters and answers of the routes for files.

The shapes of answers about code bundles.

The shapes of a log's answers: a part of its text, or the lines in which a text was found.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from supervisor.api.shapes.answers import Answer
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


FILE_REFUSALS = "RUN_NOT_FOUND FILES_PURGED FILE_NOT_FOUND FILE_CHANGED RANGE_NOT_SATISFIABLE"
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
