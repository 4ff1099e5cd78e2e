"""The shapes of the answers about the supervisor itself: what it is, how it is, and disasters on request."""

from __future__ import annotations

from pydantic import Field

from supervisor.api.shapes.answers import Answer


class Meta(Answer):
    """`features`: words that keep their meaning; clients must accept those that they do not know. `config_hash`: the
    same for supervisors that are set alike, secrets left out. `limits`: by name, null where there is none. `database`:
    its kind, such as sqlite.

    `provider`: of a run that names none, with what it offers in the order of preference. `default_image`: of such a
    run, null where each must name its own or none is used. `project`: whose machines these are, null where they are
    those of this computer; its number, null until it is known; and where a person sees the same machines."""

    version: str
    api: str
    features: list[str]
    config_hash: str | None
    limits: dict[str, float | None]
    database: str | None
    provider: str
    zones: list[str]
    shapes: list[str]
    default_image: str | None
    project: str | None
    project_number: str | None
    console_url: str | None


class Live(Answer):
    live: bool


class CheckShown(Answer):
    name: str
    ok: bool
    fact: str


class Ready(Answer):
    ready: bool
    checks: list[CheckShown] = []


class LeaseShown(Answer):
    """`held`: by this process."""

    name: str
    held: bool


class LoopShown(Answer):
    """`ticking`: it looks as often as it should, or another replica does. `last_tick_age_s`: since the end of the last
    look, null where there was none or another replica looks; it is late after `late_after_s`. `last_tick_late_s`: how
    late that look began. `ticks`: since this process started."""

    leader: bool
    ticking: bool
    poll_interval_s: float
    late_after_s: float
    ticks: int
    last_tick_age_s: float | None
    last_tick_took_s: float | None
    last_tick_late_s: float
    leases: list[LeaseShown]


class Asker(Answer):
    """`name`: stands in the history of what is done. `token_id`: null where nobody is asked for a token; `expires_at`:
    null where it never does."""

    name: str
    owner: str
    scopes: list[str]
    token_id: str | None
    expires_at: str | None
    max_active_runs: int | None


class FindingShown(Answer):
    group: str
    name: str
    result: str = Field(description="ok, warn or fail")
    fact: str
    cause: str
    fix: str


class DoctorReport(Answer):
    worst: str
    checks: list[FindingShown]
    groups: dict[str, str] = Field(description="group -> title, of the platforms that machines are rented from")


class Disaster(Answer):
    """`notice_s`: of a preemption; null where the platform's own notice is given."""

    done: str
    run_id: str
    machine: str
    zone: str
    notice_s: float | None = None


class Stockout(Answer):
    done: str
    zones: list[str]
    for_s: float | None
