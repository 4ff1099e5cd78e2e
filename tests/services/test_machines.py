"""Machines: which exist, which are ours, and the release of unused ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from supervisor.domain.errors import Unavailable
from supervisor.domain.machines import Machine, MachineState
from supervisor.domain.status import Status
from supervisor.ports.platform import Account
from supervisor.ports.provider import ProviderUnavailable
from supervisor.services.machines.gc import Collected, collect, machines_lines
from supervisor.services.machines.machines import UNREADABLE, MachineList, machines_json
from supervisor.storage.engine.tables import runs
from supervisor.storage.store import SqlStore
from tests.fakes.callers import OPS
from tests.services.bed import Bed, Client
from tests.services.declared import declared


def put(bed: Bed, name: str, run_id: str = "", launch_id: str = "1.1.1", **fields: Any) -> Machine:
    """A listed machine, an hour old; ours by default."""
    given = {
        "machine_id": f"id-of-{name}", "zone": "local-a", "state": MachineState.UP,
        "supervisor_id": bed.store.supervisor_id, "created_at": bed.clock.now() - 3600, **fields,
    }  # fmt: skip
    return bed.provider.add(Machine(name=name, run_id=run_id, launch_id=launch_id, **given))


def seen(bed: Bed, everything: bool = False) -> dict[str, dict[str, Any]]:
    return {one["machine"]: one for one in machines_json(bed.parts, everything)["machines"]}


def names(machines: list[dict[str, Any]]) -> list[str]:
    return [one["machine"] for one in machines]


@pytest.fixture
def training(bed: Bed) -> Bed:
    """digits-7 trains on m-a1."""
    bed.submit("digits-7")
    bed.train("digits-7")
    put(bed, "m-a1", "digits-7", machine_id="id-1")
    return bed


def test_a_machine_that_serves_is_joined_with_its_run_by_labels(training: Bed) -> None:
    told = machines_json(training.parts, False)
    (one,) = told["machines"]
    assert (one["serves"], one["use"], one["attempt"]) == ("digits-7", "serves", 1)
    assert (one["shape"], one["spot"], one["usd_per_h"], one["age_s"]) == ("cpu", True, 0.1, 3600.0)
    assert told["summary"] == {"ours": 1, "foreign": 0, "usd_per_h": 0.1, "unpriced": 0}
    assert told["account"] == {
        "provider": "local", "name": "fake-project", "number": "123456789", "console_url": None,
        "noun": None, "tool": None, "compare": None,
    }  # fmt: skip
    assert told["runs"] == [
        {"run_id": "digits-7", "status": "running", "usd_per_h": 0.1, "machines": ["m-a1"], "kept": False}
    ]
    assert told["missing"] == []
    declared(MachineList, told)


def test_the_doctor_counts_only_machines_with_our_id(training: Bed) -> None:
    put(training, "web-1", supervisor_id="")
    put(training, "m-b1", "llm-a", supervisor_id="another")
    lines = {line.name: line for line in machines_lines(training.parts)}
    assert lines["orphans"].fact == "every machine of ours serves a run (1 listed)"
    assert lines["foreign"].fact == "1 machine of another supervisor (another): m-b1 in local-a"


def test_the_name_alone_makes_no_machine_ours(training: Bed) -> None:
    put(training, "m-a2", "digits-7", supervisor_id="another")
    put(training, "spot-12345678-a1-t1", supervisor_id="")
    assert list(seen(training)) == ["m-a1"]
    everything = seen(training, True)
    assert {name: one["use"] for name, one in everything.items()} == {
        "m-a1": "serves", "m-a2": "foreign", "spot-12345678-a1-t1": "foreign",
    }  # fmt: skip
    assert everything["m-a2"]["serves"] is None
    assert everything["m-a2"]["usd_per_h"] is None
    assert machines_json(training.parts, False)["summary"]["foreign"] == 2


def test_retiring_and_kept_machines_are_marked(training: Bed) -> None:
    training.end("digits-7")
    assert "being released" in seen(training)["m-a1"]["why"] or seen(training)["m-a1"]["use"] == "kept"
    run = training.run("digits-7")
    now = training.clock.now()
    going = tuple(replace(item, until=now) for item in run.retiring)
    training.change("digits-7", retiring=going)
    assert seen(training)["m-a1"]["use"] == "retiring"
    kept = tuple(replace(item, until=now + 3600) for item in run.retiring)
    training.change("digits-7", retiring=kept, kept_until=now + 3600)
    one = seen(training)["m-a1"]
    assert (one["use"], one["why"]) == ("kept", "kept for digits-7 for another 1 h")
    assert one["kept_until"] is not None
    assert machines_json(training.parts, False)["runs"][0]["kept"]


def test_prices_are_those_of_the_launch_else_of_the_offer_else_unknown(training: Bed) -> None:
    put(training, "left-1", "gone-run", shape="cpu", spot=False)
    put(training, "left-2", "gone-run", "1.2.1", shape="tpu", spot=True)
    put(training, "left-3", "gone-run", "1.3.1", state=MachineState.ENDED, shape="cpu", spot=True)
    put(training, "left-4", "gone-run", "1.4.1", state=MachineState.ASKED, shape="cpu", spot=True)
    prices = {name: one["usd_per_h"] for name, one in seen(training).items()}
    assert prices == {"m-a1": 0.1, "left-1": 0.3, "left-2": None, "left-3": None, "left-4": 0.0}
    summary = machines_json(training.parts, False)["summary"]
    assert (summary["usd_per_h"], summary["unpriced"]) == (0.4, 2)


def test_a_leftover_of_a_run_that_is_known_keeps_the_price_of_its_launch(training: Bed) -> None:
    training.end("digits-7")
    training.change("digits-7", retiring=(), settled=True)
    one = seen(training)["m-a1"]
    assert (one["use"], one["usd_per_h"], one["run_id"], one["serves"]) == ("orphan", 0.1, "digits-7", None)


def test_a_listing_that_cannot_be_read_is_no_empty_one(training: Bed) -> None:
    training.provider.down = True
    with pytest.raises(Unavailable, match="cannot be read now"):
        machines_json(training.parts, False)
    with pytest.raises(Unavailable):
        collect(training.parts, False, OPS)
    answer = Client(training.services).get("/v1/machines")
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")


def test_of_a_zone_that_was_not_read_nothing_is_said(training: Bed) -> None:
    training.provider.unreachable.add("local-a")
    told = machines_json(training.parts, False)
    assert (told["machines"], told["unread_zones"], told["missing"]) == ([], ["local-a"], [])
    training.provider.unreachable.clear()
    training.provider.settings_zones = frozenset({"local-b"})  # its own zone left the settings
    told = machines_json(training.parts, False)
    assert (told["machines"], told["unread_zones"], told["missing"]) == ([], ["local-a"], [])
    training.provider.settings_zones = None
    training.provider.lose("m-a1")
    told = machines_json(training.parts, False)
    assert told["missing"] == [{"run_id": "digits-7", "machine": "m-a1", "zone": "local-a"}]


def test_an_unknown_project_is_null(training: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> Account:
        raise ProviderUnavailable("away")

    monkeypatch.setattr(training.platform, "account", away)
    assert machines_json(training.parts, False)["account"]["name"] is None


def test_only_unused_machines_of_ours_are_released_with_an_event_first(training: Bed) -> None:
    put(training, "left", "gone-run", shape="cpu", spot=True)
    put(training, "young", "gone-run", "1.2.1", created_at=training.clock.now() - 5)
    put(training, "going", "gone-run", "1.3.1", state=MachineState.ENDING)
    put(training, "theirs", "left", supervisor_id="another")
    dry = collect(training.parts, True, OPS)
    assert (names(dry["released"]), dry["usd_per_h"], dry["foreign"], dry["serving"]) == (["left"], 0.1, 1, 1)
    assert training.provider.releases == []
    assert training.store.events(None, 0, 100) == training.store.events("digits-7", 0, 100)
    told = collect(training.parts, False, OPS)
    assert names(told["released"]) == ["left"]
    assert {one["machine"]: one["why"] for one in told["left"]} == {
        "young": "serves no live run, but is younger than 30 s",
        "going": "serves no live run; it is being deleted already",
    }
    assert [(ref.name, ref.machine_id) for ref in training.provider.releases] == [("left", "id-of-left")]
    event = training.store.events(None, 0, 100)[-1].event
    assert (event.kind, event.actor, event.data["readings"]) == ("machine_leaked", "ops", ["listing: up"])
    assert "left in local-a carries our label and serves no live run" in event.text
    assert collect(training.parts, False, OPS)["released"] == []
    declared(Collected, told)


def test_a_person_lifts_the_brake_on_too_many_at_once(bed: Bed) -> None:
    for number in range(1, 8):
        put(bed, f"left-{number}", "gone-run", f"1.{number}.1")
    assert len(collect(bed.parts, False, OPS)["released"]) == 7


def test_a_release_that_the_platform_refuses_is_left_with_its_reason(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bed, "left-1", "gone-run")
    put(bed, "left-2", "gone-run", "1.2.1")
    release = bed.provider.release

    def refuse_one(ref: Any) -> None:
        if ref.name == "left-1":
            raise ProviderUnavailable("403 of project p")
        release(ref)

    monkeypatch.setattr(bed.provider, "release", refuse_one)
    told = collect(bed.parts, False, OPS)
    assert names(told["released"]) == ["left-2"]
    assert [(one["machine"], one["why"]) for one in told["left"]] == [
        ("left-1", "the platform did not accept the request; it may be repeated")
    ]


def test_a_machine_in_a_zone_that_was_not_read_is_not_touched(bed: Bed) -> None:
    put(bed, "left", "gone-run")
    bed.provider.unreachable.add("local-a")
    told = collect(bed.parts, False, OPS)
    assert (told["released"], told["unread_zones"], bed.provider.releases) == ([], ["local-a"], [])


def test_a_machine_whose_run_another_bucket_s_leader_has_is_not_touched(training: Bed) -> None:
    told = collect(replace(training.parts, cells={"local": "local here gs://other"}), False, OPS)
    assert [(one["machine"], one["use"]) for one in told["left"]] == [("m-a1", "elsewhere")]
    assert training.provider.releases == []


def test_a_run_that_cannot_be_read_hides_no_machine_and_loses_none(training: Bed) -> None:
    put(training, "left", "gone-run")
    assert isinstance(training.store, SqlStore)
    with training.store.database.writing() as session:
        session.connection.execute(sa.update(runs).values(doc="{"))
    assert set(seen(training)) == {"m-a1", "left"}
    told = collect(training.parts, False, OPS)
    assert [(one["machine"], one["why"]) for one in told["left"]] == [("m-a1", UNREADABLE)]
    assert names(told["released"]) == ["left"]


def test_a_machine_that_is_requested_right_now_is_expected(bed: Bed) -> None:
    """Its row is committed before the call; the machine is listed before it is adopted."""
    bed.submit("digits-7")
    run = bed.train("digits-7")
    bed.change("digits-7", attempt=None, status=Status.LAUNCHING)
    assert run.try_ is not None
    put(bed, "m-a1", "digits-7", state=MachineState.STARTING)
    assert seen(bed)["m-a1"]["why"] == "is requested by attempt 1 of digits-7"
    assert collect(bed.parts, False, OPS)["released"] == []
    bed.provider.lose("m-a1")
    assert machines_json(bed.parts, False)["missing"] == []


def test_over_http(training: Bed) -> None:
    client = Client(training.services)
    put(training, "theirs", supervisor_id="another")
    assert len(client.get("/v1/machines").json()["machines"]) == 1
    assert len(client.get("/v1/machines?all=true").json()["machines"]) == 2
    assert client.post("/v1/gc", json={"dry_run": True}).json()["released"] == []
    for path in ("/v1/machines?all=perhaps", "/v1/machines?everything=1"):
        assert client.get(path).status_code == 422
    for wrong in ({}, {"dry_run": None}, {"dry_run": "yes"}, {"dry_run": True, "force": True}, [True]):
        assert client.post("/v1/gc", json=wrong).status_code == 422
    assert client.post("/v1/gc").status_code == 415
    assert client.post("/v1/gc?dry_run=true", json={"dry_run": True}).status_code == 422
    assert client.post("/v1/gc", json={"dry_run": False}, headers={"Origin": "http://evil.example"}).json()["code"] == (
        "ORIGIN_REFUSED"
    )


def test_a_machine_created_during_the_listing_is_not_unused(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row was committed before the request; the cloud is read first, so the later read includes its row."""
    listed = bed.provider.machines

    def while_it_is_born() -> Any:
        bed.submit("digits-7")
        bed.train("digits-7")
        put(bed, "m-a1", "digits-7")
        return listed()

    monkeypatch.setattr(bed.provider, "machines", while_it_is_born)
    told = collect(bed.parts, False, OPS)
    assert (told["released"], told["left"], told["serving"]) == ([], [], 1)


def test_the_event_of_a_release_comes_before_the_request(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bed, "left", "gone-run")
    before: list[int] = []
    monkeypatch.setattr(bed.provider, "release", lambda ref: before.append(len(bed.store.events(None, 0, 100))))
    collect(bed.parts, False, OPS)
    assert before == [1]
