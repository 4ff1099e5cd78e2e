"""The watch over the log: what began the end, what the training survived, secrets, floods, and a real life."""

import json
import os
import random
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.machine.masking import Masker
from supervisor.agent.watch import logwatch
from supervisor.agent.watch.logwatch import LogWatch
from supervisor.contract import runfiles
from supervisor.contract.signs import decode
from supervisor.domain.causes import Cause
from supervisor.domain.observation import Observation
from supervisor.lifecycle.diagnosis.diagnose import diagnose
from supervisor.lifecycle.diagnosis.reading import of_beat, of_document
from tests.agent.bench import RUN
from tests.agent.machine_rig import Rig
from tests.agent.test_exits import OOM, TRACEBACK

SECRET = "hunter2-of-the-store"
KEY = "KeyError: 'loss'"


class Log:
    """A file that a command writes, and the watch over it."""

    def __init__(self, folder: Path, masker: "Masker | None" = None) -> None:
        self.path = folder / "log"
        self.path.touch()
        self.watch = LogWatch(str(self.path), masker or Masker({}), lambda: 12.5)

    def write(self, *lines: str) -> None:
        with self.path.open("a") as log:
            log.write("".join(line + "\n" for line in lines))

    def report(self, step: "int | None") -> None:
        """As the main thread does at three ticks: before the report, when it is read, and later."""
        for _ in range(2):
            self.watch.note_step(self.watch._step)
        self.watch.note_step(step)

    def steps_after(self) -> Any:
        return {hit["pattern"]: hit["steps_after"] for hit in self.watch.part()["log_hits"]}


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_what_the_training_survived_did_not_begin_the_end(log: Log) -> None:
    log.report(1)
    log.write("step 1", OOM, "half the batch")
    log.watch.step()
    log.report(2)
    log.report(5)
    log.write("stopped by the schedule")
    assert log.watch.conclude(3, hurry=False) == ""
    assert log.steps_after() == {"gpu_oom": 4}
    assert log.watch.hits() == ()


def test_what_no_step_came_after_began_it(log: Log) -> None:
    log.report(1)
    log.write(OOM)
    log.report(2)
    log.write(OOM, "bye")
    assert log.watch.conclude(3, hurry=False) == OOM
    (hit,) = log.watch.hits()
    assert (hit.pattern, hit.count, hit.steps_after, hit.lines_after, hit.last_up_s) == ("gpu_oom", 2, 0, 1, 12.5)
    assert log.watch.began == ("gpu_oom", OOM)


def test_a_step_that_may_have_come_before_the_words_does_not_count(log: Log) -> None:
    """The step is read in the call after the one that saw the log grow: nobody knows which came first."""
    log.watch.note_step(None)
    log.write(OOM)
    log.watch.note_step(None)
    log.watch.note_step(7)
    assert log.watch.conclude(1, hurry=False) == OOM
    assert log.steps_after() == {"gpu_oom": 0}


def test_a_command_without_steps_says_nothing_about_them(log: Log) -> None:
    log.write(OOM)
    log.watch.conclude(1, hurry=False)
    assert log.steps_after() == {"gpu_oom": None}


def test_a_log_that_was_emptied_is_read_again(log: Log) -> None:
    log.write("x" * 100, OOM)
    log.watch.step()
    log.report(1)
    log.report(2)
    log.path.write_text("")
    log.watch.step()
    log.write(KEY, "OSError: [Errno 28] No space left on device")
    log.watch.step()
    assert log.watch.conclude(1, hurry=False).startswith("OSError")
    assert log.steps_after() == {"gpu_oom": 2, "no_space": 0}
    assert Log(log.path.parent / "..").watch.conclude(1, hurry=False) == ""


def test_a_log_that_is_gone_or_no_file_is_no_error(log: Log) -> None:
    log.path.unlink()
    assert log.watch.step() == logwatch.PERIOD_S
    log.path.mkdir()
    log.watch.step()
    assert log.watch.conclude(1, hurry=True) == ""


def test_colors_inside_a_secret_do_not_show_it(tmp_path: Path) -> None:
    """Broken variant: the colors were removed after the masking, which joined the value in beats and evidence."""
    half = len(SECRET) // 2
    colored = f"{SECRET[:half]}\x1b[1;36m{SECRET[half:]}\x1b[0m"
    log = Log(tmp_path, Masker({"TOKEN": SECRET}))
    log.write(f"got {colored}", "x" * (256 - half - 4) + f"    {colored}", f"{OOM} {colored}")
    log.watch.step()
    log.write("bye", TRACEBACK, "  File x", f"KeyError: '{colored}'")
    assert log.watch.conclude(1, hurry=False) == "KeyError: '[secret TOKEN]'"
    shown = json.dumps([log.watch.part(), str(log.watch.hits())])
    assert shown.count("[secret TOKEN]") > 3
    assert SECRET[:half] not in shown


