"""Steps guessed from a log: the usual progress lines, what only looks like one, hostile logs, and never a guess beside
a reported step."""

from __future__ import annotations

import random
import timeit
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.agent.watch import guess as guessing
from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.guess import TAIL_BYTES, StepGuess, parse
from supervisor.agent.watch.logwatch import LogWatch
from supervisor.contract.heartbeat import Guess
from tests.agent.bench import IDENTITY, ManualClock, job
from tests.properties import examples

LOOK_S = 2.0


def tqdm(count: int, total: int, label: str = "", unit: str = "it") -> str:
    done = 100 * count // total
    return f"\r{label}{done:3d}%|{'█' * (done // 10):10}| {count}/{total} [00:10<00:20,  9.95{unit}/s, loss=0.31]"


def keras(count: int, total: int) -> str:
    return f"\r\x1b[1m{count}/{total}\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━━\x1b[0m \x1b[1m2s\x1b[0m 5ms/step - loss: 0.3"


def watched(looks: Iterable[str], guesses: StepGuess | None = None, start: float = 0.0) -> list[Guess | None]:
    """What is guessed at each look, LOOK_S after the one before."""
    guesses = guesses or StepGuess()
    seen: list[Guess | None] = []
    for number, text in enumerate(looks):
        guesses.feed(text.encode())
        seen.append(guesses.look(start + LOOK_S * number))
    return seen


def last(looks: Iterable[str]) -> tuple[int, int | None] | None:
    guess = watched([*looks, "\n"])[-1]
    return None if guess is None else (guess.step, guess.total)


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([tqdm(n, 10_000) for n in range(0, 900, 20)], (880, 10_000)),  # Hugging Face
        ([tqdm(n, 500, "Epoch 3: ") for n in range(1, 60)], (1559, None)),  # Lightning counts epochs from 0
        ([tqdm(n, 500, "Epoch 3/10: ") for n in range(1, 60)], (1059, 5000)),
        ([f"Epoch 3/9 ━━━━╸     {n}/500 0:00:12 • 0:00:30 20.5it/s v_num: 0\n" for n in range(1, 60)], (1059, 4500)),
        (["Epoch 2/4\n", *(keras(n, 400) for n in range(1, 90))], (489, 1600)),
        ([f"step {n}/500 loss 0.31\n" for n in range(9)], (8, 500)),
        ([f"2026-01-01 10:00:{n:02} INFO train.py:33 - Step {n} of 500\n" for n in range(9)], (8, 500)),
        ([f"iter {n}: loss 2.31, time 20.1ms\n" for n in range(100, 900, 100)], (800, None)),
        ([f'{{"step": {n}, "loss": 0.31}}\n' for n in range(9)], (8, None)),
        ([f"Epoch: [2][ {n:3}/500]\tTime 0.31 (0.30)\n" for n in range(9)], (508, None)),
        ([f"Train Epoch: 2 [{n * 64}/6400 ({n}%)]\tLoss: 0.3\n" for n in range(9)], (6912, None)),
        ([f"Epoch {n}/30 - loss 0.3\n" for n in range(1, 9) for _ in range(40)], (8, 30)),
        ([f"{n}it [00:10,  9.9it/s]\r" for n in range(1, 60)], (59, None)),
    ],
)
def test_the_usual_progress_lines(looks: list[str], expected: tuple[int, int | None]) -> None:
    assert last(looks) == expected


