"""The bodies and query parameters that are accepted: strictly, and with a hint at a misspelling.

Words out of a list: a misspelt one is answered with its nearest. Times in a query are RFC 3339 with an offset, and
nothing else: the framework would take a bare number for seconds. Of a log, ways to say where it begins exclude each
other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
)

from supervisor.api.shapes.run_spec import Names, RunSpec, SecondsOrZero, Strict
from supervisor.domain.callers import Caller
from supervisor.domain.errors import InvalidRequest
from supervisor.domain.events import EventKind
from supervisor.domain.status import Status
from supervisor.domain.texts import PROSE
from supervisor.ports.store import RunFilter
from supervisor.services.logs.logs import Part

_FORM = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _as_written(value: object) -> object:
    if not isinstance(value, str) or _FORM.fullmatch(value) is None:
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_as_written)]


def _one_of(words: type[StrEnum], what: str) -> Callable[[str], str]:
    known = [str(word) for word in words]

    def checked(word: str) -> str:
        if word not in known:
            near = get_close_matches(word, known, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise ValueError(f"is not {what}; {hint}")
        return word

    return checked


StatusWord = Annotated[
    str,
    AfterValidator(_one_of(Status, "a status")),
    Field(json_schema_extra={"enum": [str(status) for status in Status]}),
]
KindWord = Annotated[
    str,
    AfterValidator(_one_of(EventKind, "a kind of event")),
    Field(json_schema_extra={"enum": [str(kind) for kind in EventKind]}),
]


NAMED_MAX = 200  # runs in one filter: an address that every proxy lets pass holds no more
RUN_ID = r"^[a-z][a-z0-9-]{0,61}[a-z0-9]$"

RunId = Annotated[str, StringConstraints(pattern=RUN_ID)]
Plain = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", max_length=255)]  # looked for, never kept


class SubmitBody(Strict):
    """`run_id`: chosen by you, or generated. `replace_spec`: resume an ended run with this other spec. `rerun`: start a
    completed run over from nothing. `ignore_old`: begin from nothing where a run of the older runner has this name in
    the same store."""

    run_id: RunId | None = None
    spec: RunSpec
    replace_spec: bool = False
    rerun: bool = False
    ignore_old: bool = False


class ResumeBody(Strict):
    spec: RunSpec | None = None
    replace_spec: bool = False
    rerun: bool = False


class ApproveBody(Strict):
    """What the person has seen. `accept_loss`: the reason why unverified results are given up."""

    machine_id: Plain
    results_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    accept_loss: Annotated[str, StringConstraints(pattern=PROSE, max_length=500)] | None = None


class PurgeBody(Strict):
    """`confirm`: the run's id once more, typed by a person."""

    confirm: Annotated[str, StringConstraints(max_length=255)]


class StrikeBody(Strict):
    run_id: RunId


class PreemptBody(StrikeBody):
    """`notice_s`: where machines are local; elsewhere the platform's own notice is given. `confirm`: a person has said
    that a rented machine may be taken away."""

    notice_s: Annotated[FiniteFloat, Field(ge=0, le=3600)] = 30.0
    confirm: bool = False


class StockoutBody(Strict):
    """`for_s` null: until called again with 0."""

    zones: Names
    for_s: SecondsOrZero | None = None


