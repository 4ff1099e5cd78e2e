"""Query parameters: text that is converted, checked strictly, and never ignored.

A misspelled word of a list is refused with the nearest known word. A time is RFC 3339 with an offset and nothing else:
the framework would read a bare number as seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from supervisor.contract.heartbeat import MAX_NAME
from supervisor.domain.callers import Caller
from supervisor.domain.errors import InvalidRequest
from supervisor.domain.events import EventKind
from supervisor.domain.status import Status
from supervisor.ports.objectstore import MAX_KEY_BYTES, MAX_PAGE
from supervisor.ports.store import RunFilter
from supervisor.services.logs.logs import Part
from supervisor.services.reading.comparing import CURVES_MAX, RUNS_MAX, Wish
from supervisor.services.reading.curves import POINTS_LEAST

NAMED_MAX = 200  # runs in one filter: an address that every proxy accepts holds no more
RUN_ID = r"^[a-z][a-z0-9-]{0,61}[a-z0-9]$"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
# Of a log: name -> the parameters that exclude it.
EXCLUDED = {"line": ("offset", "tail"), "tail": ("offset", "line", "lines", "q"), "limit": ("q",), "lines": ("q",)}
# Of a log: name -> the parameter that it needs.
NEEDED = {"before": "tail", "ignore_case": "q"}


def _rfc3339(value: object) -> object:
    if not isinstance(value, str) or _TIME.fullmatch(value) is None:
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z")
    return value


def _one_of(words: type[StrEnum], what: str) -> Callable[[str], str]:
    names = [str(word) for word in words]

    def checked(word: str) -> str:
        if word not in names:
            near = get_close_matches(word, names, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
            raise ValueError(f"is not {what}; {hint}")
        return word

    return checked


Moment = Annotated[AwareDatetime, BeforeValidator(_rfc3339)]
RunId = Annotated[str, StringConstraints(pattern=RUN_ID)]
Plain = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", max_length=255)]  # searched for, never stored
Race = Annotated[
    Literal[1, 2],
    Field(
        description="`2`: two zones are asked for a spot machine at once, where that adds at most 1 % to its bill. The "
        "first one is used, the other one is deleted at once; the seconds in which both exist are billed"
    ),
]
StatusWord = Annotated[
    str, AfterValidator(_one_of(Status, "a status")), Field(json_schema_extra={"enum": [str(word) for word in Status]})
]
KindWord = Annotated[
    str,
    AfterValidator(_one_of(EventKind, "a kind of event")),
    Field(json_schema_extra={"enum": [str(word) for word in EventKind]}),
]
PageSize = Annotated[int, Field(ge=0, description="0 = 50; above 1000 counts as 1000")]
Cursor = Annotated[str, StringConstraints(max_length=255)]
AttemptNumber = Annotated[int, Field(ge=1, le=10**9)]
Byte = Annotated[int, Field(ge=0, le=2**62)]


def epoch(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


class NoParameters(BaseModel):
    """The base of all: an unknown parameter is refused."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    @property
    def given(self) -> frozenset[str]:
        """Names of the parameters that differ from their default: generated clients send defaults, too."""
        fields = type(self).model_fields
        return frozenset(name for name in self.model_fields_set if getattr(self, name) != fields[name].default)


class ListParameters(NoParameters):
    page_size: PageSize = 0
    cursor: Cursor | None = None
    status: Annotated[list[StatusWord], Field(max_length=16)] = []
    label: Annotated[
        list[Annotated[str, StringConstraints(pattern=r"^[^=\x00]{1,63}=[^\x00]{0,255}$")]], Field(max_length=16)
    ] = []
    zone: Plain | None = None
    group: RunId | None = None
    owner: Plain | None = None
    created_after: Moment | None = None
    q: Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=63)] | None = None
    sort: Annotated[
        Literal["created", "-created"], Field(description="by the time of submit; `-`: the newest first")
    ] = "-created"
    run_id: Annotated[list[RunId], Field(max_length=NAMED_MAX, description="these runs only")] = []

    def run_filter(self, caller: Caller) -> RunFilter:
        """Of the runs that the caller may see."""
        return RunFilter(
            statuses=tuple(self.status),
            labels=tuple((key, value) for key, _, value in (label.partition("=") for label in self.label)),
            zone=self.zone,
            group=self.group,
            owner=caller.visible_owner(self.owner),
            created_after=epoch(self.created_after),
            text=self.q or None,
            run_ids=tuple(self.run_id),
            oldest_first=self.sort == "created",
        )


class RunListParameters(ListParameters):
    include: Annotated[
        list[Literal["sparkline"]],
        Field(max_length=4, description="`sparkline`: each run with its steps over time, 24 points at most"),
    ] = []
    incidents: Annotated[bool, Field(description="also the newest three open incidents, whatever the filter")] = False


