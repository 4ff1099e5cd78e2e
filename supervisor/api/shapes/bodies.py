"""The bodies of requests: read strictly, and refused with a hint at a misspelling. A null means "not given"."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Discriminator, Field, FiniteFloat, StringConstraints, Tag

from supervisor.api.shapes.parameters import Moment, Plain, RunId
from supervisor.api.shapes.run_spec import (
    COUNTED,
    NAMED,
    ONCE,
    WHOLE,
    After,
    EnvName,
    LabelKey,
    LabelValue,
    LimitsSpec,
    MaxParallel,
    Name,
    Names,
    Priority,
    RunSpec,
    Seconds,
    SecondsOrZero,
    SecretRef,
    SetupText,
    Strict,
    unique,
)
from supervisor.contract import heartbeat
from supervisor.domain.bases import FAMILY
from supervisor.domain.callers import NAME_RULE, Scope
from supervisor.domain.events import KINDS
from supervisor.domain.gates.checks import CHECKS
from supervisor.domain.texts import ONE_LINE, PROSE
from supervisor.ports.notifier import Form
from supervisor.ports.objectstore import MAX_KEY_BYTES
from supervisor.services.access.tokens import SCOPES
from supervisor.services.runs.money.plans import PATTERN as PLAN_ID

MERGE_PATCH = "application/merge-patch+json"
OBJECT_MAX_BYTES = 5 << 40  # of Cloud Storage
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=10**9), WHOLE]


def _is_check(name: str) -> str:
    if name not in CHECKS:
        near = get_close_matches(name, CHECKS, n=1)
        hint = f"did you mean {near[0]}?" if near else "docs/providers/gates.md lists them"
        raise ValueError(f"is no check; {hint}")
    return name


class WaiveBody(Strict):
    """`check`: the id of a check of G0 to G4. `reason`: stands in the history of the run."""

    check: Annotated[str, AfterValidator(_is_check), Field(json_schema_extra={"enum": list(CHECKS)})]
    reason: Annotated[str, StringConstraints(pattern=PROSE, max_length=500)]


class SmokeBody(Strict):
    """A smoke that ended well on the user's computer, before the submit. `code`: hash of the bundle that it used.
    `exit_codes`: of its starts. `first_step`: the last step of the first start; `second_from`: the first step of the
    second one; null: it reported none."""

    at: Annotated[Moment, Field(strict=False)]
    computer: Annotated[str, StringConstraints(pattern=ONE_LINE, max_length=128)]
    command: Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=4096)]
    code: Sha256 | None = None
    exit_codes: Annotated[list[Annotated[int, Field(ge=0, le=0), WHOLE]], Field(min_length=1, max_length=8)]
    first_step: Count | None = None
    second_from: Count | None = None


class SubmitBody(Strict):
    """`run_id`: chosen by you, or generated. `replace_spec`: resume an ended run with this other spec. `rerun`: start a
    completed run over from nothing. `ignore_old`: begin from nothing where a run of the older runner has this name in
    the same store. `waive`: checks in spite of which the run may go on; added to those of an existing run. `smoke`: of
    this spec; shown in gate G2. `plan_id`: of the plan of this very request (`validate_only`); a token that is bound to
    plans needs it."""

    run_id: RunId | None = None
    spec: RunSpec
    replace_spec: bool = False
    rerun: bool = False
    ignore_old: bool = False
    smoke: SmokeBody | None = None
    waive: Annotated[list[WaiveBody], Field(max_length=64)] = []
    plan_id: Annotated[str, StringConstraints(pattern=PLAN_ID), Field(max_length=300)] | None = None


class CreateBaseBody(Strict):
    """`name`: of the family; the base gets its next version. `script`: what prepares a machine; or `from_run`: a run
    whose setup (and base, and code) is repeated. The others are for the machine that is prepared."""

    name: Annotated[str, StringConstraints(pattern=f"^{FAMILY}$")]
    script: SetupText | None = None
    from_run: RunId | None = None
    image: Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=512)] | None = None
    provider: Name | None = None
    zones: Names = []
    shapes: Names = []
    secrets: Annotated[dict[EnvName, SecretRef], Field(max_length=64)] = {}
    setup_s: Seconds | None = None


_FORM = Discriminator(lambda zones: NAMED if isinstance(zones, list) else COUNTED)
ZoneChoice = Annotated[Annotated[int, Field(ge=1, le=100), WHOLE, Tag(COUNTED)] | Annotated[Names, Tag(NAMED)], _FORM]


class WhatIfBody(Strict):
    """`spec`: as a submit takes it. The other fields say what is tried of it, in all combinations: [] = as in the spec.
    `zones`: names, or how many of the zones that fit, in the order of the tries. `deadlines`: null = none. `shapes`: in
    order of preference."""

    spec: RunSpec
    zones: Annotated[list[ZoneChoice], Field(max_length=12)] = []
    deadlines: Annotated[list[Annotated[Moment, Field(strict=False)] | None], Field(max_length=12)] = []
    shapes: Annotated[list[Names], Field(max_length=12)] = []
    markets: Annotated[list[Literal["spot", "on_demand", "both"]], Field(max_length=3)] = []


class ResumeBody(Strict):
    spec: RunSpec | None = None
    replace_spec: bool = False
    rerun: bool = False


class ChangeBody(Strict):
    """A JSON merge patch (RFC 7396). A field that is left out stays as it is; null removes a label, and resets a limit
    or another field to its default. `zones`: of later attempts, in this order; [] = all. `max_parallel`: of the run's
    group, whose smallest value counts. `after`: [] = the run waits for no other run. `priority` counts from the next
    tick on."""

    labels: Annotated[dict[LabelKey, LabelValue | None], Field(max_length=128)] | None = None
    limits: LimitsSpec | None = None
    zones: Names | None = None
    max_parallel: MaxParallel | None = None
    after: After | None = None
    priority: Priority | None = None
    min_run_s: SecondsOrZero | None = None

    def as_patch(self) -> dict[str, Any]:
        """The fields of the request, as plain JSON values."""
        return self.model_dump(mode="json", exclude_unset=True)


class ApproveBody(Strict):
    """What the person has seen. `accept_loss`: the reason why unverified results are given up. `verb`: how the machine
    is given back, one of `GET /v1/runs/{run_id}/teardown`; without it what usually stops its bill. `meter_stopped`: the
    person has seen that its host is billed no more."""

    machine_id: Plain
    results_sha256: Sha256 | None = None
    accept_loss: Annotated[str, StringConstraints(pattern=PROSE, max_length=500)] | None = None
    verb: Annotated[str, StringConstraints(pattern=ONE_LINE, max_length=100)] | None = None
    meter_stopped: bool = False


class WriteOffBody(Strict):
    """What the person has seen. `machine_id` null: the run has none. `reason`: for the history of the run."""

    machine_id: Plain | None = None
    reason: Annotated[str, StringConstraints(pattern=PROSE, max_length=500)]


class PulledBody(Strict):
    """`results_sha256`: of the names, sizes and checksums that were pulled. `files`: how many."""

    results_sha256: Sha256
    files: Count


Word = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=8192)]


class CommandBody(Strict):
    """`command`: a list of words; no shell reads it. `folder`: where it runs, relative to where the run's command does;
    "" = there."""

    command: Annotated[list[Word], Field(min_length=1, max_length=256)]
    folder: Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=1024)] = ""
    timeout_s: Annotated[FiniteFloat, Field(gt=0, le=600)] = 60.0


class CollectCodeBody(Strict):
    """`paths`: files and folders of the code; none = all."""

    paths: Annotated[list[Annotated[str, StringConstraints(min_length=1, max_length=1024)]], Field(max_length=100)] = []


class PurgeBody(Strict):
    """`confirm`: the run's id once more, typed by a person."""

    confirm: Annotated[str, StringConstraints(max_length=255)]


