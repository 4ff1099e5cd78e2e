"""A machine's figures as readers see them: the newest, in the documented shape, and harmless when forged."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract.beat_telemetry import Cgroup, Disk, Gpus, Telemetry, as_received, decode
from supervisor.contract.beat_telemetry import encode as encode_telemetry
from supervisor.contract.heartbeat import encode
from supervisor.ports.store import RunFilter
from supervisor.services.reading.queries import ShownRun
from supervisor.services.views.formats import dumps
from supervisor.services.views.telemetry_view import TelemetryJson
from tests.benchmarks.machine_told import full
from tests.services.bed import Bed, beat
from tests.services.declared import declared

TOLD = Telemetry(
    gpus=Gpus(util_pct=(93.0,), power_w=(71.25,)),
    cgroup=Cgroup(memory_bytes=5e9),
    checkpoints_disk=Disk(8e10, 1e11, 960.0, 1000.0),
    uptime_s=12.5,
)


def training(bed: Bed, told: Telemetry | None) -> None:
    bed.submit("digits-7")
    run = bed.train("digits-7")
    assert run.pulse is not None
    bed.change("digits-7", pulse=replace(run.pulse, telemetry="" if told is None else encode_telemetry(told)))


def shown(bed: Bed) -> Any:
    return declared(ShownRun, json.loads(dumps(bed.services.queries.show("digits-7"))))["telemetry"]


def test_what_the_row_holds_is_shown_with_null_for_what_is_not_known(bed: Bed) -> None:
    training(bed, TOLD)
    told = shown(bed)
    assert (told["gpus"][0]["util_pct"], told["gpus"][0]["power_w"]) == (93, 71.25)
    assert told["gpus"][0]["last_xid"] is None
    assert (told["cgroup"]["memory_bytes"], told["cgroup"]["oom_kills"]) == (5_000_000_000, None)
    assert told["disks"]["checkpoints"] == {
        "free_bytes": 80_000_000_000, "total_bytes": 100_000_000_000, "free_inodes": 960, "total_inodes": 1000,
    }  # fmt: skip
    assert (told["disks"]["results"], told["tree"], told["uptime_s"]) == (None, None, 12.5)


def test_whole_numbers_of_a_beat_are_shown_too(bed: Bed) -> None:
    """JSON does not tell 5 from 5.0, and neither does what was read from it."""
    training(bed, decode(as_received({"cgroup": {"memory_bytes": 5, "oom_kills": 1}, "gpus": {"util_pct": [93]}})))
    told = shown(bed)
    assert (told["cgroup"]["memory_bytes"], told["cgroup"]["oom_kills"]) == (5, 1)
    assert told["gpus"][0]["util_pct"] == 93


def test_a_pushed_beat_is_newer_and_one_without_figures_keeps_the_last(bed: Bed) -> None:
    training(bed, TOLD)
    bed.inbox.receive("digits-7", encode(beat("digits-7", 9)))
    assert shown(bed)["uptime_s"] == 12.5
    bed.inbox.receive("digits-7", encode(beat("digits-7", 10, telemetry=encode_telemetry(full()))))
    told = shown(bed)
    assert len(told["gpus"]) == 8
    assert told["gpus"][7]["util_pct"] == 99
    assert None not in told["gpus"][3].values()
    assert set(TelemetryJson.__annotations__) == set(told)


def test_where_nothing_was_received_there_is_no_figure(bed: Bed) -> None:
    training(bed, None)
    assert shown(bed) is None


def test_an_attempt_that_is_over_has_no_present_figures(bed: Bed) -> None:
    training(bed, TOLD)
    run = bed.run("digits-7")
    assert run.attempt is not None
    bed.change("digits-7", attempt=replace(run.attempt, ended_at=bed.clock.now()))
    assert shown(bed) is None


@pytest.mark.parametrize(
    "forged",
    [
        {"gpus": {"util_pct": [50] * 1000, "power_w": [1, None, "x", -3]}},
        {"gpus": {"util_pct": {"0": 5}, "last_xid": [1e17]}, "cgroup": [1], "tree": "x", "uptime_s": True},
        {"checkpoints_disk": {"free_bytes": 1e17, "total_bytes": 0, "free_inodes": 5}},
        {"gpus": {"memory_used_mib": [9e17], "memory_total_mib": [1e-300]}},
    ],
)
def test_forged_figures_are_shown_within_bounds_and_kept_apart(bed: Bed, forged: Any) -> None:
    training(bed, TOLD)
    raw = json.loads(encode(beat("digits-7", 10)))
    bed.inbox.receive("digits-7", json.dumps({**raw, "telemetry": forged}).encode())
    told = shown(bed)
    assert told is None or len(told["gpus"]) <= 16
    # What the loop would write of it can be written and read again.
    run = bed.run("digits-7")
    assert run.pulse is not None
    bed.change("digits-7", pulse=replace(run.pulse, telemetry=as_received(forged) or run.pulse.telemetry))
    assert shown(bed) == told


def test_lists_are_without_it(bed: Bed) -> None:
    training(bed, full())
    (listed,) = bed.services.queries.page(RunFilter(), 9, None)["runs"]
    assert "telemetry" not in listed
