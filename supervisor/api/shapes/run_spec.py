"""RunSpec: what a user may ask for, every field with its type, bounds and default. The strict gate of the API.

Nothing that passes here may break a later answer: no NUL, no NaN, no number beyond its bound, no unknown field. None
means "not given": the settings' default counts. What needs the settings or more than one part of the spec is checked
in services/policy.
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
    model_validator,
)

from supervisor.domain.texts import ONE_LINE

COMMAND_MAX_BYTES = 190 * 1024
ENV_MAX_BYTES = 128 * 1024
WORDS, SHELL = ("<words>", "<shell>")  # the two forms of a command; in an error they name the form that was meant
TEN_YEARS_S = 315_360_000.0
RESERVED_ENV = frozenset(
    {
        "SPOT_RUN_ID", "SPOT_ATTEMPT", "SPOT_CHECKPOINT_DIR", "SPOT_RESULTS_DIR", "SPOT_PROGRESS_FILE",
        "SPOT_RESUMED_FROM_STEP", "SPOT_MACHINE", "SPOT_STOP_FILE",
    }
)  # fmt: skip


class Strict(BaseModel):
    """No conversions, no unknown fields, and no echo of what was sent. Read once and never changed."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False, frozen=True)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Defaults are shared: copying those of a run spec costs as much as reading the whole body."""
        return self


def unique(values: list[str]) -> list[str]:
    if len(set(values)) != len(values):
        raise ValueError("names one of them twice")
    return values


def _utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies beyond the calendar") from None


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        raise ValueError("is not a regular expression") from None
    return text


def _glob(text: str) -> str:
    if text.startswith("/") or ".." in text.split("/"):
        raise ValueError("must stay inside the results folder")
    return text


def _whole(value: object) -> object:
    """12.0 is a whole number in JSON, as the document promises it of every JSON schema."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=COMMAND_MAX_BYTES)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
EnvValue = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=32_768)]
SecretRef = Annotated[
    str,
    StringConstraints(
        pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/[^\x00]+"
        r"|gcp:projects/[a-z0-9][a-z0-9.:-]*/secrets/[A-Za-z0-9_-]{1,255}/versions/[A-Za-z0-9_-]{1,63})$",
        max_length=1024,
    ),
]
LabelKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=63)]
LabelValue = Annotated[str, StringConstraints(pattern=ONE_LINE, max_length=255)]
ONCE = {"uniqueItems": True}  # what `unique` checks, in the document's words
Names = Annotated[list[Name], Field(max_length=64, json_schema_extra=ONCE), AfterValidator(unique)]
Seconds = Annotated[FiniteFloat, Field(gt=0, le=TEN_YEARS_S)]
SecondsOrZero = Annotated[FiniteFloat, Field(ge=0, le=TEN_YEARS_S)]


class ResultRule(Strict):
    """Files that a complete run leaves in its results folder."""

    path: Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=512), AfterValidator(_glob)]
    min_count: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] = 1
    verify: Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=4096)] | None = None


class CheckpointsSpec(Strict):
    """Which checkpoints stay in the store. The newest two verified ones always do."""

    keep_last: Annotated[int, Field(ge=2, le=20), WHOLE] = 3
    keep_best: Annotated[int, Field(ge=0, le=20), WHOLE] = 1
    keep_every: Annotated[int, Field(ge=1, le=1_000_000_000), WHOLE] | None = None


class Retry(Strict):
    """Which failures of the command are worth a repeat of the identical spec."""

    exit_codes: Annotated[list[Annotated[int, Field(ge=1, le=255), WHOLE]], Field(max_length=64)] = []
    log_patterns: Annotated[
        list[Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=256), AfterValidator(_pattern)]],
        Field(max_length=16),
    ] = []


class LimitsSpec(Strict):
    """What ends the run. `max_runtime_s` counts training in this generation, `deadline` is wall time."""

    max_runtime_s: Seconds | None = None
    deadline: Annotated[AwareDatetime, AfterValidator(_utc)] | None = None
    max_attempts: Annotated[int, Field(ge=1, le=10_000), WHOLE] | None = None
    max_user_failures: Annotated[int, Field(ge=1, le=10_000), WHOLE] | None = None
    wait_for_capacity_s: SecondsOrZero | None = None
    budget_usd: Annotated[FiniteFloat, Field(gt=0, le=1e9)] | None = None
    machine_max_s: Seconds | None = None


class EscalateSpec(Strict):
    """When spot machines are lost too often, or the deadline is near: what is asked for then. Off by default.
    `after` preemptions within `within_s` (6 h) change over `to` on-demand machines, the next shape of `shapes`, or the
    next of `providers`."""

    after: Annotated[int, Field(ge=1, le=32), WHOLE] | None = None
    within_s: Seconds | None = None
    to: Literal["on_demand", "next_shape", "next_provider"] | None = None
    on_demand_before_deadline_s: Seconds | None = None
    next_provider_before_deadline_s: Seconds | None = None


class StallSpec(Strict):
    """How long each silence is legal."""

    polls: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None = None
    boot_timeout_s: Seconds | None = None
    first_progress_s: Seconds | None = None
    silence_s: Seconds | None = None
    restore_s: Seconds | None = None
    checkpoint_s: Seconds | None = None
    evaluation_s: Seconds | None = None
    finishing_s: Seconds | None = None


class RunSpec(Strict):
    """A training to keep alive. Only `command` is required."""

    command: Annotated[
        Annotated[list[Text], Field(min_length=1, max_length=1024), Tag(WORDS)]
        | Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=COMMAND_MAX_BYTES), Tag(SHELL)],
        Discriminator(lambda command: WORDS if isinstance(command, list) else SHELL),
    ]
    workdir: Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=4096)] | None = None
    env: Annotated[dict[EnvName, EnvValue], Field(max_length=256)] = {}
    image: Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=512)] | None = None
    image_follow_tag: bool = False
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
    same_region: Literal["require", "advise"] = "advise"
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=64)] = {}
    results: Annotated[list[ResultRule], Field(max_length=64)] = []
    checkpoints: CheckpointsSpec = CheckpointsSpec()
    require_pull: bool = False
    expect_runtime_s: Seconds | None = None
    expect_checkpoint_gb: Annotated[FiniteFloat, Field(gt=0, le=100_000)] | None = None
    retry: Retry = Retry()
    limits: LimitsSpec = LimitsSpec()
    stall: StallSpec = StallSpec()
    escalate: EscalateSpec = EscalateSpec()
    stop_grace_s: Annotated[FiniteFloat, Field(ge=0, le=86_400)] | None = None
    on_success: Literal["release", "keep", "ask"] = "release"
    on_failure: Literal["release", "keep"] = "release"
    keep_s: Annotated[FiniteFloat, Field(ge=0, le=86_400)] | None = None

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
            raise ValueError(f"env may not set what the agent sets: {', '.join(sorted(RESERVED_ENV))}")
        return self

    def as_spec(self) -> dict[str, Any]:
        """Plain JSON values, fields that equal their default left out: two specs that mean the same are equal."""
        return self.model_dump(mode="json", exclude_defaults=True)
