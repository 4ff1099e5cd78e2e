"""The figures of a run's machine, as the API shows them: one object for each GPU, null for a figure that is not known.

The figures are those of the newest beat that carried any. They come as columns and tuples of the agent's contract
(contract/beat_telemetry), which has the same names; tests compare the result with the declarations here.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Annotated, Any, cast

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.contract.beat_telemetry import Cgroup, Disk, Gpus, Tree, decode
from supervisor.domain.figures import disks_of
from supervisor.domain.run import Run
from supervisor.wording.forecast import live_pulse

Figure = float | None
_GPU_NAMES = Gpus._fields


class Gpu(TypedDict):
    """One GPU, in the order in which the command sees them."""

    util_pct: Figure
    memory_used_mib: Figure
    memory_total_mib: Figure
    sm_clock_mhz: Figure
    sm_clock_max_mhz: Figure
    power_w: Figure
    power_limit_w: Figure
    temperature_c: Figure
    clock_reasons: Annotated[Figure, Field(description="NVML's bit mask of clock event reasons")]
    ecc_uncorrected: Annotated[Figure, Field(description="since the driver was loaded")]
    last_xid: Annotated[Figure, Field(description="the driver's last error code since the agent started")]
    lost: Annotated[Figure, Field(description="1: the driver reports that this GPU is lost")]


class CgroupShown(TypedDict):
    """The agent's control group, version 1 or 2. A limit of a parent group counts too."""

    memory_bytes: Annotated[Figure, Field(description="without file cache that the kernel can drop at once")]
    memory_max_bytes: Annotated[Figure, Field(description="null: no limit")]
    oom_kills: Annotated[Figure, Field(description="since the group exists")]
    cpu_quota: Annotated[Figure, Field(description="in cores; null: no limit")]
    throttled_s: Annotated[Figure, Field(description="since the group exists")]
    cpu_pressure_pct: Annotated[Figure, Field(description="share of the last 10 s in which some task waited")]
    memory_pressure_pct: Figure
    io_pressure_pct: Figure


class DiskShown(TypedDict):
    free_bytes: Figure
    total_bytes: Figure
    free_inodes: Figure
    total_inodes: Annotated[Figure, Field(description="null: this file system does not count inodes")]


class Disks(TypedDict):
    """null: the same file system as the one before it, or not known."""

    checkpoints: DiskShown | None
    results: DiskShown | None
    scratch: DiskShown | None


class TreeShown(TypedDict):
    """The command and the processes that it started. Shared memory is counted in each of them."""

    processes: Figure
    threads: Figure
    rss_bytes: Figure
    running: Figure
    disk_wait: Figure
    stopped: Figure
    zombies: Figure


class TelemetryJson(TypedDict):
    """Figures of the newest beat that carried any."""

    gpus: list[Gpu]
    cgroup: CgroupShown | None
    disks: Disks
    tree: TreeShown | None
    uptime_s: Annotated[Figure, Field(description="of the machine, since its boot")]
    log_bytes: Figure
    shm_bytes: Annotated[Figure, Field(description="size of /dev/shm")]
    shm_free_bytes: Figure


def telemetry_json(run: Run) -> TelemetryJson | None:
    """Of the live attempt. None: there is none, or its beats have carried no figures yet."""
    pulse = live_pulse(run)
    telemetry = decode(pulse.telemetry) if pulse is not None else None
    if telemetry is None:
        return None
    disks = disks_of(telemetry)
    return {
        "gpus": [] if telemetry.gpus is None else _gpus(telemetry.gpus),
        "cgroup": _part(telemetry.cgroup),
        "disks": {
            "checkpoints": _part(disks.get("checkpoints")),
            "results": _part(disks.get("results")),
            "scratch": _part(disks.get("scratch")),
        },
        "tree": _part(telemetry.tree),
        "uptime_s": telemetry.uptime_s,
        "log_bytes": _whole(telemetry.log_bytes),
        "shm_bytes": _whole(telemetry.shm_bytes),
        "shm_free_bytes": _whole(telemetry.shm_free_bytes),
    }


def _gpus(gpus: Gpus) -> list[Gpu]:
    """As many as the longest column has values: forged columns may differ in length."""
    rows = zip_longest(*(getattr(gpus, name) for name in _GPU_NAMES))
    return [cast(Gpu, dict(zip(_GPU_NAMES, map(_whole, row), strict=True))) for row in rows]


def _part(part: Cgroup | Disk | Tree | None) -> Any:
    """A CgroupShown, DiskShown or TreeShown; None for None."""
    return None if part is None else {name: _whole(figure) for name, figure in part._asdict().items()}


def _whole(figure: Figure) -> Figure:
    """12 instead of 12.0: read back from a row, whole figures are int already."""
    return int(figure) if isinstance(figure, float) and figure.is_integer() else figure
