"""A spec for machines on Google Cloud: its checks at submit, before anything is stored."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.errors import CellFixed, InvalidRequest, UnknownPrice
from supervisor.domain.machines import Offer, Placement
from supervisor.ports.platform import Account
from supervisor.providers.gce.traits import TRAITS
from supervisor.services.parts import Defaults
from supervisor.services.reading.about import FEATURES, About, meta
from supervisor.services.runs.policy import policy_from, settled
from supervisor.services.views.run_view import run_json
from tests.services.bed import COMMAND, Bed, body

IMAGE = {**COMMAND, "image": "europe-docker.example.org/p/train:1"}
SECRET = "gcp:projects/p/secrets/wandb/versions/3"


def offers(*shapes: str) -> tuple[Offer, ...]:
    return tuple(
        Offer(Placement("gce", "us-east1", zone, shape, spot), 0.25 if spot else None, None)
        for spot in (True, False)
        for shape in shapes
        for zone in ("us-east1-c", "us-east1-b")
    )


@pytest.fixture
def cloud(bed: Bed) -> Bed:
    """The bed of a supervisor with provider = gce; its machines are fakes, as everywhere."""
    bed.provider.offered, bed.provider.traits = offers("t4", "l4"), TRAITS
    bed.parts = replace(bed.parts, providers={"gce": bed.provider}, cells={"gce": "gce p gs://b"}, defaults=Defaults())
    return bed


def policy(bed: Bed, **spec: Any) -> Any:
    return policy_from({**IMAGE, **spec}, bed.parts, bed.clock.now())


def test_a_run_without_a_provider_gets_the_supervisor_s(cloud: Bed) -> None:
    cloud.submit("digits-7", IMAGE)
    run = cloud.run("digits-7")
    assert (run.provider, run.cell) == ("gce", "gce p gs://b")
    assert (run.policy.image, run.policy.follow_tag) == (IMAGE["image"], False)
    same = cloud.submit("digits-7", {**IMAGE, "provider": "gce"})
    assert same.status == 200, "naming the default is the same spec"
    with pytest.raises(InvalidRequest, match="Known: gce"):
        cloud.submit("digits-8", {**IMAGE, "provider": "local"})


def test_a_run_of_the_other_supervisor_cannot_be_resumed_here(cloud: Bed) -> None:
    """Two supervisors on one database: a stored spec names no provider, and must not get this one's."""
    cloud.submit("digits-7", IMAGE)
    cloud.end("digits-7")
    cloud.parts = replace(cloud.parts, providers={"local": cloud.provider}, cells={"local": "local x file:///o"})
    with pytest.raises(CellFixed):
        cloud.resume("digits-7")


def test_an_image_is_required_unless_the_settings_have_one(cloud: Bed) -> None:
    with pytest.raises(InvalidRequest, match="default_image") as refused:
        cloud.submit("digits-7", COMMAND)
    assert refused.value.errors == (("#/spec/image", "is required"),)
    cloud.parts = replace(cloud.parts, defaults=Defaults(image="r/i:1"))
    assert body(cloud.submit("digits-7", COMMAND))["warnings"] == []
    assert cloud.run("digits-7").policy.image == "r/i:1"
    assert cloud.store.spec(cloud.run("digits-7").key)["image"] == "r/i:1", "kept, whatever the setting becomes"


def test_a_key_outlives_a_change_of_the_settings(cloud: Bed) -> None:
    """A variant that compares stored specs takes the same body for another one."""
    cloud.parts = replace(cloud.parts, defaults=Defaults(image="r/i:1"))
    first = cloud.submit(spec=COMMAND, key="k1")
    cloud.parts = replace(cloud.parts, defaults=Defaults(image="r/i:2"))
    assert cloud.submit(spec=COMMAND, key="k1") == replace(first, replayed=True)
    cloud.parts = replace(cloud.parts, defaults=Defaults())
    assert cloud.submit(spec=COMMAND, key="k1").replayed, "which would be refused now"


def test_local_machines_need_no_image(bed: Bed) -> None:
    bed.parts = replace(bed.parts, defaults=Defaults(image="r/i:1"))
    assert "image" not in settled(COMMAND, bed.parts)
    assert policy_from(COMMAND, bed.parts, bed.clock.now()).image == ""


def test_each_provider_reads_its_own_kind_of_secret(cloud: Bed, bed: Bed) -> None:
    assert policy(cloud, secrets={"WANDB_API_KEY": SECRET})
    for reference in ("env:WANDB_API_KEY", "file:/etc/key"):
        with pytest.raises(InvalidRequest, match=r"reads secrets as gcp:projects/PROJECT/secrets") as refused:
            policy(cloud, secrets={"KEY": reference})
        assert refused.value.errors[0][0] == "#/spec/secrets/KEY"


def test_secret_manager_is_not_for_this_computer(bed: Bed) -> None:
    with pytest.raises(InvalidRequest, match=r"reads secrets as env:NAME .* or file:/PATH"):
        policy_from({**COMMAND, "secrets": {"KEY": SECRET}}, bed.parts, bed.clock.now())