class _Parameters(BaseModel):
    """Query parameters are text: converted, but nothing unknown."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    @property
    def given(self) -> frozenset[str]:
        """Names of the parameters that say something. One at its default does not: generated clients send those too."""
        fields = type(self).model_fields
        return frozenset(name for name in self.model_fields_set if getattr(self, name) != fields[name].default)


class NoParameters(_Parameters):
    pass


class ListParameters(_Parameters):
    page_size: Annotated[int, Field(ge=0, description="0 = 50; above 1000 is taken as 1000")] = 0
    cursor: Annotated[str, StringConstraints(max_length=255)] | None = None
    status: Annotated[list[StatusWord], Field(max_length=16)] = []
    label: Annotated[
        list[Annotated[str, StringConstraints(pattern=r"^[^=\x00]{1,63}=[^\x00]{0,255}$")]], Field(max_length=16)
    ] = []
    zone: Plain | None = None
    owner: Plain | None = None
    created_after: Moment | None = None
    q: Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=63)] | None = None
    sort: Annotated[
        Literal["created", "-created"], Field(description="by the time of submit; `-`: the newest first")
    ] = "-created"
    run_id: Annotated[list[RunId], Field(max_length=NAMED_MAX, description="these runs only")] = []


class RunListParameters(ListParameters):
    include: Annotated[
        list[Literal["sparkline"]],
        Field(max_length=4, description="`sparkline`: each run with its steps over time, 24 points at most"),
    ] = []


def run_filter(query: ListParameters, caller: Caller) -> RunFilter:
    """Of the runs that the caller may see."""
    return RunFilter(
        statuses=tuple(query.status),
        labels=tuple((key, value) for key, _, value in (label.partition("=") for label in query.label)),
        zone=query.zone,
        owner=caller.visible_owner(query.owner),
        created_after=epoch(query.created_after),
        text=query.q or None,
        run_ids=tuple(query.run_id),
        oldest_first=query.sort == "created",
    )


class EventParameters(_Parameters):
    after: Annotated[int, Field(ge=0, le=2**62)] = 0
    before: Annotated[int | None, Field(ge=1, le=2**62, description="with an id below this one")] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    newest_first: bool = False
    since: Moment | None = None
    actor: Annotated[Plain | None, Field(description="who asked for it; `supervisor`: by itself")] = None
    kind: Annotated[list[KindWord], Field(max_length=16, description="of a stream: these kinds only")] = []


class AllEventParameters(EventParameters):
    owner: Annotated[Plain | None, Field(description="of the runs of one owner")] = None


class RunEventParameters(EventParameters):
    cloud: Annotated[bool, Field(description="with what the cloud itself recorded of the run's machines")] = False


class ConsoleParameters(_Parameters):
    """`after`: from this offset on; negative: so many of the last bytes. `source=cloud_logging`: what the cloud's log
    service kept, `lines` at most, since the machine was asked for or since `since`."""

    attempt: Annotated[int, Field(ge=1, le=10**9)] | None = None
    after: Annotated[int, Field(ge=-1_048_576, le=2**62)] | None = None
    limit: Annotated[int, Field(ge=1, le=1_048_576, description="bytes")] = 65_536
    source: Literal["machine", "cloud_logging"] = "machine"
    since: Moment | None = None
    lines: Annotated[int, Field(ge=1, le=10_000)] = 1000


class DoctorParameters(_Parameters):
    alert_test: Annotated[bool, Field(description="also send one marked test message to the alert address")] = False


class ReadyParameters(_Parameters):
    verbose: str | None = None


def epoch(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


# name -> parameters beside which it has no meaning
APART = {"line": ("offset", "tail"), "tail": ("offset", "line", "lines", "q"), "limit": ("q",), "lines": ("q",)}
# name -> the parameter without which it has no meaning
NEEDS = {"before": "tail", "ignore_case": "q"}
BYTE = Field(ge=0, le=2**62)


class LogParameters(NoParameters):
    attempt: Annotated[int, Field(ge=1, le=10**9)] | None = None
    offset: Annotated[int, BYTE] = 0
    limit: Annotated[int, Field(ge=1, le=1_048_576, description="bytes of text at most")] = 262_144
    line: Annotated[
        Annotated[int, Field(ge=1, le=2**62)] | None,
        Field(description="From the beginning of this line on; the first is 1."),
    ] = None
    tail: Annotated[Annotated[int, Field(ge=1, le=10_000)] | None, Field(description="The last so many lines.")] = None
    before: Annotated[Annotated[int, BYTE] | None, Field(description="With tail: the last lines before this byte.")] = (
        None
    )
    lines: Annotated[int, Field(ge=1, le=10_000)] | None = None
    q: Annotated[
        Annotated[str, StringConstraints(pattern=r"^[^\x00-\x08\x0a-\x1f]+$", max_length=200)] | None,
        Field(description="Lines in which this text stands, from offset or line on, instead of text."),
    ] = None
    ignore_case: Annotated[bool, Field(description="With q: upper and lower case are the same.")] = False

    @property
    def part(self) -> Part:
        """Raises InvalidRequest."""
        given = self.given
        errors = [
            (f"?{name}", f"has no meaning beside {other}")
            for name, others in APART.items()
            for other in others
            if {name, other} <= given
        ]
        errors += [
            (f"?{name}", f"has no meaning without {needed}")
            for name, needed in NEEDS.items()
            if name in given and needed not in given
        ]
        if errors:
            told = "; ".join(f"{pointer} {reason}" for pointer, reason in errors[:3])
            raise InvalidRequest(f"The query is refused: {told}.", {"count": len(errors)}, errors)
        return Part(self.offset, self.limit, self.line, self.tail, self.before, self.lines)


class SubmitParameters(NoParameters):
    """`validate_only`: tell the plan, and do nothing of it. `code_follows`, in a plan: the code bundle is stored with
    the submit itself, so it need not be there now."""

    validate_only: bool = False
    code_follows: bool = False
