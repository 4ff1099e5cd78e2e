"""What an import takes and answers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from supervisor.api.shapes.answers import Answer, Run
from supervisor.api.shapes.bodies import RunId
from supervisor.api.shapes.run_spec import RunSpec, Strict


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
