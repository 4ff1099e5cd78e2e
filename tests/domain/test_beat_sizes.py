"""A beat is custom metadata of its object too, and a bucket allows 8 KiB of it: everything that an agent can report
fits."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from supervisor.agent.watch.beat_state import fit_metrics, fit_text
from supervisor.contract import heartbeat, signs
from supervisor.contract.beat_telemetry import MAX_GPUS, compact, decode, encode
from supervisor.contract.heartbeat import (
    MAX_BYTES,
    MAX_RECENT_BYTES,
    MAX_STORED_BYTES,
    Beat,
    Exit,
    Guess,
    Pruned,
    encode_within,
)
from tests.benchmarks.machine_told import full
from tests.domain.test_beat_telemetry import telemetries
from tests.properties import with_defaults

CORE = ("oom_rose_up_s", "oom_shared", "xids", "hang", "began")
BUCKET_BYTES = 8192  # of all custom keys and values of an object, by Google's page on quotas


def signs_by(text: str) -> signs.Signs:
    """As many as the bounds allow; nothing where `text` is empty."""
    hits = tuple(signs.Hit(f"pattern_{n}", signs.CAUSE, 10**15, text, 1e9, 1e9, 10**15, 10**15) for n in range(9))
    hang = signs.Hang("gpu_kernel", 1e9, 10**15)
    held = tuple((card, 85e9) for card in range(16))
    full_signs = signs.Signs(
        hits, text, 1e9, True, ((15, 119, 1e9),) * 8, held, hang, ("n" * 64,) * 8, 1e9, "pattern_8"
    )
    return full_signs if text else signs.Signs()


texts = st.text(max_size=600).map(fit_text) | st.sampled_from(["x" * 300, "🦊" * 300, '"' * 300]).map(fit_text)
numbers = st.floats(-1e17, 1e17) | st.integers(-(10**15), 10**15)
counts = st.integers(0, 10**15)
reasons = st.sampled_from(["older than the last 3", '"' * 40, "é" * 40])
WIDE = fit_metrics({"é" * 60 + str(n): -1.2345678901234567e17 for n in range(16)})
beats = st.builds(
    with_defaults(Beat),
    run_id=st.just("r" * 63),
    attempt=st.just(999),
    launch_id=st.just("999.999.999"),
    machine_id=st.sampled_from(["1234567890123456789", "local:1a2b3c4d:4194304:123456789012"]),
    boot_id=st.just("b" * 36),
    sequence=counts,
    phase=st.sampled_from(heartbeat.PHASES),
    nonce=st.just("n" * 64),
    step=st.none() | counts,
    total=st.none() | counts,
    checkpoint_step=st.none() | counts,
    resumed_from=st.none() | counts,
    steps_per_s=st.none() | st.floats(0, 1e17),
    guess=st.none() | st.builds(with_defaults(Guess), counts, st.none() | counts, st.none() | st.floats(0, 1e17)),
    notice_s=st.none() | st.floats(0, 150),
    left=st.none() | st.sampled_from(heartbeat.LEFT),
    stop_generation=st.none() | st.just("1234567890123456789"),
    exit=st.none()
    | st.builds(
        with_defaults(Exit), counts, counts, st.booleans(), st.floats(0, 1e9), texts, oom_kills=counts, disk_full=texts
    ),
    message=texts,
    metrics=st.dictionaries(st.text(max_size=64), numbers, max_size=20).map(fit_metrics)
    | st.just(WIDE),
    telemetry=(telemetries | st.just(full(MAX_GPUS))).map(lambda told: encode(compact(told))),
    pruned=st.none() | st.builds(Pruned, counts, st.lists(st.tuples(counts, reasons), max_size=8).map(tuple)),
    recent=st.sampled_from(["", "x" * MAX_RECENT_BYTES, '"' * MAX_RECENT_BYTES]),
    signs=st.sampled_from([signs.encode(signs_by(text)) for text in ("", "x" * 300, "🦊" * 300, '"' * 300)]),
)  # fmt: skip


def spoken(**changes: object) -> Beat:
    told = encode(compact(full(MAX_GPUS)))
    plain = Beat("run-1", 1, "1.1.1", "m", "b", 7, heartbeat.TRAINING, message="pulling", telemetry=told)
    return plain._replace(**changes)  # type: ignore[arg-type]


GUESS = Guess(7, 100, 1.0000000004232524e16)
LONG = spoken(
    metrics=WIDE, guess=GUESS, message='"' * 300, pruned=Pruned(9, ((7, "é" * 40),) * 8),
    signs=signs.encode(signs_by("x" * 300))
)  # fmt: skip
assert len(heartbeat.encode(LONG)) > MAX_STORED_BYTES


@settings(max_examples=40, deadline=None)
@given(beat=beats)
@example(beat=LONG)
def test_every_beat_fits_into_the_metadata_of_an_object(beat: Beat) -> None:
    stored = encode_within(beat, MAX_STORED_BYTES)
    assert len("beat") + len(stored) <= BUCKET_BYTES
    read = heartbeat.parse(stored)
    kept = ("message", "metrics", "telemetry", "pruned", "exit", "recent", "signs", "guess")
    assert {name: value for name, value in read._asdict().items() if name not in kept} == {
        name: value for name, value in beat._asdict().items() if name not in kept
    }
    whole = len(heartbeat.encode(beat._replace(recent=""))) <= MAX_STORED_BYTES
    assert read.guess == (beat.guess if whole else None), "the guess is left out next, and only where that is needed"
    if beat.signs:
        before, after = signs.decode(beat.signs), signs.decode(read.signs)
        assert [getattr(after, name) for name in CORE] == [getattr(before, name) for name in CORE]
        assert "pattern_8" in {hit.pattern for hit in after.hits}
    if beat.exit is not None and read.exit is not None:
        same = ("code", "signal", "sent_by_us", "ran_s", "oom_kills")
        assert [getattr(read.exit, name) for name in same] == [getattr(beat.exit, name) for name in same]


def test_a_small_beat_leaves_nothing_out() -> None:
    assert encode_within(spoken(), MAX_STORED_BYTES) == heartbeat.encode(spoken())


def test_recent_points_are_left_out_first() -> None:
    beat = spoken(metrics={"loss": 0.5}, recent='"' * MAX_RECENT_BYTES)
    whole = len(heartbeat.encode(beat))
    assert encode_within(beat, whole) == heartbeat.encode(beat)
    assert heartbeat.parse(encode_within(beat, whole - 1)) == beat._replace(recent="")


def test_a_guess_is_left_out_next() -> None:
    beat = spoken(metrics={"loss": 0.5}, recent='"' * MAX_RECENT_BYTES, guess=GUESS)
    bare = beat._replace(recent="")
    whole = len(heartbeat.encode(bare))
    assert heartbeat.parse(encode_within(beat, whole)) == bare
    assert heartbeat.parse(encode_within(beat, whole - 1)) == bare._replace(guess=None)


@settings(max_examples=40, deadline=None)
@given(beat=beats)
def test_every_pushed_beat_is_small_enough(beat: Beat) -> None:
    assert heartbeat.parse(encode_within(beat, MAX_BYTES)).sequence == beat.sequence


def test_telemetry_is_left_out_next_in_its_own_order() -> None:
    metrics = {f"m{n}": float(n) for n in range(16)}
    pruned = Pruned(3, ((1, "older"),))
    beat = spoken(metrics=metrics, pruned=pruned)
    whole = len(heartbeat.encode(beat))
    less = heartbeat.parse(encode_within(beat, whole - 50))
    assert (less.metrics, less.pruned, less.message) == (metrics, pruned, "pulling")
    told = decode(less.telemetry)
    assert told is not None
    assert told.gpus is not None
    assert told.gpus.sm_clock_max_mhz == ()
    assert told.gpus.util_pct == full(MAX_GPUS).gpus.util_pct  # type: ignore[union-attr]
    none = heartbeat.parse(encode_within(beat, whole - len(beat.telemetry)))
    assert none.telemetry == ""
    assert none.metrics == metrics
    least = heartbeat.parse(encode_within(beat, 100))
    assert (least.pruned, least.metrics, least.message) == (Pruned(3), {}, "")
    assert least.sequence == 7
