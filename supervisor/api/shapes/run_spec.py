"""RunSpec: the spec of a run, every field with its type, bounds and default.

Nothing that is accepted here may break a later response: no NUL, no NaN, no number beyond its bound, no unknown field.
None means "not given": the default of the settings counts. Rules over several parts are in services/runs/policy.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    FiniteFloat,
    StringConstraints,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from supervisor.api.shapes.parameters import Race, RunId
from supervisor.contract.scratch import MAX_CHARS, MAX_GLOBS, problem_of
from supervisor.domain.texts import ONE_LINE

COMMAND_MAX_BYTES = 190 * 1024
ENV_MAX_BYTES = 128 * 1024
FORMS = WORDS, SHELL, NAMED, COUNTED = ("<words>", "<shell>", "<named>", "<counted>")  # of a command, of zones
TEN_YEARS_S = 315_360_000.0
RESERVED_ENV = frozenset({
    "SPOT_RUN_ID", "SPOT_ATTEMPT", "SPOT_CHECKPOINT_DIR", "SPOT_RESULTS_DIR", "SPOT_PROGRESS_FILE",
    "SPOT_RESUMED_FROM_STEP", "SPOT_MACHINE", "SPOT_STOP_FILE", "SPOT_SAVE_FILE", "SPOT_TRACKER_ID",
    "SPOT_TENSORBOARD_DIR", "SPOT_GROUP",
})  # fmt: skip


class Strict(BaseModel):
    """No conversions, no unknown fields, and no echo of what was sent. Never changed after it was read."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False, frozen=True)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Defaults are shared: a copy of those of a run spec would cost as much as reading the whole body."""
        return self


def unique(values: list[str]) -> list[str]:
    if len(set(values)) != len(values):
        raise ValueError("contains a value twice")
    return values


def _utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("is outside of the calendar") from None


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        raise ValueError("is not a regular expression") from None
    return text


def _glob(text: str) -> str:
    if text.startswith("/") or ".." in text.split("/"):
        raise ValueError("must stay inside its folder")
    return text


def _scratch(glob: str) -> str:
    problem = problem_of(glob)
    if problem:
        raise ValueError(problem)
    return glob


