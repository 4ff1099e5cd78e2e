"""Heartbeats: what an agent pushes, and the series that is drawn of those that were kept."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from supervisor.api.shapes.answers import Answer
from supervisor.api.shapes.bodies import NoParameters, RunId
from supervisor.api.shapes.moments import Moment
from supervisor.contract import heartbeat


class HeartbeatBody(BaseModel):
    """One heartbeat; fields that are unknown here are ignored. For the document: domain/heartbeat reads it."""

    run_id: RunId
    attempt: int = Field(ge=1, le=heartbeat.MAX_COUNT)
    launch_id: str = Field(description="generation.attempt.try", pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")
    machine_id: str = Field(max_length=heartbeat.MAX_TEXT)
    boot_id: str = Field(max_length=heartbeat.MAX_TEXT)
    sequence: int = Field(ge=1, le=heartbeat.MAX_COUNT)
    phase: str = Field(json_schema_extra={"enum": list(heartbeat.PHASES)})
    nonce: str
    step: int | None = Field(None, ge=0, le=heartbeat.MAX_COUNT)
    total: int | None = Field(None, ge=0, le=heartbeat.MAX_COUNT)
    checkpoint_step: int | None = Field(None, ge=0, le=heartbeat.MAX_COUNT)
    steps_per_s: float | None = None
    metrics: dict[str, float] = {}
    up_s: float | None = Field(
        None, ge=0, description="how long the agent has run, by its own monotonic clock"
    )
    recent: str = Field(
        "", description="points of its first minutes, as text; ignored where it cannot be read or is too long"
    )


class SeriesParameters(NoParameters):
    """`points`: at most so many."""

    since: Moment | None = None
    until: Moment | None = None
    points: Annotated[int, Field(ge=1, description="above 2000 is taken as 2000")] = 500


class Point(Answer):
    """One instant of a run. `gap`: no line leads here from the point before: another attempt, or silence between.
    Shares are of all cards of the machine together."""

    at: datetime
    attempt: int
    gap: bool
    phase: str
    step: int | None
    total: int | None
    checkpoint_step: int | None
    steps_per_s: float | None
    gpu_pct: float | None
    gpu_memory_pct: float | None
    memory_bytes: float | None
    disk_free_pct: float | None
    metrics: dict[str, float]


class Series(Answer):
    """`every_s`: each point stands for so many seconds, rates and figures are means of them; null: nothing was left
    out. Kept are one point a minute for a day, and one in ten minutes for 30 days."""

    run_id: str
    since: datetime
    until: datetime
    every_s: float | None
    points: list[Point]