def test_a_spec_too_large_for_metadata_is_refused_with_both_sizes(cloud: Bed) -> None:
    chance = random.Random(1)
    noise = {f"V{n}": "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=32_000)) for n in range(4)}
    assert policy(cloud, env=noise), "128 KB of environment fit beside 190 KB of command"
    rules = [{"path": f"{n}", "verify": value[:4000]} for n, value in enumerate([*noise.values()] * 16)]
    assert policy(cloud, results=rules), "repetitions compress well"
    more = [{"path": f"{n}", "verify": "".join(chance.choices(noise["V0"], k=4000))} for n in range(64)]
    with pytest.raises(InvalidRequest, match=r"take \d{6} bytes when compressed, .* can hold 220000"):
        policy(cloud, env=noise, results=more)


def test_escalation_arrives(cloud: Bed) -> None:
    found = policy(cloud)
    assert (found.escalate_after, found.escalate_window_s, found.escalate_to) == (0, 21_600.0, "on_demand")
    found = policy(
        cloud,
        shapes=["t4", "l4"],
        limits={"deadline": "2027-01-15T09:00:00Z"},
        escalate={"after": 3, "within_s": 3600.0, "to": "next_shape", "on_demand_before_deadline_s": 600.0},
    )
    assert (found.escalate_after, found.escalate_window_s, found.escalate_to) == (3, 3600.0, "next_shape")
    assert found.on_demand_before_deadline_s == 600.0


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"escalate": {"to": "on_demand"}}, "escalate.to has no effect without escalate.after"),
        ({"escalate": {"within_s": 60.0}}, "escalate.within_s has no effect"),
        ({"escalate": {"after": 2, "to": "next_shape"}, "shapes": ["t4"]}, "fewer than two shapes"),
        ({"escalate": {"on_demand_before_deadline_s": 60.0}}, "needs limits.deadline"),
        ({"escalate": {"after": 2}, "spot": False}, "has no effect with spot: false"),
    ],
)
def test_an_escalation_that_could_never_happen_is_refused(cloud: Bed, spec: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        policy(cloud, **spec)


DEADLINE = {"deadline": "2027-01-15T09:00:00Z"}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"spot": False}, "requests nothing but on-demand"),
        ({"optimize": "wait", "allow_on_demand": True, "limits": DEADLINE}, "requests nothing but spot"),
        ({"keep": "machine"}, "keep: machine"),
        ({"allow_on_demand": True}, "on-demand follows spot at once"),
        ({"allow_on_demand": True, "optimize": "deadline", "limits": DEADLINE}, "on-demand follows spot at once"),
        ({}, "needs a shape that one of its providers has as flex-start"),
    ],
)
def test_a_flex_start_that_could_never_wait_is_refused(cloud: Bed, spec: dict[str, Any], why: str) -> None:
    if spec:  # else no machine is offered so
        offer_flex_start(cloud)
    with pytest.raises(InvalidRequest, match=why) as refused:
        policy(cloud, allow_flex_start=True, **spec)
    assert refused.value.code == "INVALID_REQUEST"
    assert refused.value.errors[0][0] == "#/spec/allow_flex_start"


def test_a_flex_start_that_can_wait_is_accepted(cloud: Bed) -> None:
    offer_flex_start(cloud)
    assert policy(cloud, allow_flex_start=True).allow_flex_start
    assert policy(cloud, allow_flex_start=True, allow_on_demand=True, limits=DEADLINE).allow_flex_start
    assert not policy(cloud).allow_flex_start, "off by default"
    with pytest.raises(UnknownPrice, match="the flex-start price of t4"):
        policy(cloud, allow_flex_start=True, limits={"budget_usd": 5.0})


def offer_flex_start(cloud: Bed) -> None:
    waiting = [replace(offer.placement, spot=False, flex=True) for offer in offers("t4") if offer.placement.spot]
    cloud.provider.offered = (*cloud.provider.offered, *(Offer(place, None, None) for place in waiting))


def test_a_budget_counts_on_demand_machines_of_an_escalation(cloud: Bed) -> None:
    assert policy(cloud, limits={"budget_usd": 5.0}), "spot has a price"
    with pytest.raises(UnknownPrice, match="the on-demand price of t4"):
        policy(cloud, limits={"budget_usd": 5.0}, escalate={"after": 2})


def test_a_run_shows_its_image_and_whether_it_is_pinned(cloud: Bed) -> None:
    cloud.submit("digits-7", {**IMAGE, "image_follow_tag": True})
    run, now = cloud.run("digits-7"), cloud.clock.now()
    shown = {"name": IMAGE["image"], "digest": None, "pinned": False, "follow_tag": True}
    assert run_json(run, now, {})["image"] == shown
    digest = "europe-docker.example.org/p/train@sha256:" + "ab" * 32
    assert run_json(replace(run, image=replace(run.image, digest=digest)), now, {})["image"] == {
        **shown, "digest": digest, "pinned": True,
    }  # fmt: skip


def test_the_supervisors_own_facts(cloud: Bed) -> None:
    url = "https://console.cloud.google.com/compute/instances?project=p"
    cloud.platform.told = Account("p", "123456789012", url)
    told = meta(cloud.parts, About("0a1b", {"labels": 64}, "SQLite"))
    assert told.pop("version")
    assert told.pop("database") == "SQLite"
    assert (told.pop("api"), told.pop("config_hash"), told.pop("limits")) == ("v1", "0a1b", {"labels": 64})
    assert told.pop("features") == sorted(FEATURES)
    assert told == {
        "provider": "gce", "zones": ["us-east1-c", "us-east1-b"], "shapes": ["t4", "l4"], "default_image": None,
        "project": "p", "project_number": "123456789012", "console_url": url,
    }  # fmt: skip
