"""Telemetry is small, exact in both directions, and harmless for any input."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.contract import heartbeat
from supervisor.contract.beat_telemetry import (
    MAX_BYTES,
    MAX_GPUS,
    Cgroup,
    Disk,
    Gpus,
    Telemetry,
    Tree,
    compact,
    decode,
    encode,
    parse,
    to_json,
)
from supervisor.domain import figures as five
from supervisor.domain.figures import NOTHING, figures_of
from tests.benchmarks.machine_told import full
from tests.domain.test_heartbeat import JSON, raw
from tests.properties import examples, with_defaults

figures = st.none() | st.floats(0, 1e17) | st.integers(0, 10**17).map(float)
columns = st.lists(figures, max_size=MAX_GPUS).map(tuple)


def parts(kind: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.builds(with_defaults(kind), **dict.fromkeys(kind._fields, values))


telemetries = st.builds(
    with_defaults(Telemetry),
    gpus=parts(Gpus, columns),
    cgroup=parts(Cgroup, figures),
    checkpoints_disk=parts(Disk, figures),
    results_disk=parts(Disk, figures),
    scratch_disk=parts(Disk, figures),
    tree=parts(Tree, figures),
    uptime_s=figures,
    log_bytes=figures,
    shm_bytes=figures,
    shm_free_bytes=figures,
)


def through_json(telemetry: Telemetry) -> Telemetry | None:
    return parse(json.loads(json.dumps(to_json(telemetry))))


@given(told=telemetries)
def test_sent_telemetry_is_read_unchanged(told: Telemetry) -> None:
    small = compact(told)
    assert through_json(small) == small
    assert compact(small) == small
    assert len(encode(small)) <= MAX_BYTES


def test_eight_cards_with_every_figure_fit() -> None:
    told = full(8)
    assert all(part not in (None, ()) for part in told)
    assert compact(told) == told
    assert len(encode(told)) <= MAX_BYTES


def test_every_name_has_a_value() -> None:
    """Without this check a new figure that `full` lacks would weaken the test above."""
    told = to_json(full())
    for kind, name in ((Gpus, "gpus"), (Cgroup, "cgroup"), (Disk, "results_disk"), (Tree, "tree")):
        assert set(told[name]) == set(kind._fields)
    assert set(told) == set(Telemetry._fields)


def test_figures_that_do_not_fit_are_left_out_in_order() -> None:
    large = full(MAX_GPUS)
    assert large.gpus is not None
    assert compact(large) == large
    huge = tuple(1e15 + n for n in range(MAX_GPUS))
    names = ("power_w", "power_limit_w", "sm_clock_mhz", "sm_clock_max_mhz")
    long = large._replace(gpus=large.gpus._replace(**dict.fromkeys(names, huge)))
    assert len(encode(long)) > MAX_BYTES
    small = compact(long)
    assert small.gpus is not None
    assert small.gpus.sm_clock_max_mhz == small.gpus.power_limit_w == ()
    assert small.gpus.sm_clock_mhz == small.gpus.power_w == huge
    assert small.gpus.util_pct == large.gpus.util_pct
    assert small.gpus.lost == large.gpus.lost
    assert (small.cgroup, small.checkpoints_disk, small.tree) == (large.cgroup, large.checkpoints_disk, large.tree)
    absurd = large._replace(gpus=Gpus(*[tuple(1e17 + n * 16 for n in range(MAX_GPUS))] * len(Gpus._fields)))
    assert compact(absurd).cgroup == large.cgroup
    assert len(encode(compact(absurd))) <= MAX_BYTES


def test_an_absent_field_is_not_zero() -> None:
    assert to_json(Telemetry()) == {}
    assert parse({}) == Telemetry()
    assert to_json(Telemetry(cgroup=Cgroup(oom_kills=0.0), uptime_s=0.0)) == {"cgroup": {"oom_kills": 0}, "uptime_s": 0}
    assert parse({"cgroup": {}, "gpus": {"util_pct": []}, "tree": {"threads": None}}) == Telemetry()
    assert parse({"gpus": {"power_w": [None, 70.5]}}) == Telemetry(gpus=Gpus(power_w=(None, 70.5)))


@pytest.mark.parametrize("value", [-1, 1e18, 10**400, True, "7", [7], {"x": 7}, float("nan"), float("inf"), None])
def test_an_absurd_figure_is_dropped_and_costs_nothing_else(value: Any) -> None:
    told = {"uptime_s": value, "tree": {"threads": value, "processes": 3}, "gpus": {"util_pct": [value, 50]}}
    assert parse(told) == Telemetry(tree=Tree(processes=3.0), gpus=Gpus(util_pct=(None, 50.0)))


@settings(max_examples=examples(100, 500))
@given(value=JSON)
def test_any_input_gives_telemetry_within_bounds_or_nothing(value: Any) -> None:
    for told in (value, {"gpus": value, "cgroup": value}, {"gpus": {"util_pct": value}, "tree": {"threads": value}}):
        text = heartbeat.parse(raw(telemetry=told)).telemetry
        found = decode(text)
        assert found is None or through_json(found) == found
        figures_of(text)


def test_a_forged_beat_with_16_kb_of_it_is_refused_and_a_part_too_large_is_dropped() -> None:
    with pytest.raises(heartbeat.BeatRejected, match="larger"):
        heartbeat.parse(raw(telemetry={"gpus": {"util_pct": [50] * 6000}}))
    assert heartbeat.parse(raw(telemetry={"gpus": {"util_pct": [50] * 1500}})).telemetry == ""
    many = heartbeat.parse(raw(telemetry={"gpus": {"util_pct": [50] * 300}, "forged": "x" * 300}))
    assert decode(many.telemetry) == Telemetry(gpus=Gpus(util_pct=(50.0,) * MAX_GPUS))


def test_the_text_is_passed_on_unread() -> None:
    told = '{"uptime_s": 5, "unknown": [1,  2]}'
    beat = heartbeat.parse(raw())._replace(telemetry=told)
    assert json.loads(heartbeat.encode(beat))["telemetry"] == told
    assert heartbeat.parse(heartbeat.encode(beat)).telemetry == told
    assert decode(heartbeat.parse(raw(telemetry={"uptime_s": 5})).telemetry) == Telemetry(uptime_s=5.0)


@settings(max_examples=examples(70, 200))
@given(text=JSON.map(json.dumps) | st.text(max_size=200) | st.sampled_from(["[" * 2000, '{"gpus": [NaN]}', "9" * 2000]))
def test_a_forged_text_is_harmless(text: str) -> None:
    told = heartbeat.parse(raw(telemetry=text)).telemetry
    found = decode(told)
    assert found is None or through_json(found) == found
    figures_of(told)


@pytest.mark.parametrize("text", ["x" * (MAX_BYTES + 1), "\ud800", '{"a": "\x00"}', "\u00fc"])
def test_a_text_that_cannot_be_stored_is_dropped(text: str) -> None:
    assert heartbeat.parse(raw(telemetry=text)).telemetry == ""


ODD = st.sampled_from([0, 1, 50, 50.5, -1, 10**17, 10**18, 1e18, 2**70, True, None, "7", [1], [1, None, 2.5] * 8])
NAMES = (
    "util_pct", "memory_used_mib", "memory_total_mib", "memory_bytes", "rss_bytes",
    "free_bytes", "total_bytes", "free_inodes", "total_inodes",
)  # fmt: skip
FIGURES = st.dictionaries(st.sampled_from(NAMES), ODD)
PARTS = st.dictionaries(
    st.sampled_from(["gpus", "cgroup", "tree", "checkpoints_disk", "scratch_disk", "x"]), FIGURES | ODD
)


@settings(max_examples=1000)
@given(parts=PARTS)
def test_the_typed_pass_finds_the_figures_that_the_checked_parts_give(parts: Any) -> None:
    text = json.dumps(parts)

    def refuse(_: str) -> None:
        raise msgspec.DecodeError

    found = figures_of(text)
    with patch.object(five, "_decode", refuse):  # a mock would take longer to make than all the rest
        assert repr(found) == repr(figures_of(text))


def test_figures_of_a_machine() -> None:
    told = figures_of(encode(full(2)))
    assert told.gpu_pct == 92.5
    assert told.gpu_memory_pct == pytest.approx(99.55, abs=0.01)
    assert told.free_bytes_pct == pytest.approx(26.1, abs=0.01)
    assert told.free_inodes_pct == pytest.approx(94.77, abs=0.01)
    tight = Telemetry(
        checkpoints_disk=Disk(500.0, 1000.0, 0.0, 10.0),
        scratch_disk=Disk(10.0, 1000.0),
        tree=Tree(rss_bytes=7.0),
        gpus=Gpus(memory_used_mib=(1.0, None), memory_total_mib=(2.0, 100.0)),
    )
    found = figures_of(encode(tight))
    assert (found.free_bytes_pct, found.free_inodes_pct, found.memory_bytes) == (1.0, 0.0, 7.0)
    assert (found.gpu_pct, found.gpu_memory_pct) == (None, 50.0)
    assert figures_of("") == figures_of("{}") == figures_of("{") == NOTHING
