"""A composed case: a log, an end and the facts around it, written down as the document that the supervisor would keep.

Facts that no agent of today reports stand in `items`, in the normal form of the evidence (supervisor/domain/diagnosis):
name, value, source, and the time by the clock of that source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.contract.beat_telemetry import Cgroup, Disk, Gpus, Telemetry, encode
from supervisor.contract.heartbeat import Beat, Exit
from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineRecord, Placement
from tests.diagnosis.cases import COMPOSED, Expected, Json, write, write_steps
from tests.diagnosis.makers.documents import LOCAL, NOW, document
from tests.diagnosis.makers.variations import Variation

GCE = Placement("gce", "us-east1", "us-east1-c", "g2-standard-8", True)
SLURM = Placement("slurm", "", "cluster", "gpu", True)
KUBERNETES = Placement("kubernetes", "", "cluster", "gpu-1", True)
GIB = 2**30
ROOMY = Disk(4e11, 5e11, 3e7, 3.3e7)
MADE = "2026-11-26"

Fact = tuple[str, Any, str] | tuple[str, Any, str, float | None] | tuple[str, Any, str, float | None, str]


@dataclass(frozen=True)
class Story:
    """`code` and `number` None: the command has not ended, or nothing was seen of its end. `facts`: further items:
    (name, value, source, at, where). `pages`: where texts of others are from."""

    expected: Expected
    code: int | None = None
    number: int | None = None
    sent_by_us: bool = False
    oom_kills: int | None = 0
    disk_full: str = ""
    after_work: bool = False
    last_line: str | None = None  # None: the last line of the log
    ran_s: float | None = None  # None: as long as the agent runs
    telemetry: Telemetry | None = None
    left: str | None = None
    message: str = ""
    notice_s: float | None = None
    phase: str = ""
    record: MachineRecord | None = None
    cause: Cause | None = None  # decided by the supervisor itself
    detail: str = ""
    facts: Sequence[Fact] = ()
    placement: Placement = LOCAL
    agent: bool = True  # the agent left its part
    beat: bool = True
    signals_sent: Sequence[int] = ()
    reboot: bool = False
    pages: str = ""
    serial: Sequence[str] = ()


@dataclass(frozen=True)
class Mechanism:
    """One way in which something happens, told again for each seed."""

    name: str
    tell: Callable[[Variation], Story]
    seeds: int


def cases_of(family: str, mechanisms: Sequence[Mechanism]) -> dict[str, Callable[[Path], None]]:
    """`family/name` -> a function that writes the case into a folder."""
    made: dict[str, Callable[[Path], None]] = {}
    for mechanism in mechanisms:
        for seed in range(mechanism.seeds):
            made[f"{family}/{mechanism.name}-{seed:02d}"] = _maker(family, mechanism, seed)
    return made


def _maker(family: str, mechanism: Mechanism, seed: int) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        drawn = Variation(f"{family}/{mechanism.name}", seed)
        story = mechanism.tell(drawn)
        made = _document(story, drawn)
        provenance = {
            "kind": COMPOSED,
            "mechanism": f"composed/{family}.py: {mechanism.name}",
            "seed": str(seed),
            "text from": story.pages or "our own words",
            "date": MADE,
        }
        write(folder, made, drawn.log, story.expected, provenance)
        if drawn.steps:
            write_steps(folder, drawn.steps)

    return make


def _document(story: Story, drawn: Variation) -> Json:
    telemetry = story.telemetry
    end = _exit(story, drawn)
    ran_s = drawn.up_s - 5.0 if story.ran_s is None else story.ran_s
    reported = bool(drawn.steps)
    beat = Beat(
        "digits-7", 1, "1.1.1", "m-1", "b0070000-0000-4000-8000-000000000000", 40,
        story.phase or ("finished" if end is not None or story.left else "training"),
        step=drawn.step if reported else None, total=drawn.total if reported else None,
        exit=end, left=story.left, message=story.message, notice_s=story.notice_s, up_s=round(drawn.up_s, 1),
        telemetry="" if telemetry is None else encode(telemetry),
    )  # fmt: skip
    over = end is not None or story.left is not None
    part = _part(story, beat) if story.agent and over else None
    made = document(
        beat if story.beat else None, part, record=story.record, cause=story.cause, detail=story.detail,
        placement=story.placement, ran_s=ran_s,
    )  # fmt: skip
    if story.record is not None:
        made["records"] = [{"cause": story.record.cause.value, "detail": story.record.detail, "at": story.record.at}]
    if story.serial:
        made["serial"] = list(story.serial)
    facts = [*story.facts, ("up.s", round(drawn.up_s, 1), "agent", round(drawn.up_s, 1))]
    if story.left and not story.agent:  # the last beat of a start-up script; a document keeps only its message
        facts += [("left", story.left, "agent"), ("left.message", story.message, "agent")]
    items = [_item(fact) for fact in facts]
    if len(items) > 1:
        made["items"] = items
    del made["log_tail"]
    return made


def _exit(story: Story, drawn: Variation) -> Exit | None:
    if story.code is None and story.number is None:
        return None
    lines = [line.strip() for line in drawn.log.decode().splitlines() if line.strip()]
    line = (lines[-1] if lines else "") if story.last_line is None else story.last_line
    ran_s = drawn.up_s - 5.0 if story.ran_s is None else story.ran_s
    return Exit(
        story.code, story.number, story.sent_by_us, round(ran_s, 1), line[:300], False,
        None if story.code == 0 else story.oom_kills, story.disk_full, story.after_work,
    )  # fmt: skip


def _part(story: Story, beat: Beat) -> Json:
    """The agent's part, with what readers need of it; the document has the exit, the beat the telemetry."""
    return {
        "version": 1, "when": "end", "exit": None, "left": story.left, "signals_sent": list(story.signals_sent),
        "oom_kills": story.oom_kills if story.code != 0 else None,
        "boot": {"at_start": beat.boot_id, "now": beat.boot_id.replace("b007", "b008") if story.reboot else beat.boot_id},
    }  # fmt: skip