@pytest.mark.parametrize(
    "looks",
    [
        [tqdm(n, 900, "Validation DataLoader 0: ") for n in range(99)],
        [tqdm(n, 900, "Loading checkpoint shards: ") for n in range(99)],
        [tqdm(n, 900, "Map (num_proc=4): ") for n in range(99)],
        [tqdm(n, 900, "pytorch_model.bin: ", "MB") for n in range(99)],
        [f"\rmodel: 45%|████      | {n}.2M/1.20G [00:10<00:20, 33MB/s]" for n in range(99)],
        [f"eval step {n}/500\n" for n in range(99)],
        [f"Test: [ {n}/196]\tTime 0.3\n" for n in range(99)],
        [f"{{'loss': 0.5, 'epoch': 0.{n:02}}}\n" for n in range(99)],
        ["batch_size=32 max_steps=1000 step 7\n"] * 99,  # nothing moves
        [f"took {n} of 500 files, {n}/500 done\n" for n in range(99)],
    ],
)
def test_what_only_looks_like_a_training(looks: list[str]) -> None:
    assert last(looks) is None


def test_without_its_words_other_work_would_be_taken_for_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guessing, "_OTHER_WORK", b"(?!)")
    assert last([tqdm(n, 900, "Validation DataLoader 0: ") for n in range(99)]) == (98, 900)


def test_epochs_of_one_bar_are_added_up_and_a_validation_between_them_is_not() -> None:
    looks: list[str] = []
    for _ in range(3):
        looks += [tqdm(n, 400) for n in range(0, 401, 10)]
        looks += [tqdm(n, 50) for n in range(0, 51, 10)]  # without a description
    assert last([*looks, *(tqdm(n, 400) for n in range(0, 101, 10))]) == (1300, None)


def test_the_inner_bar_counts_and_not_the_outer_one() -> None:
    looks = [
        "\x1b[A" + tqdm(epoch, 5, "Epochs: ") + "\n" + tqdm(n, 300) for epoch in range(3) for n in range(0, 301, 10)
    ]
    assert last(looks) == (900, None)


def test_a_short_bar_over_data_gives_way_to_the_training() -> None:
    seen = watched([*(tqdm(n, 90_000) for n in range(0, 90_001, 10_000)), *(tqdm(n, 500) for n in range(60))])
    assert seen[9] is not None
    assert seen[9].total == 90_000, "nothing shows yet that it is none"
    assert seen[-1] is not None
    assert (seen[-1].step, seen[-1].total) == (58, 500)


def test_a_last_evaluation_does_not_replace_the_training_that_is_over() -> None:
    training = [tqdm(n, 2000) for n in range(0, 2001, 20)]
    assert last([*training, *(tqdm(n, 120) for n in range(95))]) == (2000, 2000)


def test_the_pace_gives_an_eta_and_ends_with_the_lines() -> None:
    guesses = StepGuess()
    moving = watched((tqdm(n, 10_000) for n in range(0, 900, 20)), guesses)[-1]
    assert moving is not None
    assert moving.steps_per_s == pytest.approx(10.0, rel=0.05)
    still = watched([""] * 200, guesses, start=90.0)[-1]
    assert still == Guess(moving.step, 10_000, None)


def test_a_cut_line_keeps_its_meaning_or_is_left_out() -> None:
    """A flood: the last TAIL_BYTES begin within a line whose first words were cut off."""
    line = "validation step 450/500 " + "x" * 170 + "\n"
    assert last([line.replace("450", str(400 + n)) * 60 for n in range(60)]) is None
    guesses = StepGuess()
    for number in range(60):
        guesses.feed(b"validation ")
        guesses.gap()
        guesses.feed(b"step %d/500\nmore\n" % number)
        assert guesses.look(LOOK_S * number) is None


PIECES = st.lists(
    st.one_of(
        st.binary(max_size=300),
        st.sampled_from([b"\r", b"\n", b"%|", b"\x1b[A", b"Epoch 1/", b"epoch [", b"step ", b" \xe2\x94\x81", b"it ["]),
        st.builds(lambda n, m: b" 5%%| | %d/%d [" % (n, m), st.integers(0, 10**16), st.integers(0, 10**16)),
        st.builds(lambda n, m: b"\nepoch %d/%d step %d/%d\n" % (n, m, m, n), *[st.integers(0, 10**16)] * 2),
        st.builds(lambda n: b"\nstep %d\n" % n, st.integers(-5, 10**15)),
    ),
    max_size=60,
)