def test_a_read_that_began_before_the_end_reads_nothing_twice(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: the older size of its file looked like a file that was emptied, so all of it was read again, as
    if no step had come after it."""
    enders: list[threading.Thread] = []
    calls: list[int] = []
    real = os.fstat

    def fstat(file: int) -> os.stat_result:
        status = real(file)
        calls.append(file)
        if len(calls) == 2:  # the first one is of `open_plain`
            log.write(KEY)
            enders.append(threading.Thread(target=log.watch.conclude, args=(1, False)))
            enders[0].start()
            enders[0].join(0.2)
        return status

    log.write(OOM)
    monkeypatch.setattr(os, "fstat", fstat)
    log.watch.step()
    enders[0].join()
    (hit,) = log.watch.part()["log_hits"]
    assert (hit["pattern"], hit["count"], hit["last"]["offset"]) == ("gpu_oom", 1, 0)


@pytest.mark.parametrize("pieces", [(7,), (64, 1), (1 << 18,)])
def test_no_secret_leaves_wherever_a_value_is_cut(tmp_path: Path, pieces: "tuple[int, ...]") -> None:
    """A value in several lines too: the lines around a hit hold a part of it."""
    key = (
        "-----BEGIN KEY-----\n"
        + "\n".join("abcdefgh%04dijklmnop" % number for number in range(40))
        + "\n-----END KEY-----"
    )
    text = f"a\nb\n{key}\n{OOM} {SECRET}\ntoken={SECRET}\n{TRACEBACK}\n  File x\nKeyError: '{SECRET}'\n"
    log = Log(tmp_path, Masker({"TOKEN": SECRET, "KEY": key}))
    at = 0
    while at < len(text):
        for size in pieces:
            with log.path.open("a") as out:
                out.write(text[at : at + size])
            at += size
            log.watch.step()
    line = log.watch.conclude(1, hurry=False)
    assert line == "KeyError: '[secret TOKEN]'"
    shown = json.dumps([log.watch.part(), str(log.watch.hits())])
    assert "[secret TOKEN]" in shown
    assert SECRET not in shown
    assert "abcdefgh00" not in shown


def test_of_a_flood_the_beginning_and_the_end_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logwatch, "HURRY_BYTES", 50_000)
    monkeypatch.setattr(logwatch, "SAMPLE_BYTES", 10_000)
    for cut in (0, 3, 11):  # where the sample begins: within the value, in all
        log = Log(tmp_path, Masker({"TOKEN": SECRET}))
        end = f"{TRACEBACK}\n  File x\n{KEY}\n"
        middle = "y" * 80_000 + OOM + "z" * 60_000
        filler = "w" * (10_000 - len(end) - len(SECRET) + cut - 1)
        log.path.write_text(f"MemoryError\n{middle}\n{SECRET}\n{filler}"[:-1] + "\n" + end)
        assert log.watch.conclude(1, hurry=True) == KEY
        part = log.watch.part()
        assert part["log_sampled"]
        assert {row["pattern"] for row in part["log_hits"]} == {"memory_refused"}
        assert SECRET[-8:] not in json.dumps(part)


class Spent:
    """CPU time: each reading of it costs so much, as if each piece did."""

    def __init__(self, of_a_piece_s: float) -> None:
        self.now, self.of_a_piece_s = 0.0, of_a_piece_s

    def __call__(self) -> float:
        self.now += self.of_a_piece_s
        return self.now


def test_a_flood_of_errors_costs_a_small_part_of_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 MB/s of lines that each cost a search, for 20 minutes; then the command ends with another error."""
    monkeypatch.setattr(logwatch, "PIECE_BYTES", 2000)
    monkeypatch.setattr(logwatch, "TAIL_BYTES", 4000)
    monkeypatch.setattr(logwatch, "SAMPLE_BYTES", 4000)
    now, spent = [0.0], Spent(0.1)
    path = tmp_path / "log"
    path.write_text("MemoryError\n")
    watch = LogWatch(str(path), Masker({}), lambda: now[0], spent)
    with path.open("a") as log:
        for number in range(600):
            log.write(f"{OOM} {number}\n" * 100)
            log.flush()
            watch.step()
            now[0] += 2.0
        assert spent.now < 0.03 * now[0] + 2 * logwatch.BURST_S
        hits = {row["pattern"]: row for row in watch.part()["log_hits"]}
        assert [hits[name]["first"]["up_s"] for name in ("memory_refused", "gpu_oom")] == [0.0, 0.0]
        assert hits["gpu_oom"]["last"]["up_s"] > 1000.0, "the newest lines are read again and again"
        log.write(f"{TRACEBACK}\n  File x\n{KEY}\n")
    before = spent.now
    assert watch.conclude(1, hurry=False) == KEY
    assert spent.now - before < 2 * logwatch.END_CPU_S
    assert watch.part()["log_sampled"]
    last = watch.part()["log_hits"][-1]["last"]
    assert (last["line"], last["offset"]) == (f"{OOM} 599", path.read_text().rindex(OOM))


def test_a_short_flood_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(f"{OOM}\n" * 5000)
    watch = LogWatch(str(path))
    watch.step()
    assert (watch.part()["log_sampled"], watch.part()["log_hits"][0]["count"]) == (False, 5000)


def test_a_watch_that_reads_less_than_all_is_noticed(tmp_path: Path) -> None:
    """By chance: however the log grows, the result is the one of the whole log."""
    chance = random.Random(19)
    lines = [OOM, "MemoryError", "step 1", "step 2 \r", "\x1b[31mKilled\x1b[0m", TRACEBACK, "  File x", KEY, "é" * 50]
    for number in range(60):
        text = "".join(chance.choice(lines) + "\n" for _ in range(40)).encode()
        log, whole = Log(tmp_path), Log(tmp_path)
        log.path.write_bytes(b"")
        at = 0
        while at < len(text):
            size = chance.choice((1, 30, 400))
            with log.path.open("ab") as out:
                out.write(text[at : at + size])
            at += size
            log.watch.step()
        assert log.watch.conclude(1, hurry=False) == whole.watch.conclude(1, hurry=False), number
        assert log.watch.part() == whole.watch.part()


def test_a_quiet_log_is_not_even_opened(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write("step 1")
    log.watch.step()
    opened: list[str] = []
    monkeypatch.setattr(logwatch, "open_plain", opened.append)
    for _ in range(3):
        log.watch.step()
    assert opened == []


# --- a real life ------------------------------------------------------------------------------------------------------

CAUGHT = """
    import os, sys
    import spot_progress
    spot_progress.report(1, total=100)
    print("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", flush=True)
    print("with", os.environ["TOKEN"], "and half the batch", flush=True)
    for number in range(20):
        print("item", number, flush=True)
    print("[rank0]: Traceback (most recent call last):")
    print('[rank0]:   File "train.py", line 12, in step')
    print('[rank0]:     raise KeyError("CUDA out of memory")')
    print("[rank0]: KeyError: 'loss'", flush=True)
    sys.exit(1)
"""


def test_words_that_were_caught_do_not_make_a_bug_a_lack_of_memory(rig: Rig) -> None:
    """20 lines before an error behind a rank's prefix; no step came between, so only the traceback tells."""
    rig.given = json.dumps({"TOKEN": SECRET}).encode()
    rig.start(sys.executable, "-c", textwrap.dedent(CAUGHT), secrets=["TOKEN"])
    beat = rig.ended()
    assert beat.exit is not None
    assert beat.exit.last_line == KEY
    verdict = diagnose(of_beat(None, beat, Observation(), None))
    assert verdict.cause == Cause.USER_ERROR
    assert KEY in verdict.sentence
    signs = decode(beat.signs)
    assert (signs.began, signs.error) == ("", KEY)
    assert [(hit.pattern, hit.steps_after) for hit in signs.hits] == [("gpu_oom", 0)]
    raw = rig.store.get(runfiles.agent_evidence(RUN, 1))[0]
    part = json.loads(raw)
    (row,) = part["log_hits"]
    assert (row["pattern"], row["role"], row["count"]) == ("gpu_oom", "cause", 1)
    assert row["last"]["after"][:2] == ["with [secret TOKEN] and half the batch", "item 0"]
    assert part["log_began"] == {"pattern": "", "line": KEY}
    assert part["signs"]["error"] == KEY
    assert of_document({"agent": part}).error == KEY
    assert SECRET.encode() not in raw
