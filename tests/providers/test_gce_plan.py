"""The plan of a run on Google Cloud, over the tests' cloud: what it shows is what a launch sends, what it counts is
what the table of prices says, and the cloud is as empty after it as before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.callers import LOCAL
from supervisor.domain.errors import DataElsewhere
from supervisor.domain.observation import World
from supervisor.lifecycle.offers.choosing import queue
from supervisor.lifecycle.phases.placing import next_try
from supervisor.objectstores.gcs.store import GcsStore
from supervisor.ports.provider import ImageHidden, ImageMissing, ProviderUnavailable
from supervisor.providers.gce.advice.data_places import DataPlaces
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.config import GceConfig, offers, parse_shape
from supervisor.providers.gce.platform import GcePlatform
from supervisor.providers.gce.prices.pricing import Pricing
from supervisor.providers.gce.provider import GceProvider
from supervisor.reconciler.acting.launches import Paces, launch_request
from supervisor.services.parts import Parts
from supervisor.services.plan.plan import PlanSources, plan
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.cloud.compute_rig import FixedToken
from tests.objectstores.gcs_bed import BUCKET, URL, cloud_storage
from tests.providers.gce_subject import IMAGE, GceSubject
from tests.services.bed import Bed
from tests.services.conftest import any_bed, bed

__all__ = ["any_bed", "bed"]

SHAPES = {"t4": "n1-standard-8+1xnvidia-tesla-t4", "l4": "g2-standard-8", "a100": "a2-highgpu-1g"}
ZONES = ("us-central1-a", "us-east1-c")
SPEC = {
    "command": ["python", "train.py"],
    "image": IMAGE,
    "env": {"MODE": "fast"},
    "secrets": {"API_KEY": "gcp:projects/p/secrets/key/versions/1"},
}
PACES = Paces(URL, None, 10.0, 60.0, 300.0, 7200.0, 10.0, 8.0)


@dataclass
class Scene:
    subject: GceSubject
    parts: Parts
    storage: Any

    def plan(self, spec: Mapping[str, Any], run_id: str = "digits") -> dict[str, Any]:
        def preview(run: Any, try_: Any, given: Any) -> Mapping[str, object]:
            request = launch_request(
                run, try_, given, nonce="NONCE", supervisor_id=self.parts.store.supervisor_id, paces=PACES
            )
            return self.parts.platform.preview(request)

        return plan(self.parts, PlanSources(tuple, preview, 20.0), SubmitRequest(spec, run_id), LOCAL)


@pytest.fixture
def scene(bed: Bed, tmp_path: Path) -> Iterator[Scene]:
    shapes = {name: parse_shape(text) for name, text in SHAPES.items()}
    subject = GceSubject(tmp_path, GceConfig("p", ZONES, shapes, store_url=URL))
    with cloud_storage() as storage:
        objects = GcsStore(URL)
        config = replace(subject.config, storage_endpoint=storage.url)
        compute = Compute(config, Retry(deadline_s=2.0, sleep=lambda _: None), FixedToken)
        pricing = Pricing(config, compute, subject.clock.now)
        provider = GceProvider(
            config, offers(config), objects, subject.agent, subject.clock,
            pause=subject.clock.advance, credentials=FixedToken,
        )  # fmt: skip
        provider.priced = pricing.priced
        places = DataPlaces(config, objects.bucket)
        parts = replace(
            bed.parts,
            objects=objects,
            providers={"gce": provider},
            cells={"gce": "gce p spot-runs"},
            platform=GcePlatform(config, compute, places, subject.agent, pricing),
        )
        yield Scene(subject, parts, storage)
        provider.close()
        objects.close()
    subject.close()


def rows() -> dict[tuple[str, str, str], dict[str, Any]]:
    text = files("supervisor.providers.gce.prices").joinpath("prices.json").read_text("utf-8")
    return {(row["kind"], row["name"], row["region"]): row for row in json.loads(text)["rows"]}


def by_hand(shape: str, region: str, market: str) -> float:
    """The machine, its cards, 100 GB of pd-ssd and the address, straight from the table."""
    known = rows()
    machine, _, cards = SHAPES[shape].partition("+")
    usd = float(known["machine", machine, region][market])
    if cards:
        count, _, card = cards.partition("x")
        usd += int(count) * float(known["gpu", card, region][market])
    usd += 100 * float(known["disk", "pd-ssd", region][market]) / 730
    return usd + float(known["address", "external-ip", "*"][market])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_plan_of_a_real_shape_agrees_with_the_table_of_prices_to_the_cent(scene: Scene, shape: str) -> None:
    told = scene.plan({**SPEC, "shapes": [shape], "limits": {"max_runtime_s": 48 * 3600}})
    assert [place["zone"] for place in told["zones"]] == list(ZONES)
    for place in told["zones"]:
        assert round(place["price_usd_per_h"], 2) == round(by_hand(shape, place["region"], "spot_usd"), 2)
        assert round(place["on_demand_usd_per_h"], 2) == round(by_hand(shape, place["region"], "on_demand_usd"), 2)
        assert place["price_dated"] is not None
    dearest = max(by_hand(shape, place["region"], "spot_usd") for place in told["zones"])
    assert round(told["cost"]["max_runtime_usd"], 2) == round(48 * dearest, 2)


def test_the_cloud_is_as_empty_after_a_plan_as_before(scene: Scene) -> None:
    told = scene.plan(SPEC)
    assert told["would"] == "create"
    assert scene.subject.compute.names() == []
    assert scene.subject.compute.count("POST", "/instances$") == 0
    assert scene.storage.names(BUCKET) == []
    assert scene.parts.store.find("digits") is None


def test_what_is_shown_is_what_the_launch_then_sends(scene: Scene) -> None:
    told = scene.plan({**SPEC, "shapes": ["t4"]})["launch"]
    submit(scene.parts, SubmitRequest({**SPEC, "shapes": ["t4"]}, "digits"), LOCAL)
    run = scene.parts.store.find("digits")
    assert run is not None
    provider = scene.parts.providers["gce"]
    world = World(scene.parts.knobs, {"gce": provider.offers()})
    first = next_try(run, queue(run, world, 0.0)[0][0], world, 0.0)
    provider.launch(
        launch_request(run, first, SPEC, nonce="NONCE", supervisor_id=scene.parts.store.supervisor_id, paces=PACES)
    )
    (name,) = scene.subject.compute.names()
    made = scene.subject.compute.instance(name)
    assert name == told["instance"]["name"]
    assert {item["key"]: item["value"] for item in made.body["metadata"]["items"]} == told["metadata"]
    assert made.body["labels"] == told["instance"]["labels"]


def test_the_packed_metadata_is_shown_unpacked_with_secrets_by_reference_alone(scene: Scene) -> None:
    told = scene.plan(SPEC)["launch"]
    assert told["unpacked"]["spot-job-command"] == '["python", "train.py"]'
    job = told["unpacked"]["spot-job"]
    assert job["env"] == {"MODE": "fast"}
    assert job["secret_refs"] == SPEC["secrets"]
    assert told["metadata"]["startup-script"].startswith("#!")
    assert told["metadata"]["spot-nonce"] == "NONCE"


def test_googles_own_judgement_of_capacity_stands_at_each_spot_place(scene: Scene) -> None:
    scene.subject.compute.advice.obtainability = {ZONES[0]: 0.1, ZONES[1]: 0.95}
    told = scene.plan({**SPEC, "allow_on_demand": True, "shapes": ["l4"]})
    assert [(place["zone"], place["spot"], place["chance"]) for place in told["zones"]] == [
        (ZONES[0], True, 0.1),
        (ZONES[1], True, 0.95),
        (ZONES[0], False, None),
        (ZONES[1], False, None),
    ]


def test_where_google_gives_no_such_judgement_a_line_says_so(scene: Scene) -> None:
    scene.subject.compute.advice.offered = False
    told = scene.plan(SPEC)
    assert {place["chance"] for place in told["zones"]} == {None}
    (line,) = [check for check in told["checks"] if check["name"] == "chances"]
    assert line["fact"] == "not read: capacity advice"


def test_a_bucket_far_from_some_zone_is_advised_on_and_refused_where_it_must_be_near(scene: Scene) -> None:
    """The tests' bucket is in us-central1."""
    (line,) = [one for one in scene.plan(SPEC)["checks"] if one["name"] == "data places"]
    assert "is in us-central1, and machines start in us-east1" in line["fact"]
    with pytest.raises(DataElsewhere, match="us-east1-c"):
        scene.plan({**SPEC, "same_region": "require"})
    near = {**SPEC, "same_region": "require", "zones": ["us-central1-a"]}
    assert scene.plan(near)["would"] == "create"
    submit(scene.parts, SubmitRequest(near, "digits"), LOCAL)


PINNED = f"{IMAGE.partition('@')[0]}@sha256:{'ab' * 32}"


@pytest.mark.parametrize(
    ("answer", "result", "said"),
    [
        (PINNED, "ok", f"{IMAGE} is sha256:{'ab' * 6} now"),
        (ImageMissing("no such tag"), "fail", "no such tag; the run would fail before a machine is rented"),
        (ImageHidden("403"), "warn", "roles/artifactregistry.reader"),
        (ProviderUnavailable("the registry does not answer"), "warn", "the registry does not answer"),
    ],
)
def test_the_image_is_looked_for_before_anything_is_rented(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, answer: str | Exception, result: str, said: str
) -> None:
    def pin(image: str) -> str:
        assert image == IMAGE
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(scene.parts.providers["gce"], "pin", pin)
    (line,) = [one for one in scene.plan(SPEC)["checks"] if one["name"] == "image"]
    assert line["result"] == result
    assert said in f"{line['fact']} {line['cause']} {line['fix']}"