def check_hostile(pieces: list[bytes], every: int) -> None:
    guesses = StepGuess()
    for number, piece in enumerate(pieces):
        guesses.feed(piece)
        if number % every:
            continue
        guess = guesses.look(float(number))
        if guess is not None:
            assert 0 <= guess.step <= 10**15
            assert guess.total is None or guess.step <= guess.total <= 10**15
            assert guess.steps_per_s is None or 0 < guess.steps_per_s < 1e18
        assert len(guesses._tail) <= TAIL_BYTES
        assert len(guesses._tracks) <= guessing.TRACKS


@settings(max_examples=examples(150, 20_000), deadline=None)
@given(PIECES, st.integers(1, 4))
def test_no_log_breaks_it(pieces: list[bytes], every: int) -> None:
    check_hostile(pieces, every)


def test_a_guess_without_bounds_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guessing, "MAX_COUNT", 10**40)
    huge = [b"\nepoch %d/%d, batch %d/%d\n" % (10**8 + n, 10**9 - 1, n, 10**14) for n in range(9)]
    with pytest.raises(AssertionError):
        check_hostile(huge, 1)


def test_how_the_log_is_cut_changes_nothing() -> None:
    text = "".join(tqdm(n, 700, "Epoch 1: ") + (keras(n, 50) if n % 3 else "\n") for n in range(400)).encode()
    chance = random.Random(7)
    results = set()
    for _ in range(20):
        guesses = StepGuess()
        for at in range(0, len(text), 4000):
            piece = text[at : at + 4000]
            cuts = sorted(chance.sample(range(len(piece)), 5))
            for begin, end in zip([0, *cuts], [*cuts, len(piece)], strict=True):
                guesses.feed(piece[begin:end])
            guess = guesses.look(at / 1000)
        results.add(guess)
    assert len(results) == 1
    assert guess is not None
    assert guess.step > 700


HOSTILE = (
    b"epoch " * 99, b"0/" * 300, b"%|" * 300, b"step [ " * 99, b" " * 600, b"9" * 600, b"(/ " * 200, b"step 1 / " * 99,
    b"epoch 1 [" + b" " * 600, b"1/1 [" + b"[" * 600, b"\xe2\x94\x81" * 200, b"1it [" * 150,
)  # fmt: skip


def test_a_hostile_line_costs_no_more_than_its_length() -> None:
    """Some 0.06 ms each at most. One repeat inside another one would make it seconds."""
    for line in HOSTILE:
        cut = line[: guessing.LINE_BYTES]
        assert min(timeit.repeat(lambda cut=cut: parse(cut), number=1, repeat=5)) < 0.02, line  # type: ignore[misc]


def test_a_reported_step_ends_the_guesses(tmp_path: Path) -> None:
    log, clock = tmp_path / "log", ManualClock()
    log.touch()
    watch = LogWatch(str(log), up_s=clock)
    state = BeatState(job(), IDENTITY)
    state.add_guess(lambda: watch.guess)
    for number in range(9):
        with log.open("a") as target:
            target.write(f"step {number}/500\n")
        watch.note_step(None)
        watch.step()
        clock.now += LOOK_S
    beat = state.next_beat()
    assert beat.guess == Guess(8, 500, 0.5)
    assert (beat.step, beat.total, beat.checkpoint_step) == (None, None, None)
    state.update(step=3)  # the beat is made before the next look
    assert state.next_beat().guess is None
    watch.note_step(3)
    watch.step()
    assert watch.guess is None
    with log.open("a") as target:
        target.write("step 100/500\n" * 9)
    watch.step()
    assert watch.guess is None


def test_parse_names_kind_and_label() -> None:
    assert parse(b"train step 3/9") == ("step", b"train", 3, 9, None, None)
    assert parse(b"nothing here") is None