class ManyBody(Strict):
    """`dry_run`: respond with what would be done, and do nothing. `expect`: how many matching runs you have seen; 409
    where their number differs."""

    dry_run: bool = False
    expect: Count | None = None


class ImportBody(Strict):
    """`run_id`: the new name; without it the old one, or one made of it. `spec`: instead of the old run's own.
    `dry_run`: respond with what would be done, and do nothing."""

    url: Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=255)] = Field(
        description="gs://BUCKET/runs/RUN_ID, or file:///FOLDER/runs/RUN_ID for a copy on the service's computer"
    )
    run_id: RunId | None = None
    spec: RunSpec | None = None
    dry_run: bool = False


class ClaimBody(Strict):
    """`claimant`: 32 random hexadecimal characters, which the notebook has chosen before its first request. `session`:
    what the platform calls this session, such as its `platform` and its `id`."""

    ticket: Annotated[str, StringConstraints(max_length=256)]
    claimant: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    session: Annotated[
        dict[
            Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")],
            Annotated[str, StringConstraints(max_length=200)],
        ],
        Field(max_length=20),
    ] = {}


class UploadBody(Strict):
    """`size`: of the whole object, in bytes. `if_generation`: only if the object has this one; `0`: only if there is no
    object of this key; null: in any case."""

    key: Annotated[str, StringConstraints(min_length=1, max_length=MAX_KEY_BYTES)]
    size: Annotated[int, Field(ge=0, le=OBJECT_MAX_BYTES), WHOLE]
    if_generation: Annotated[str, StringConstraints(pattern=r"^[!-~]{1,100}$")] | None = None
    metadata: dict[str, str] = {}


