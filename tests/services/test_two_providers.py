"""Facts about a run come from its own provider, even if another provider is first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.errors import InvalidRequest
from supervisor.domain.status import Status
from supervisor.ports.platform import Account
from supervisor.services.doctor.credentials import secrets_line
from supervisor.services.reading.queries import Queries
from supervisor.services.runs.actions import stop
from supervisor.services.runs.altering import alter
from supervisor.services.runs.changing import change
from supervisor.services.runs.resume import ResumeRequest, resume
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.fakes.platform import FakePlatform
from tests.scenarios.two_providers import TwoProviders, two_providers
from tests.scenarios.user_verbs import ACTOR


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[TwoProviders]:
    stage = two_providers(tmp_path)
    yield stage
    stage.close()


def test_secrets_of_each_run_are_checked_where_its_machines_read_them(stage: TwoProviders, tmp_path: Path) -> None:
    stage.far.secrets["env:KEY"] = "a value"
    spec = {"command": ["train"], "secrets": {"API_KEY": "env:KEY"}, "provider": "far"}
    submit(stage.parts, SubmitRequest(spec, run_id="digits"), ACTOR)
    line = secrets_line(stage.parts, tmp_path)
    assert (line.fact, line.result) == ("all secrets of live runs can be read: API_KEY", "ok")
    stage.far.spoilt.add("env:KEY")
    stage.provider.secrets["env:KEY"] = "the other place has it"
    line = secrets_line(stage.parts, tmp_path)
    assert (line.fact[:6], line.cause, line.result) == ("1 of 1", "API_KEY of digits: env:KEY cannot be read", "warn")


def test_a_resume_may_name_another_provider_of_the_cell(stage: TwoProviders) -> None:
    submit(stage.parts, SubmitRequest({"command": ["train"]}, run_id="digits"), ACTOR)
    change(stage.parts, "digits", stop(ACTOR))
    stage.run_for(60.0)
    assert stage.row("digits").status == Status.STOPPED
    spec = {"command": ["train"], "provider": "far"}
    resume(stage.parts, "digits", ResumeRequest(ACTOR, spec, replace_spec=True))
    assert stage.row("digits").provider == "far"
    stage.run_for(120.0)
    assert stage.far.calls["launch"] > 0
    assert stage.row("digits").status == Status.RUNNING


def test_the_account_of_a_run_is_that_of_its_own_platform(stage: TwoProviders) -> None:
    far = FakePlatform()
    far.account_so_far = lambda: Account("far-project")  # type: ignore[method-assign]
    parts = replace(stage.parts, platforms={"local": stage.parts.platform, "far": far})
    assert parts.platform_of("far") is far
    assert parts.platform_of("gone") is parts.platform
    submit(parts, SubmitRequest({"command": ["train"], "provider": "far"}, run_id="digits"), ACTOR)
    nothing: Any = None
    assert "far-project" in str(Queries(parts, nothing, nothing)._account(stage.row("digits")))


def test_a_run_stays_with_its_provider_when_another_one_becomes_the_first(stage: TwoProviders) -> None:
    """The run names no provider, and `far` was the first one in the settings when it was submitted."""
    before = replace(stage.parts, providers={name: stage.parts.providers[name] for name in ("far", "local")})
    submit(before, SubmitRequest({"command": ["train"]}, run_id="digits"), ACTOR)
    assert (before.own_provider, stage.parts.own_provider) == ("far", "local")
    assert stage.row("digits").provider == "far"
    [zone, *_] = {offer.placement.zone for offer in stage.parts.providers["far"].offers()}
    assert alter(stage.parts, "digits", {"zones": [zone]}, None, ACTOR).run.policy.zones == (zone,)
    with pytest.raises(InvalidRequest, match="Known: far-a"):
        alter(stage.parts, "digits", {"zones": ["near-a"]}, None, ACTOR)
    change(stage.parts, "digits", stop(ACTOR))
    stage.run_for(60.0)
    resume(stage.parts, "digits", ResumeRequest(ACTOR))
    assert stage.row("digits").provider == "far"
