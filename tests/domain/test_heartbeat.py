"""A beat is untrusted input: any input gives a beat within bounds or BeatRejected, and nothing else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_PRUNED,
    MAX_RECENT_BYTES,
    Beat,
    BeatRejected,
    Exit,
    Pruned,
    encode,
    parse,
)
from tests.properties import examples, with_defaults

LEAST: dict[str, Any] = {
    "run_id": "digits", "attempt": 2, "launch_id": "1.2.3", "machine_id": "local:ab:1:2", "boot_id": "boot",
    "sequence": 7, "phase": "training",
}  # fmt: skip
COUNTS = ("sequence", "step", "total", "checkpoint_step", "resumed_from", "rejected_checkpoint")
TEXTS = ("machine_id", "boot_id", "nonce", "message", "stop_generation")
NUMBERS = ("steps_per_s", "notice_s")


def raw(**fields: Any) -> bytes:
    return json.dumps({**LEAST, **fields}).encode()


def refused(data: bytes) -> str:
    with pytest.raises(BeatRejected) as caught:
        parse(data)
    return str(caught.value)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
counts = st.none() | st.integers(0, MAX_COUNT)
numbers = st.none() | st.floats(-1e17, 1e17)
exits = st.none() | st.builds(
    with_defaults(Exit), counts, counts, st.booleans(), st.floats(0, 1e9), texts, st.booleans()
)
removed = st.tuples(st.integers(0, MAX_COUNT), texts.filter(bool))
accounts = st.builds(
    with_defaults(Pruned), st.integers(0, MAX_COUNT), st.lists(removed, max_size=MAX_PRUNED).map(tuple)
)
metrics = st.dictionaries(texts.filter(str.isprintable), st.floats(-1e17, 1e17), max_size=16)
beats = st.builds(
    with_defaults(Beat),
    st.just("digits"), st.just(2), st.just("1.2.3"), texts, texts, st.integers(0, MAX_COUNT),
    st.sampled_from(heartbeat.PHASES), texts, counts, counts, counts, counts, numbers, numbers,
    st.none() | st.sampled_from(heartbeat.LEFT), st.none() | texts.filter(bool), exits, texts,
    metrics, counts, st.sampled_from(["", "{\"uptime_s\":5}"]),
    st.none() | accounts,
)  # fmt: skip


@given(beat=beats)
def test_a_sent_beat_is_read_unchanged(beat: Beat) -> None:
    assert parse(encode(beat)) == beat


def test_an_absent_field_is_not_zero() -> None:
    beat = parse(raw())
    assert beat.step is beat.total is beat.checkpoint_step is beat.exit is beat.left is beat.steps_per_s is None
    assert parse(raw(step=0)).step == 0
    assert b"step" not in encode(beat)
    for kills in (None, 0, 3):  # unknown is not zero
        end = Exit(code=None, signal=9, sent_by_us=False, oom_kills=kills, disk_full="scratch: 0 of 8 MiB are free")
        sent = parse(raw())._replace(exit=end)
        assert parse(encode(sent)).exit == end
    assert parse(raw(exit={"code": 0})).exit == Exit(code=0, signal=None, sent_by_us=False)


@pytest.mark.parametrize(
    "account",
    [
        7, [], {"count": -1}, {"count": 1, "last": 7}, {"count": 9, "last": [[1, "x"]] * (MAX_PRUNED + 1)},
        {"count": 1, "last": [[1, ""]]}, {"count": 1, "last": [[1, "x" * 41]]}, {"count": 1, "last": [["1", "x"]]},
        {"count": 1, "last": [[1]]}, {"count": 1, "last": [[1, None]]}, {"count": 1, "last": [{}]},
    ],
)  # fmt: skip
def test_absurd_removed_checkpoints_are_refused(account: Any) -> None:
    refused(raw(pruned=account))


def test_a_newer_agent_may_send_more_fields() -> None:
    assert parse(raw(gpu_temperature=[1, {"x": None}])) == parse(raw())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=examples(100, 300))
@given(value=JSON | st.text(max_size=60))
def test_recent_points_are_never_a_reason_to_refuse_a_beat(value: Any) -> None:
    beat = parse(raw(recent=value, step=3))
    assert beat._replace(recent="") == parse(raw(step=3))
    assert beat.recent in ("", value)
    assert beat.recent.isascii()
    assert "\x00" not in beat.recent


def test_recent_points_that_are_too_long_are_left_out() -> None:
    assert parse(raw(recent="x" * MAX_RECENT_BYTES)).recent == "x" * MAX_RECENT_BYTES
    assert parse(raw(recent="x" * (MAX_RECENT_BYTES + 1))).recent == ""


@settings(max_examples=examples(100, 500))
@given(data=st.binary(max_size=300))
def test_bytes_are_refused(data: bytes) -> None:
    refused(data)


@settings(max_examples=examples(200, 1000))
@given(name=st.sampled_from([*LEAST, *COUNTS, *TEXTS, *NUMBERS, "exit", "left", "metrics"]), value=JSON)
def test_one_odd_field_is_a_beat_within_bounds_or_refused(name: str, value: Any) -> None:
    try:
        beat = parse(raw(**{name: value}))
    except BeatRejected as error:
        said = str(error)
    else:
        assert_within_bounds(beat)
        return
    assert 0 < len(said) < 120
    assert not any(char in said for char in "\x00\ud800")


def assert_within_bounds(beat: Beat) -> None:
    for field in COUNTS:
        count = getattr(beat, field)
        assert count is None or (type(count) is int and 0 <= count <= MAX_COUNT)
    for number in (beat.steps_per_s, beat.notice_s, *beat.metrics.values()):
        assert number is None or (type(number) is float and math.isfinite(number))
    for text in (*(getattr(beat, field) or "" for field in TEXTS), *beat.metrics):
        assert "\x00" not in text
        assert text == text.encode().decode()
    assert parse(encode(beat)) == beat


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize("value", ["10**18", "-1", "1.5", "1e3", "true", '"7"', "NaN", "Infinity", "[]", "9" * 4000])
def test_an_absurd_count_is_refused(field: str, value: str) -> None:
    text = raw(**{field: "HERE"}).replace(b'"HERE"', str(10**18).encode() if value == "10**18" else value.encode())
    assert field in refused(text)
    assert getattr(parse(raw(**{field: MAX_COUNT})), field) == MAX_COUNT


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", [b"NaN", b"-Infinity", b"1e999", b"1e18", b"true", b'"1"', b"[]"])
def test_an_absurd_number_is_refused(field: str, value: bytes) -> None:
    assert field in refused(raw(**{field: "HERE"}).replace(b'"HERE"', value))


def test_a_number_too_long_for_python_is_refused() -> None:
    refused(raw(step=7).replace(b"7", b"7" * 5000, 1))
    refused(b'{"step": ' + b"7" * 5000 + b"}")


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("value", ["a\x00b", "x" * 301, 7, ["x"], {"x": 1}, None])
def test_an_absurd_text_is_refused(field: str, value: Any) -> None:
    assert field in refused(raw(**{field: value}))


def test_a_lone_surrogate_is_replaced() -> None:
    beat = parse(raw(message="loss \ud800", metrics={"\udc00": 1.0}, exit={"last_line": "\ud800"}))
    assert beat.message == "loss ?"
    assert beat.metrics == {"?": 1.0}
    assert beat.exit is not None
    assert beat.exit.last_line == "?"


@pytest.mark.parametrize(
    "fields",
    [
        {"run_id": "../../etc"}, {"run_id": "X"}, {"run_id": "a" * 64}, {"run_id": 7}, {"run_id": "a\x00b"},
        {"launch_id": "1.2"}, {"launch_id": "1.2.03"}, {"launch_id": "0.2.3"}, {"launch_id": "1.2.3\n"},
        {"launch_id": None}, {"attempt": 3}, {"attempt": None}, {"attempt": "2"},
        {"attempt": True, "launch_id": "1.1.1"},
        {"phase": "dancing"}, {"phase": None}, {"left": "bored"},
        {"exit": "0"}, {"exit": {"code": -1}}, {"exit": {"code": 10**18}}, {"exit": {"signal": 1.5}},
        {"exit": {"ran_s": True}}, {"exit": {"last_line": "x" * 301}},
        {"metrics": [1]}, {"metrics": {"loss": "low"}}, {"metrics": {"loss": True}},
        {"metrics": {str(n): n for n in range(17)}},
    ],
)  # fmt: skip
def test_a_forged_beat_is_refused(fields: dict[str, Any]) -> None:
    refused(raw(**fields))


@pytest.mark.parametrize("missing", ["run_id", "launch_id", "attempt", "phase"])
def test_a_beat_without_its_identity_is_refused(missing: str) -> None:
    refused(json.dumps({name: value for name, value in LEAST.items() if name != missing}).encode())


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b'"beat"', b"7", b"{", b"\xff\xfe", b"\x00", raw()[:-1], raw() + b"}", b"NaN"]
)
def test_a_value_that_is_no_object_is_refused(data: bytes) -> None:
    refused(data)


@pytest.mark.parametrize("data", [b"[" * 4000, b'{"a":' * 1300, b'{"x":' + b"[" * 4000 + b"]" * 4000 + b"}"])
def test_depth_is_refused(data: bytes) -> None:
    assert "not JSON" in refused(data)


def test_size_is_refused_before_anything_is_read() -> None:
    assert str(MAX_BYTES) in refused(b"x" * 1_000_000)
    padded = raw(pad="x" * MAX_BYTES)
    assert str(MAX_BYTES) in refused(padded)
    assert parse(raw(pad="x" * 7_000)).sequence == 7


def test_a_refusal_never_repeats_the_input() -> None:
    secret = "tell-nobody"
    for fields in (
        {"phase": secret},
        {"left": secret},
        {"run_id": secret + "/"},
        {"launch_id": secret},
        {"step": secret},
    ):
        assert secret not in refused(raw(**fields))


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_figures_that_cannot_be_written_again_are_left_out(figure: str) -> None:
    """A beat is written again on its way between replicas: one that failed there would delay those of all runs."""
    told = raw()[:-1] + b', "telemetry": {"uptime_s": %s}}' % figure.encode()
    assert heartbeat.encode(parse(told)) == heartbeat.encode(parse(raw()))


def test_a_metric_without_a_number_affects_only_itself() -> None:
    hidden = {"nul\x00": 1, "a\u202eb": 1, "\x9b": 1, "a\nb": 1}
    beat = parse(raw(metrics={"loss": 0.25, "long name " * 10: 1, "none": None, **hidden, "int": 3}))
    assert beat.metrics == {"loss": 0.25, "int": 3.0}