class ManyParameters(ListParameters):
    """Which runs: the filters of the list. `page_size`: how many of them one request reads; 0 = 1000."""

    all: Annotated[bool, Field(description="every run, instead of a filter")] = False

    @model_validator(mode="after")
    def _is_filter_or_all(self) -> Self:
        filters = self.model_fields_set - {"all", "cursor", "page_size", "sort"}
        is_filter = any(getattr(self, name) not in (None, [], "") for name in filters)
        if is_filter and self.all:
            raise ValueError("all=true and a filter contradict each other; leave one of them out")
        if not is_filter and not self.all:
            raise ValueError("a filter is needed, such as label=KEY=VALUE or status=WORD; all=true means every run")
        return self


class SubmitParameters(NoParameters):
    """`validate_only`: respond with the plan, and do nothing of it. `code_follows`, in a plan: the code bundle is
    stored with the submit itself, so it need not exist now."""

    validate_only: bool = False
    code_follows: bool = False


class EventParameters(NoParameters):
    after: Byte = 0
    before: Annotated[int | None, Field(ge=1, le=2**62, description="with an id below this one")] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    newest_first: bool = False
    since: Moment | None = None
    actor: Annotated[Plain | None, Field(description="of this actor; `supervisor`: without a request")] = None
    kind: Annotated[list[KindWord], Field(max_length=16, description="of a stream: these kinds only")] = []


class AllEventParameters(EventParameters):
    owner: Annotated[Plain | None, Field(description="of the runs of one owner")] = None


class RunEventParameters(EventParameters):
    cloud: Annotated[bool, Field(description="with what the cloud itself recorded of the run's machines")] = False


class BeatParameters(NoParameters):
    renew: Annotated[
        Literal["1"] | None, Field(alias="pass", description="`1`: the response has a new pass for the run's objects")
    ] = None


class ObjectParameters(NoParameters):
    prefix: Annotated[str, Field(max_length=MAX_KEY_BYTES, description="in the run's folder: `runs/RUN_ID/…`")] = ""
    after: Annotated[str, Field(max_length=MAX_KEY_BYTES, description="only keys behind this one")] = ""
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = MAX_PAGE


class SeriesParameters(NoParameters):
    """`points`: at most so many."""

    since: Moment | None = None
    until: Moment | None = None
    points: Annotated[int, Field(ge=1, description="above 2000 counts as 2000")] = 500


MetricNames = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)]],
    Field(max_length=64, description="a metric; may be given several times"),
]
MetricPoints = Annotated[
    int, Field(ge=POINTS_LEAST, description="at most so many points of each metric; more than 2000 counts as 2000")
]


class MetricParameters(NoParameters):
    metric: MetricNames = []
    points: MetricPoints = 2000
    format: Annotated[
        Literal["json", "csv"], Field(description="`csv`: one line for each point, as `Accept: text/csv` does")
    ] = "json"


class CompletionParameters(NoParameters):
    since: Annotated[Moment | None, Field(description="runs that ended since then; without it of the last 30 days")] = (
        None
    )
    group: RunId | None = None
    owner: Plain | None = None

    def run_filter(self, caller: Caller) -> RunFilter:
        """Of the runs that the caller may see."""
        return RunFilter(group=self.group, owner=caller.visible_owner(self.owner))


class LedgerParameters(NoParameters):
    by: Annotated[
        Literal["run", "group", "owner", "month"], Field(description="one row for each; months are those of UTC")
    ] = "run"
    since: Annotated[Moment | None, Field(description="the time since then; without it all of it")] = None
    group: RunId | None = None
    owner: Plain | None = None
    run_id: Annotated[list[RunId], Field(max_length=NAMED_MAX, description="these runs only")] = []
    format: Annotated[
        Literal["json", "csv"], Field(description="`csv`: one line for each row, as `Accept: text/csv` does")
    ] = "json"

    def run_filter(self, caller: Caller) -> RunFilter:
        """Of the runs that the caller may see."""
        return RunFilter(group=self.group, owner=caller.visible_owner(self.owner), run_ids=tuple(self.run_id))


class BilledParameters(NoParameters):
    since: Annotated[Moment | None, Field(description="the days since then; the bill of the last 31 days is read")] = (
        None
    )
    again: Annotated[bool, Field(description="read the bill now, also if the last read is younger than a day")] = False
    format: Annotated[
        Literal["json", "csv"], Field(description="`csv`: one line for each row, as `Accept: text/csv` does")
    ] = "json"


