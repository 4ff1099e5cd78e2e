"""A spec with several providers: its checks before anything is stored, and the run that it becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.errors import InvalidRequest
from supervisor.providers.gce.traits import TRAITS as CLOUD
from supervisor.services.runs.actions import stop
from supervisor.services.runs.altering import alter
from supervisor.services.runs.changing import change
from supervisor.services.runs.policy import policy_from, settled, warnings_of
from supervisor.services.runs.resume import ResumeRequest, resume
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.scenarios.two_providers import TwoProviders, two_providers
from tests.scenarios.user_verbs import ACTOR

SPEC = {"command": ["train"]}
BOTH = {**SPEC, "providers": ["far", "local"]}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[TwoProviders]:
    stage = two_providers(tmp_path)
    yield stage
    stage.close()


def asked(stage: TwoProviders, spec: dict[str, Any]) -> Any:
    return submit(stage.parts, SubmitRequest(spec, run_id="digits"), ACTOR)


def test_only_hosts_that_stay_start_an_agent_again_and_no_secrets_with_it(stage: TwoProviders) -> None:
    spec = {**BOTH, "on_reboot": "relaunch"}
    with pytest.raises(InvalidRequest, match="Machines of far, local cannot start an agent again by themselves"):
        asked(stage, spec)
    far = stage.parts.providers["far"]
    far.traits = replace(far.traits, relaunches=True)
    with pytest.raises(InvalidRequest, match="A host keeps no secrets"):
        policy_from({**spec, "secrets": {"API_TOKEN": "env:API_TOKEN"}}, stage.parts, stage.clock.now())
    asked(stage, spec)
    stage.run_for(5.0)
    assert stage.row("digits").policy.providers == ("far", "local")


def test_the_run_starts_with_the_first_provider(stage: TwoProviders) -> None:
    asked(stage, BOTH)
    run = stage.row("digits")
    assert (run.provider, run.policy.providers) == ("far", ("far", "local"))
    assert run.cell == stage.parts.cells["local"]
    assert asked(stage, BOTH).status == 200, "the same spec again"


def test_a_list_of_one_is_that_provider(stage: TwoProviders) -> None:
    assert settled({**SPEC, "providers": ["far"]}, stage.parts) == {**SPEC, "provider": "far"}
    assert settled({**SPEC, "providers": ["local"]}, stage.parts) == SPEC, "its own is never named"
    assert settled(BOTH, stage.parts) == BOTH


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"provider": "far"}, "names provider and providers"),
        ({"providers": ["far", "loca"]}, "providers.1 is not a known provider; did you mean local"),
        ({"zones": ["near-a", "moon"]}, "zones.1 is not a known zone"),
        ({"escalate": {"next_provider_before_deadline_s": 60.0}}, "needs limits.deadline"),
        ({"providers": [], "escalate": {"after": 2, "to": "next_provider"}}, "fewer than two providers"),
        ({"providers": [], "escalate": {"pay": "always"}}, "fewer than two providers"),
        ({"spot": False, "escalate": {"after": 2, "to": "next_provider"}}, "no effect with spot: false"),
        ({"secrets": {"KEY": "gcp:projects/p/secrets/k/versions/1"}}, "env:NAME"),
    ],
)
def test_impossible_specs_are_refused(stage: TwoProviders, spec: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        policy_from({**BOTH, **spec}, stage.parts, stage.clock.now())


def test_who_pays_after_free_sessions_is_a_word_of_the_spec(stage: TwoProviders) -> None:
    def pay(spec: dict[str, Any]) -> str:
        return policy_from({**BOTH, **spec}, stage.parts, stage.clock.now()).pay

    assert (pay({}), pay({"escalate": {"pay": "always"}, "spot": True})) == ("deadline", "always")


def test_each_of_them_must_have_a_machine_for_it(stage: TwoProviders) -> None:
    stage.far.offered = tuple(offer for offer in stage.far.offered if not offer.placement.spot)
    with pytest.raises(InvalidRequest, match="The provider far offers no spot machine"):
        policy_from(BOTH, stage.parts, stage.clock.now())
    policy_from({**BOTH, "spot": False}, stage.parts, stage.clock.now())


def test_an_image_is_needed_where_one_of_them_runs_images(stage: TwoProviders) -> None:
    stage.far.traits = replace(CLOUD, kind="far")
    with pytest.raises(InvalidRequest, match="the spec names none"):
        asked(stage, BOTH)
    answer = asked(stage, {**BOTH, "image": "r.example.org/train:1"})
    assert "image is ignored by the local provider" in answer.body
    assert warnings_of({**SPEC, "image": "r.example.org/train:1"}, stage.far.traits) == ()


def test_zones_of_one_are_taken_for_that_one(stage: TwoProviders) -> None:
    asked(stage, {**BOTH, "zones": ["near-a"]})
    assert stage.row("digits").policy.zones == ("near-a",)
    [zone, *_] = {offer.placement.zone for offer in stage.far.offered}
    assert alter(stage.parts, "digits", {"zones": [zone]}, None, ACTOR).run.policy.zones == (zone,)
    assert stage.row("digits").policy.providers == ("far", "local")


def test_a_resume_starts_with_the_first_provider_again(stage: TwoProviders) -> None:
    asked(stage, BOTH)
    change(stage.parts, "digits", stop(ACTOR))
    stage.run_for(60.0)
    wanted = ResumeRequest(ACTOR, {**BOTH, "providers": ["local", "far"]}, replace_spec=True)
    resume(stage.parts, "digits", wanted)
    run = stage.row("digits")
    assert (run.provider, run.policy.providers) == ("local", ("local", "far"))