class HeartbeatBody(BaseModel):
    """One heartbeat. Unknown fields are ignored."""

    # For the document alone: contract/heartbeat.py reads the pushed beats.
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
    save_s: float | None = Field(
        None, ge=0, description="the longest time of a checkpoint of this attempt with its upload"
    )
    recent: str = Field(
        "", description="points of its first minutes, as text; ignored where it cannot be read or is too long"
    )
    signs: str = Field(
        "", description="what may decide an end, as text: hits in the log, errors of cards; ignored like `recent`"
    )


# --- the supervisor and its machines ----------------------------------------------------------------------------------


class CollectBody(Strict):
    """`dry_run`: respond with what would be released, and release nothing. It has no default."""

    dry_run: bool


class GpuBackBody(Strict):
    """`gpu`: the UUID, as in GET /v1/gpus."""

    gpu: Annotated[str, Field(min_length=1, max_length=100)]


class CloseIncidentBody(Strict):
    """`reason`: why, for the history."""

    reason: Annotated[str, StringConstraints(pattern=PROSE, max_length=500)] | None = None


class RefreshBody(Strict):
    """It has no fields."""


class StrikeBody(Strict):
    run_id: RunId


class PreemptBody(StrikeBody):
    """`notice_s`: where machines are local; elsewhere the platform gives its own notice. `confirm`: a person agrees to
    lose a rented machine."""

    notice_s: Annotated[FiniteFloat, Field(ge=0, le=3600)] = 30.0
    confirm: bool = False


class StockoutBody(Strict):
    """`for_s` null: until the same request with 0."""

    zones: Names
    for_s: SecondsOrZero | None = None


# --- tokens and webhooks ----------------------------------------------------------------------------------------------

PersonName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$"),
    Field(description=f"Stands in the history: {NAME_RULE}."),
]


Dollars = Annotated[FiniteFloat, Field(ge=0.01, le=1e9)]


class CreateTokenBody(Strict):
    """`owner`: of the runs that it submits and sees; yours when left out. `expires_in_s` null: never.
    `max_active_runs`, `max_usd_per_day`, `max_usd_per_run` null: no limit. `max_usd_per_day`: what its runs may spend
    in any 24 hours. `max_usd_per_run`: what one of its runs may spend, with all its generations. `plans_only`: it
    starts runs only with a plan that it was shown (`plan_id`)."""

    name: PersonName
    owner: PersonName | None = None
    scopes: Annotated[
        list[Annotated[Scope, Field(strict=False)]],
        Field(min_length=1, max_length=8, description=SCOPES, json_schema_extra=ONCE),
        AfterValidator(unique),
    ] = [Scope.READ, Scope.WRITE]
    expires_in_s: Seconds | None = None
    max_active_runs: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None = None
    max_usd_per_day: Dollars | None = None
    max_usd_per_run: Dollars | None = None
    plans_only: bool = False


def _is_announced(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError("is not announced; docs/webhooks.md lists the kinds")
    return kind


Url = Annotated[
    str,
    StringConstraints(pattern=r"^https?://[^\x00-\x20]+$", max_length=2000),
    Field(description="Where messages go: https on the open internet, or a host that the settings allow."),
]
Kinds = Annotated[
    list[Annotated[str, AfterValidator(_is_announced), Field(json_schema_extra={"enum": sorted(KINDS)})]],
    Field(max_length=64, description="Kinds of events; empty: the default kinds of its form.", json_schema_extra=ONCE),
    AfterValidator(unique),
]
Note = Annotated[
    str,
    StringConstraints(pattern=ONE_LINE, max_length=200),
    Field(description="For people; appears in messages about the webhook itself."),
]


class AddWebhookBody(Strict):
    """`form` null: the one that the host of the address understands. `everything`: events of all owners and of the
    supervisor itself; for administrators."""

    url: Url
    form: Annotated[Form, Field(strict=False)] | None = None
    kinds: Kinds = []
    everything: bool = False
    note: Note = ""


class ChangeWebhookBody(Strict):
    """Null or left out: stays as it is. `enabled` true also clears its failures and sends the messages that waited."""

    url: Url | None = None
    kinds: Kinds | None = None
    everything: bool | None = None
    note: Note | None = None
    enabled: bool | None = None


class ReplayBody(Strict):
    """`since`: failed deliveries since this time are sent again; null: of the last week."""

    since: Annotated[Moment, Field(strict=False)] | None = None
