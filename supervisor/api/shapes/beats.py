"""Heartbeats: what an agent pushes, and the series that is drawn of those that were kept.

The shape of a machine's figures in an answer. Every figure may be null: it is not known, which is not zero.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from supervisor.api.shapes.answers import Answer, Run
from supervisor.api.shapes.bodies import Moment, NoParameters, RunId
from supervisor.api.shapes.machines import Account
from supervisor.contract import heartbeat

Figure = float | None


class Gpu(Answer):
    """One card, in the order in which the command sees them."""

    util_pct: Figure
    memory_used_mib: Figure
    memory_total_mib: Figure
    sm_clock_mhz: Figure
    sm_clock_max_mhz: Figure
    power_w: Figure
    power_limit_w: Figure
    temperature_c: Figure
    clock_reasons: Figure = Field(description="NVML's bit mask of clock event reasons")
    ecc_uncorrected: Figure = Field(description="since the driver was loaded")
    last_xid: Figure = Field(description="the driver's last error code since the agent began")
    lost: Figure = Field(description="1: the driver says that this card is gone")


class CgroupShown(Answer):
    """The agent's control group, version 1 or 2; a limit of a group above it counts."""

    memory_bytes: Figure = Field(description="without file cache that the kernel can drop at once")
    memory_max_bytes: Figure = Field(description="null: no limit")
    oom_kills: Figure = Field(description="since the group exists")
    cpu_quota: Figure = Field(description="in cores; null: no limit")
    throttled_s: Figure = Field(description="since the group exists")
    cpu_pressure_pct: Figure = Field(description="share of the last 10 s in which some task waited")
    memory_pressure_pct: Figure
    io_pressure_pct: Figure


class DiskShown(Answer):
    free_bytes: Figure
    total_bytes: Figure
    free_inodes: Figure
    total_inodes: Figure = Field(description="null: this file system does not count inodes")


class Disks(Answer):
    """null: the same file system as the one before it, or not known."""

    checkpoints: DiskShown | None
    results: DiskShown | None
    scratch: DiskShown | None


class TreeShown(Answer):
    """The command and what it started. Memory that processes share is counted in each of them."""

    processes: Figure
    threads: Figure
    rss_bytes: Figure
    running: Figure
    disk_wait: Figure
    stopped: Figure
    zombies: Figure


class Telemetry(Answer):
    """Figures of the newest beat that told any."""

    gpus: list[Gpu]
    cgroup: CgroupShown | None
    disks: Disks
    tree: TreeShown | None
    uptime_s: Figure = Field(description="of the machine, since its boot")
    log_bytes: Figure
    shm_bytes: Figure = Field(description="size of /dev/shm")
    shm_free_bytes: Figure


class ShownRun(Run):
    """A run with the figures of its machine; `telemetry` is null while no beat has told any. `files_url`: its folder in
    the object store, with its manifest and the history of its machines."""

    telemetry: Telemetry | None
    files_url: str
    account: Account | None = Field(description="Whose its machines are; null where another supervisor knows it.")


# For the document alone: contract/heartbeat.py reads what is pushed.
class HeartbeatBody(BaseModel):
    """One heartbeat; fields that are unknown here are ignored."""

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
    up_s: float | None = Field(None, ge=0, description="how long the agent has run, by its own monotonic clock")
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
