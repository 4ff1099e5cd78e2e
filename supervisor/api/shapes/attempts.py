"""The attempts of a run: where the time went, what was kept and lost, what each cost.

The shape of the answer that tells why an attempt ended.

The shape of the answer that tells the facts of a run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from supervisor.api.shapes.answers import CAUSE, Answer, Placement

FACTS = "As the agent wrote them: a fact that is missing was not found out, null was found out: there is none."


class ChangedPackage(Answer):
    was: str
    is_: str = Field(alias="is")


class DifferingPackages(Answer):
    """Lines as `pip freeze` writes them, 20 at most in all; `left_out` counts the others."""

    changed: list[ChangedPackage]
    added: list[str]
    removed: list[str]
    left_out: int


class DifferingFact(Answer):
    """`against`: the attempt before it whose facts are known. `packages` null: only the hashes are known to differ."""

    attempt: int
    against: int
    fact: str
    was: str | None
    is_: str | None = Field(alias="is")
    packages: DifferingPackages | None


class AttemptFacts(Answer):
    attempt: int
    generation: int
    cause: str | None = Field(description=CAUSE)
    facts: dict[str, Any] | None = Field(description=FACTS)


class RunFacts(Answer):
    """What a paper needs. The 200 newest attempts are told."""

    run_id: str
    spec: dict[str, Any]
    command: str | list[str]
    code: str | None
    image: str | None
    attempts: list[AttemptFacts]
    differs: list[DifferingFact]


class EvidenceReadings(Answer):
    """Source, value and age of what the end and the release of the machine rest on."""

    end: list[str]
    release: list[str]


class EvidenceMachine(Answer):
    name: str
    machine_id: str
    provider: str
    zone: str
    shape: str
    spot: bool


class EvidenceExit(Answer):
    """`oom_kills` null: the kernel's counter could not be read. `disk_full`: which folder had no room, with figures."""

    code: int | None
    signal: int | None
    sent_by_us: bool
    ran_s: float
    last_line: str
    retry_named: bool
    oom_kills: int | None
    disk_full: str
    after_work: bool = Field(default=False, description="it failed after its last step, its results were there")


class EvidenceBeat(Answer):
    at: str
    sequence: int
    phase: str
    step: int | None
    total: int | None
    checkpoint_step: int | None
    stall_polls: int
    message: str
    metrics: dict[str, float]
    telemetry: dict[str, Any] | None


class Evidence(Answer):
    """`agent` null: `agent_missing` says why. Secrets are masked where they came from."""

    version: int
    run_id: str
    generation: int
    attempt: int
    launch_id: str
    machine: EvidenceMachine
    started_at: str | None
    ended_at: str | None
    gone_at: str | None
    cause: str | None = Field(description=CAUSE)
    detail: str
    exit: EvidenceExit | None
    step_last: int | None
    step_kept: int | None
    readings: EvidenceReadings
    beat: EvidenceBeat | None = Field(description="The last one that was followed.")
    agent: dict[str, Any] | None = Field(
        description="What the agent wrote on a stall or at the end: exit, oom_kills, boot, disks, telemetry, "
        "processes, and of a stall the threads. Names may be added."
    )
    agent_missing: str
    log_tail: list[str] = Field(description="At most 200 lines of at most 1000 characters.")
    console: str | None = Field(description="Key of the machine's console in the object store.")


class ConsoleText(Answer):
    """`live`: asked of the machine just now; with `after` it is False once the machine is gone and nothing more comes.
    `source`: machine, kept (in the object store) or cloud_logging. `log_service`: what else may have it. Offsets count
    bytes since the machine's boot, and come with `after` only; go on from `next_offset`. `lost_bytes`: the platform has
    dropped so many before `start`."""

    run_id: str
    attempt: int
    machine: str
    zone: str
    live: bool
    text: str
    source: str
    log_service: str | None
    start: int | None = None
    next_offset: int | None = None
    lost_bytes: int | None = None


class TryShown(Answer):
    number: int
    placement: Placement
    cause: str = Field(description=CAUSE)
    detail: str
    requested_at: datetime
    ended_at: datetime | None


class PhaseSeconds(Answer):
    waiting: float
    boot: float
    restore: float
    training: float
    lost: float


class SpanShown(Answer):
    """A stretch on the clock. `phase`: waiting, provisioning, boot, pull, restore, training or lost; clients must
    accept words that they do not know."""

    phase: str
    since: datetime
    until: datetime


class ExitShown(Answer):
    code: int | None
    signal: int | None
    sent_by_us: bool
    ran_s: float
    last_line: str
    retry_named: bool


class AttemptShown(Answer):
    number: int
    generation: int
    placement: Placement
    machine: str
    machine_id: str
    requested_at: datetime
    started_at: datetime
    ended_at: datetime | None
    gone_at: datetime | None
    cause: str | None = Field(description=CAUSE)
    evidence: str
    code: str | None
    phase_s: PhaseSeconds
    spans: list[SpanShown]
    step_from: int | None
    step_last: int | None
    step_kept: int | None
    steps_lost: int | None
    cost_usd: float | None
    price_usd_per_h: float | None
    exit: ExitShown | None
    tries: list[TryShown]


class Placing(Answer):
    """`spans`: how it has gone since the attempt before; empty where it is not being placed any more."""

    number: int
    tries: list[TryShown]
    spans: list[SpanShown]


class AttemptList(Answer):
    """`next`: the attempt that is being placed, with its failed tries; null while there is none."""

    run_id: str
    attempts: list[AttemptShown]
    next: Placing | None