class CompareParameters(NoParameters):
    """The runs that are named, or those of a group; without `metric` only the curve of the metric `by`."""

    run_id: Annotated[list[RunId], Field(max_length=RUNS_MAX, description="may be given several times, up to 20")] = []
    group: Annotated[RunId | None, Field(description="the first 20 runs of this group, instead of names")] = None
    metric: Annotated[MetricNames, Field(max_length=CURVES_MAX, description="with the points of these metrics")] = []
    points: MetricPoints = 500
    by: Annotated[
        Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)] | None,
        Field(description="the metric by which a run is the best; without it one that most runs report, a loss first"),
    ] = None
    better: Annotated[
        Literal["min", "max"] | None, Field(description="which values are better; without it by the metric's name")
    ] = None

    @model_validator(mode="after")
    def _names_or_group(self) -> Self:
        if bool(self.run_id) == (self.group is not None):
            raise ValueError("give run_id, once or several times, or a group")
        return self

    def run_filter(self, caller: Caller) -> RunFilter:
        """Of the runs that the caller may see."""
        owner = caller.visible_owner(None)
        return RunFilter(group=self.group, run_ids=tuple(self.run_id), owner=owner, oldest_first=True)

    @property
    def wish(self) -> Wish:
        return Wish(tuple(self.metric), self.points, self.by, self.better)


class DiagnosisParameters(NoParameters):
    attempt: Annotated[AttemptNumber | None, Field(description="its number; the newest if none is named")] = None


class ConsoleParameters(NoParameters):
    """`after`: from this offset on; negative: so many of the last bytes. `source=cloud_logging`: what the cloud's log
    service kept, `lines` at most, since the machine was requested or since `since`."""

    attempt: AttemptNumber | None = None
    after: Annotated[int, Field(ge=-1_048_576, le=2**62)] | None = None
    limit: Annotated[int, Field(ge=1, le=1_048_576, description="bytes")] = 65_536
    source: Literal["machine", "cloud_logging"] = "machine"
    since: Moment | None = None
    lines: Annotated[int, Field(ge=1, le=10_000)] = 1000


class LogParameters(NoParameters):
    attempt: AttemptNumber | None = None
    offset: Byte = 0
    limit: Annotated[int, Field(ge=1, le=1_048_576, description="bytes of text at most")] = 262_144
    line: Annotated[
        Annotated[int, Field(ge=1, le=2**62)] | None, Field(description="From the start of this line; the first is 1.")
    ] = None
    tail: Annotated[Annotated[int, Field(ge=1, le=10_000)] | None, Field(description="The last so many lines.")] = None
    before: Annotated[Byte | None, Field(description="With tail: the last lines before this byte.")] = None
    lines: Annotated[int, Field(ge=1, le=10_000)] | None = None
    q: Annotated[
        Annotated[str, StringConstraints(pattern=r"^[^\x00-\x08\x0a-\x1f]+$", max_length=200)] | None,
        Field(description="Lines that contain this text, from offset or line on, instead of the text."),
    ] = None
    ignore_case: Annotated[bool, Field(description="With q: upper and lower case are the same.")] = False

    @property
    def part(self) -> Part:
        """Raises InvalidRequest."""
        given = self.given
        errors = [
            (f"?{name}", f"has no meaning beside {other}")
            for name, others in EXCLUDED.items()
            for other in others
            if {name, other} <= given
        ]
        errors += [
            (f"?{name}", f"has no meaning without {needed}")
            for name, needed in NEEDED.items()
            if name in given and needed not in given
        ]
        if errors:
            reasons = "; ".join(f"{pointer} {reason}" for pointer, reason in errors[:3])
            raise InvalidRequest(f"The query is refused: {reasons}.", {"count": len(errors)}, errors)
        return Part(self.offset, self.limit, self.line, self.tail, self.before, self.lines)


class FileParameters(NoParameters):
    kind: Annotated[
        list[Literal["results", "checkpoints", "logs", "evidence", "code"]],
        Field(max_length=16, description="may be given several times; none = all"),
    ] = []
    page_size: Annotated[int, Field(ge=0, description="0 = 200; above 1000 counts as 1000")] = 0
    cursor: Annotated[str, StringConstraints(max_length=1024)] | None = None


class SyncParameters(NoParameters):
    git: Annotated[
        str, StringConstraints(pattern=r"^[0-9a-f]{0,64}(\+changes)?$"), Field(description="the commit of the folder")
    ] = ""


class DeliveryParameters(NoParameters):
    page_size: PageSize = 0
    cursor: Cursor | None = None
    failed: Annotated[bool, Field(description="Only deliveries that were given up.")] = False
    state: Annotated[
        Literal["pending", "delivered", "given_up"] | None, Field(description="Only deliveries in this state.")
    ] = None


class MachineParameters(NoParameters):
    all: Annotated[bool, Field(description="also machines that are not this supervisor's")] = False


class IncidentParameters(NoParameters):
    all: Annotated[bool, Field(description="also the closed ones")] = False
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class DoctorParameters(NoParameters):
    alert_test: Annotated[bool, Field(description="also send one marked test message to the alert address")] = False


class ReadyParameters(NoParameters):
    verbose: str | None = None
