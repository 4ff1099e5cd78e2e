"""The shapes of the answers about the supervisor itself: what it is, how it is, and disasters on request."""

from __future__ import annotations

from pydantic import Field

from supervisor.api.schemas import Answer


class Meta(Answer):
    """`features`: words that keep their meaning; clients must accept those that they do not know. `config_hash`: the
    same for supervisors that are set alike, secrets left out. `limits`: by name, null where there is none.

    `provider`: of a run that names none, with what it offers in the order of preference. `default_image`: of such a
    run, null where each must name its own or none is used. `project`: whose machines these are, null where they are
    those of this computer; its number, null until it is known; and where a person sees the same machines."""

    version: str
    api: str
    features: list[str]
    config_hash: str | None
    limits: dict[str, float | None]
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