def _item(fact: Fact) -> Json:
    name, value, source, *rest = fact
    made: Json = {"name": name, "value": _short(value), "source": source}
    if rest and rest[0] is not None:
        made["at"] = _short(rest[0])
    if len(rest) > 1 and rest[1]:
        made["where"] = rest[1]
    return json.loads(json.dumps(made))  # tuples become lists, as in the file


def _short(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


def memory(drawn: Variation, share: float, limit_gib: float = 64.0) -> Telemetry:
    limit = limit_gib * GIB
    return Telemetry(
        cgroup=Cgroup(memory_bytes=round(share * limit), memory_max_bytes=limit, oom_kills=0), checkpoints_disk=ROOMY
    )


def cards(*used_gib: float, total_gib: float = 24.0, util: float = 90.0, **more: tuple[float | None, ...]) -> Telemetry:
    gpus = Gpus(
        util_pct=(util,) * len(used_gib), memory_used_mib=tuple(used * 1024 for used in used_gib),
        memory_total_mib=(total_gib * 1024,) * len(used_gib), **more,
    )  # fmt: skip
    return Telemetry(
        gpus=gpus, cgroup=Cgroup(memory_bytes=8 * GIB, memory_max_bytes=64 * GIB, oom_kills=0), checkpoints_disk=ROOMY
    )


def disk(free: float, total: float = 1e11, free_inodes: float = 6e6, total_inodes: float = 6.5e6) -> Telemetry:
    group = Cgroup(memory_bytes=8 * GIB, memory_max_bytes=64 * GIB, oom_kills=0)
    return Telemetry(cgroup=group, checkpoints_disk=Disk(free, total, free_inodes, total_inodes))


def with_disk(telemetry: Telemetry, made: Disk) -> Telemetry:
    return telemetry._replace(checkpoints_disk=made)


def record(cause: Cause, detail: str, before_end_s: float = 1.0) -> MachineRecord:
    """The platform's record, so long before the supervisor saw the end."""
    return MachineRecord(cause, detail, NOW - before_end_s)