def _whole(value: object) -> object:
    """12.0 is a whole number in JSON, as JSON schema defines it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


WHOLE = BeforeValidator(_whole)
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=COMMAND_MAX_BYTES)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
EnvValue = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=32_768)]
_LOCAL_REF = (
    r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/[^\x00]+"
    r"|gcp:projects/[a-z0-9][a-z0-9.:-]*/secrets/[A-Za-z0-9_-]{1,255}/versions/[A-Za-z0-9_-]{1,63})$"
)
_CLUSTER_REF = r"^k8s:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9._-]{1,253}$"
_REFS = [{"type": "string", "pattern": pattern, "maxLength": 1024} for pattern in (_LOCAL_REF, _CLUSTER_REF)]
SecretRef = Annotated[
    str, StringConstraints(pattern=f"{_LOCAL_REF}|{_CLUSTER_REF}", max_length=1024), WithJsonSchema({"anyOf": _REFS})
]
LabelKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=63)]
LabelValue = Annotated[str, StringConstraints(pattern=ONE_LINE, max_length=255)]
ONCE = {"uniqueItems": True}  # what `unique` checks, as JSON schema
Names = Annotated[list[Name], Field(max_length=64, json_schema_extra=ONCE), AfterValidator(unique)]
_PARALLEL = "runs of the group with a machine at once; its smallest value counts"
MaxParallel = Annotated[int, Field(ge=1, le=1_000_000, description=_PARALLEL), WHOLE]
Priority = Annotated[int, Field(ge=-100, le=100, description="the highest gets the next free machine"), WHOLE]
After = Annotated[
    list[RunId],
    Field(max_length=256, description="it starts when each of these runs is completed", json_schema_extra=ONCE),
    AfterValidator(unique),
]
Scratch = Annotated[
    list[Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=MAX_CHARS), AfterValidator(_scratch)]],
    Field(
        max_length=MAX_GLOBS,
        description="globs of files that may be removed when the disk is full (`/` at the end: folders); relative to "
        "the working folder, or absolute",
    ),
]
Seconds = Annotated[FiniteFloat, Field(gt=0, le=TEN_YEARS_S)]
SecondsOrZero = Annotated[FiniteFloat, Field(ge=0, le=TEN_YEARS_S)]


class ResultRule(Strict):
    """Files that a complete run has in its results folder."""

    path: Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=512), AfterValidator(_glob)]
    min_count: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] = 1
    verify: Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=4096)] | None = None


class StageFile(Strict):
    """A file that each machine downloads before the command starts. `to`: its name below SPOT_STAGE_DIR."""

    from_: Annotated[str, StringConstraints(pattern=r"^(https?|gs)://[^/@\s\x00]+/[!-~]+$", max_length=2048)] = Field(
        alias="from"
    )
    to: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$", max_length=512)
    ]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class CheckpointsSpec(Strict):
    """Which checkpoints stay in the store. The newest two verified ones always do."""

    keep_last: Annotated[int, Field(ge=2, le=20), WHOLE] = 3
    keep_best: Annotated[int, Field(ge=0, le=20), WHOLE] = 1
    keep_every: Annotated[int, Field(ge=1, le=1_000_000_000), WHOLE] | None = None


class NeedsSpec(Strict):
    """What a machine must have, checked before the launch where it can be read. `gpu`: a part of the name of its GPUs.
    `cuda`: the version that the training was built for. `disk_gb`: free, beside the checkpoints."""

    gpu: Annotated[str, StringConstraints(pattern=r"^[ -~]+$", max_length=64)] | None = None
    cuda: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3})?$", max_length=7)] | None = None
    memory_gb: Annotated[FiniteFloat, Field(gt=0, le=100_000)] | None = None
    disk_gb: Annotated[FiniteFloat, Field(gt=0, le=1_000_000)] | None = None


class Retry(Strict):
    """Failures of the command after which the same spec is tried again."""

    exit_codes: Annotated[list[Annotated[int, Field(ge=1, le=255), WHOLE]], Field(max_length=64)] = []
    log_patterns: Annotated[
        list[Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=256), AfterValidator(_pattern)]],
        Field(max_length=16),
    ] = []


class LimitsSpec(Strict):
    """Limits that end the run. `max_runtime_s` counts training in this generation, `deadline` is wall time."""

    max_runtime_s: Seconds | None = None
    deadline: Annotated[AwareDatetime, AfterValidator(_utc)] | None = None
    max_attempts: Annotated[int, Field(ge=1, le=10_000), WHOLE] | None = None
    max_user_failures: Annotated[int, Field(ge=1, le=10_000), WHOLE] | None = None
    wait_for_capacity_s: SecondsOrZero | None = None
    budget_usd: Annotated[FiniteFloat, Field(gt=0, le=1e9)] | None = None
    machine_max_s: Seconds | None = None


class EscalateSpec(Strict):
    """What to request first after `after` preemptions within `within_s` (6 h), or near the deadline. Off by default.
    `pay`: for a provider that comes after one whose sessions are free, when the deadline needs it or always."""

    after: Annotated[int, Field(ge=1, le=32), WHOLE] | None = None
    within_s: Seconds | None = None
    to: Literal["on_demand", "next_shape", "next_provider"] | None = None
    on_demand_before_deadline_s: Seconds | None = None
    next_provider_before_deadline_s: Seconds | None = None
    pay: Literal["deadline", "always"] | None = None


class StallSpec(Strict):
    """How long each phase may take without progress. `hang`: a command is ended when nothing of it moves any more;
    `quiet_s`: how long nothing may move where it reports no steps."""

    polls: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None = None
    boot_timeout_s: Seconds | None = None
    first_progress_s: Seconds | None = None
    silence_s: Seconds | None = None
    setup_s: Seconds | None = None
    restore_s: Seconds | None = None
    checkpoint_s: Seconds | None = None
    evaluation_s: Seconds | None = None
    finishing_s: Seconds | None = None
    quiet_s: Seconds | None = None
    hang: bool | None = None


class MetricWatch(Strict):
    """What happens at a metric. `nan`: it is NaN or infinite. `spike`: its magnitude is more than 10 times the median
    of the last 50 values, and more than twice the largest of them. `alert`: one event for each attempt. `stop`: the
    alert, and the run ends as failed once at least 5 reports of the metric in a row, over at least 30 s, were not
    finite; its newest checkpoint is then from before the first of them."""

    nan: Literal["alert", "stop"] | None = None
    spike: Literal["alert"] | None = None

    @field_validator("spike", mode="before")
    @classmethod
    def _spike_ends_nothing(cls, value: object) -> object:
        if value == "stop":
            raise ValueError("a jump ends no run, because one outlier is no proof: use `spike: alert`, or `nan: stop`")
        return value

    @model_validator(mode="after")
    def _says_something(self) -> MetricWatch:
        if self.nan is None and self.spike is None:
            raise ValueError("give nan, spike or both")
        return self


class DrillSpec(Strict):
    """When the training is drilled by itself. `at_start`: once it trains. `every`: so long after the last drill, such
    as 12h."""

    at_start: bool = False
    every: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,4}[mhd]$", max_length=6)] | None = None


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("has characters that cannot be printed")
    return name


MetricName = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(_printable)]


def _apart(files: list[StageFile]) -> list[StageFile]:
    """No two files have one name, and none is the folder of another."""
    names = {tuple(part for part in file.to.split("/") if part) for file in files}
    folders = {name[:depth] for name in names for depth in range(len(name))}
    if len(names) != len(files) or names & folders:
        raise ValueError("two files have one name")
    return files


_SHELL_TEXT = {"type": "string", "pattern": r"^[^\x00]+$", "maxLength": 16_384}
SetupText = Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=16_384)]
Setup = Annotated[
    list[SetupText],
    Field(max_length=32),
    BeforeValidator(_as_list),
    WithJsonSchema(
        {
            "anyOf": [_SHELL_TEXT, {"type": "array", "maxItems": 32, "items": _SHELL_TEXT}],
            "description": "commands that prepare a machine, each once for each machine and content, before the "
            "command; a text of several lines is one script",
        }
    ),
]


class RunSpec(Strict):
    """A training to run and keep alive. Only `command` is required."""

    command: Annotated[
        Annotated[list[Text], Field(min_length=1, max_length=1024), Tag(WORDS)]
        | Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=COMMAND_MAX_BYTES), Tag(SHELL)],
        Discriminator(lambda command: WORDS if isinstance(command, list) else SHELL),
    ]
    workdir: Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=4096)] | None = None
    env: Annotated[dict[EnvName, EnvValue], Field(max_length=256)] = {}
    image: Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=512)] | None = None
    image_follow_tag: bool = False
    setup: Setup = []
    base: Annotated[
        RunId | None, Field(description="prepares each machine before the setup; a family means its newest version")
    ] = None
    code: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    venv: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$", max_length=4096)] | None = None
    conda_env: Annotated[str, StringConstraints(pattern=r"^[^\x00\s]+$", max_length=512)] | None = None
    secrets: Annotated[dict[EnvName, SecretRef], Field(max_length=64)] = {}
    allow_plain_secrets: bool = False
    tracker_url: Annotated[str, StringConstraints(pattern=r"^https?://[!-~]+$", max_length=512)] | None = None
    provider: Name | None = None
    providers: Annotated[list[Name], Field(max_length=8, json_schema_extra=ONCE), AfterValidator(unique)] = []
    zones: Names = []
    shapes: Names = []
    spot: bool = True
    allow_on_demand: bool = False
    allow_flex_start: bool = False
    optimize: Literal["cost", "deadline", "wait"] | None = None
    same_region: Literal["require", "advise"] = "advise"
    group: RunId | None = None
    max_parallel: MaxParallel | None = None
    after: After = []
    priority: Priority = 0
    min_run_s: SecondsOrZero | None = None
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=64)] = {}
    results: Annotated[list[ResultRule], Field(max_length=64)] = []
    stage: Annotated[list[StageFile], Field(max_length=64), AfterValidator(_apart)] = []
    scratch: Scratch = []
    checkpoints: CheckpointsSpec = CheckpointsSpec()
    require_pull: bool = False
    expect_runtime_s: Seconds | None = None
    expect_checkpoint_gb: Annotated[FiniteFloat, Field(gt=0, le=100_000)] | None = None
    expect_checkpoint_every_s: Seconds | None = None
    needs: NeedsSpec = NeedsSpec()
    retry: Retry = Retry()
    limits: LimitsSpec = LimitsSpec()
    stall: StallSpec = StallSpec()
    watch: Annotated[dict[MetricName, MetricWatch], Field(max_length=8)] = {}
    escalate: EscalateSpec = EscalateSpec()
    stop_grace_s: Annotated[FiniteFloat, Field(ge=0, le=86_400)] | None = None
    on_resume_ignored: Annotated[
        Literal["stop", "warn"],
        Field(
            description="`stop`: a training that starts over beside the restored checkpoint is ended before it can "
            "replace it. `warn`: an event says so, and it goes on"
        ),
    ] = "stop"
    on_slow: Annotated[
        Literal["off", "move"],
        Field(
            description="`move`: a run whose GPU is throttled moves to another zone at its next checkpoint, when "
            "that pays for the restart. `off`: it only gets the hint"
        ),
    ] = "off"
    race: Race = 1
    drill: DrillSpec = DrillSpec()
    on_success: Literal["release", "keep", "ask"] = "release"
    on_failure: Literal["release", "keep"] = "release"
    keep_s: Annotated[FiniteFloat, Field(ge=0, le=86_400)] | None = None
    keep: Annotated[
        Literal["no", "machine"],
        Field(
            description="`machine`: the machine is switched off when an attempt ends, and the next attempt starts it "
            "again with its disks. Only on_success: release and on_failure: release go with it"
        ),
    ] = "no"
    keep_wait_s: Annotated[
        FiniteFloat, Field(ge=0, le=604_800, description="time to start a kept machine again, from the first refusal")
    ] = 1200.0
    keep_fallback: Annotated[
        Literal["new", "wait"],
        Field(description="after `keep_wait_s`. `new`: the kept machine is deleted and a new one is requested"),
    ] = "new"
    keep_for_s: Annotated[
        FiniteFloat, Field(ge=60, le=2_592_000, description="how long a kept machine may be off; then it is deleted")
    ] = 43_200.0
    on_reboot: Annotated[
        Literal["resume", "relaunch"],
        Field(
            description="of a host that stays: the supervisor starts the next attempt (resume), or the host itself "
            "starts the agent again, also while nobody can reach it (relaunch)"
        ),
    ] = "resume"

    @model_validator(mode="after")
    def _sizes(self) -> RunSpec:
        words = [self.command] if isinstance(self.command, str) else self.command
        if not words[0].strip():
            raise ValueError("command is empty")
        if sum(len(word.encode()) + 1 for word in words) > COMMAND_MAX_BYTES:
            raise ValueError(f"command is larger than {COMMAND_MAX_BYTES} bytes")
        if sum(len(name) + len(value.encode()) for name, value in self.env.items()) > ENV_MAX_BYTES:
            raise ValueError(f"env is larger than {ENV_MAX_BYTES} bytes")
        if not RESERVED_ENV.isdisjoint(self.env):
            raise ValueError(f"env may not set the agent's own variables: {', '.join(sorted(RESERVED_ENV))}")
        return self

    def as_spec(self) -> dict[str, Any]:
        """Plain JSON values without fields that equal their default: two specs with the same meaning are equal."""
        return self.model_dump(mode="json", exclude_defaults=True, by_alias=True)
