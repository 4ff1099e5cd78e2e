"""What makes a run slow: figures of full windows, nothing while it is well, and the same words as the rules give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.slow import SlowWatch, Wanted, Work, slow_words
from supervisor.contract import signs
from supervisor.contract.beat_telemetry import Cgroup, Disk, Gpus, Telemetry
from supervisor.contract.heartbeat import EVALUATION, TRAINING
from supervisor.contract.signs import SLOW, SLOW_MOUNTS, Signs, Slow, decode, encode
from supervisor.domain.diagnosis.evidence import Source
from supervisor.lifecycle.diagnosis.collecting import Collected, add_signs
from supervisor.lifecycle.diagnosis.diagnose import findings
from supervisor.lifecycle.diagnosis.rules.living import RULES
from supervisor.wording.stalls import slow_text
from tests.agent.bench import IDENTITY, ManualClock, job

SAMPLE_S, WINDOW_S = 10.0, 600.0
WELL = {"util": 96.0, "clock": 1900.0, "power": 650.0, "degrees": 60.0, "reasons": 4.0}
RULE_OF = {
    signs.THROTTLED: "U23.throttled", signs.UNDERFED: "U21.underfed", signs.MOUNT: "U8.mount",
    signs.LOADER: "U24.loader", signs.SMALL_FILES: "U25.small_files", signs.THREADS: "U40.threads",
    signs.SHARED: "GEN7.shared", signs.DOWNLOAD: "U12.download", signs.HALVED: "METRIC.halved",
}  # fmt: skip


class Training:
    """A training whose machine is read every 10 s; `work` is what a look at its processes returns."""

    def __init__(self) -> None:
        self.clock, self.step, self.per_s = ManualClock(), 0, 2.0
        self.state = BeatState(job(), IDENTITY, monotonic=self.clock)
        self.state.update(phase=TRAINING)
        self.work: Callable[[Wanted], Work | None] = lambda wanted: None
        self.wanted: list[Wanted] = []
        self.io: float | None = 1.0
        self.watch = SlowWatch(
            WINDOW_S, self.state, look=self._look, host_io=lambda: self.io, monotonic=self.clock
        )  # fmt: skip
        self.cards: dict[str, float] = dict(WELL)
        self.more: dict[str, Any] = {}

    def _look(self, wanted: Wanted) -> Work | None:
        self.wanted.append(wanted)
        return self.work(wanted)

    def go(self, minutes: float, has_steps: bool = True, **cards: float) -> None:
        self.cards.update(cards)
        for _ in range(round(minutes * 60 / SAMPLE_S)):
            self.clock.now += SAMPLE_S
            if has_steps:
                self.step += round(self.per_s * SAMPLE_S)
                self.state.update(step=self.step)
            self.watch.add(self.telemetry())

    def evaluate(self, minutes: float) -> None:
        self.state.update(phase=EVALUATION)
        self.go(minutes, has_steps=False)
        self.state.update(phase=TRAINING)

    def telemetry(self) -> Telemetry:
        told = self.cards
        cards = Gpus(
            util_pct=(told["util"],),
            memory_used_mib=(40_000.0,),
            sm_clock_mhz=(told["clock"],),
            sm_clock_max_mhz=(1980.0,),
            power_w=(told["power"],),
            power_limit_w=(700.0,),
            temperature_c=(told["degrees"],),
            clock_reasons=(told["reasons"],),
        )
        return Telemetry(**{"gpus": cards, "cgroup": Cgroup(cpu_quota=8.0), **self.more})

    @property
    def words(self) -> list[str]:
        return [slow.word for slow in self.watch.signs().get("slow", ())]


HOT = {"reasons": float(0x40 | 4), "degrees": 91.0, "clock": 900.0}


def test_a_healthy_training_has_figures_and_no_signs() -> None:
    training = Training()
    training.go(60)
    assert training.watch.signs() == {}
    part = training.watch.part()
    assert part["window.gpu_util"] == 96
    assert part["window.clock_reasons"] == 4
    assert part["window.steps_share"] == 1.0
    assert part["window.cpu_quota"] == 8
    assert part["window.sm_clock_share"] == pytest.approx(1900 / 1980, abs=0.001)
    assert "window.reads_per_s" not in part, "nobody read it: it is absent, not zero"


def test_a_throttled_card_is_told_when_the_window_is_full() -> None:
    training = Training()
    training.go(40)
    training.per_s = 1.0
    training.go(5, **HOT)
    assert training.words == []  # the look-alike: hot for five minutes only
    training.go(11)
    [slow] = training.watch.signs()["slow"]
    assert slow.word == signs.THROTTLED
    reasons, share, degrees = slow.figures
    assert reasons == 0x44
    assert share == pytest.approx(0.5, abs=0.04)
    assert degrees == 91
    training.go(180)  # what is slow does not become usual
    assert training.words == [signs.THROTTLED]
    training.per_s = 2.0
    training.go(16, **WELL)
    assert training.words == []


def test_hot_for_five_minutes_is_not_throttled() -> None:
    training = Training()
    training.go(40)
    training.per_s = 1.0
    training.go(5, **HOT)
    training.per_s = 2.0
    training.go(30, **WELL)
    assert training.words == []


def test_slower_without_a_reason_of_the_card_is_not_throttled() -> None:
    training = Training()
    training.go(40)
    training.per_s = 1.2
    training.go(30, degrees=88.0)
    assert training.words == []
    assert training.watch.part()["window.steps_share"] == pytest.approx(0.6, abs=0.02)


def test_steps_at_less_than_half_of_their_usual_pace() -> None:
    """A reason of the card says more: then it is throttled, and not this too."""
    training = Training()
    training.go(40)
    training.per_s = 0.8
    training.go(30)
    assert training.words == [signs.HALVED]
    assert slow_text(training.watch.signs()["slow"][0]) == "its steps are at 40 % of their usual pace"
    training.go(30, **HOT)
    assert training.words == [signs.THROTTLED]


def test_no_window_is_full_before_its_time_and_a_first_compile_does_not_count() -> None:
    training = Training()
    training.go(15, has_steps=False, util=30.0)  # it compiles
    training.go(11)
    assert training.watch.part() == {}
    training.go(3)
    assert training.watch.part()["window.gpu_util"] == 30


def test_a_long_evaluation_empties_the_windows_and_a_short_one_is_left_out() -> None:
    training = Training()
    training.go(40)
    training.evaluate(2)
    training.go(1)
    assert training.watch.part()["window.steps_share"] == pytest.approx(1, abs=0.02), "the evaluation had no steps"
    training.evaluate(20)
    assert training.watch.part() == {}
    training.go(9)
    assert training.watch.part() == {}
    training.go(2)
    assert training.watch.part()["window.gpu_util"] == 96
    assert "window.steps_share" not in training.watch.part()
    training.go(6)
    assert training.watch.part()["window.steps_share"] == pytest.approx(1, abs=0.02), "what is usual was kept"


def test_readings_that_stopped_are_not_shown() -> None:
    training = Training()
    training.go(40)
    training.per_s = 1.0
    training.go(20, **HOT)
    assert training.words
    training.clock.now += WINDOW_S / 2 + 1
    assert training.watch.signs() == {}
    assert training.watch.part() == {}


def test_steps_that_are_too_long_to_say_are_not_compared() -> None:
    training = Training()
    for _ in range(20):
        training.per_s = 0.1 if training.step == 0 else 0.0
        training.go(1)
        training.step += 1
        training.go(2)
    assert "window.steps_share" not in training.watch.part()


def test_many_small_files_are_counted_by_the_inodes_of_a_disk() -> None:
    training = Training()
    used = 1e6
    for _ in range(30):
        used += 200 * 60
        training.more = {"scratch_disk": Disk(free_inodes=1e8 - used, total_inodes=1e8)}
        training.go(1)
    [slow] = training.watch.signs()["slow"]
    assert slow.word == signs.SMALL_FILES
    assert slow.figures[2] == pytest.approx(200, rel=0.15)


def work(at: float, **more: Any) -> Work:
    """A main process that waits, four busy workers, and 2,000 reads of 4 KB a second."""
    cpu_s = {1: 0.1 * at, **dict.fromkeys((2, 3, 4, 5), 0.97 * at)}
    return Work(at, cpu_s, {2: (2000 * at, 8_192_000 * at)}, (2, 3, 4, 5), 1, **more)


def test_what_the_processes_did() -> None:
    training = Training()
    training.work = lambda wanted: work(training.clock.now, periods=(10 * training.clock.now, 4 * training.clock.now))
    training.go(20, util=40.0)
    part = training.watch.part()
    assert part["window.loader_cpu"] == pytest.approx(97)
    assert part["window.reads_per_s"] == pytest.approx(2000)
    assert part["window.read_bytes"] == pytest.approx(4096)
    assert part["window.throttled_share"] == pytest.approx(0.4)
    assert set(training.words) == {signs.LOADER, signs.SMALL_FILES}


def test_workers_of_a_busy_process_are_not_what_it_waits_for() -> None:
    training = Training()
    training.work = lambda wanted: work(training.clock.now)._replace(
        cpu_s={1: training.clock.now, 2: training.clock.now}
    )
    training.go(20, util=40.0)
    assert "window.loader_cpu" not in training.watch.part()


def test_what_costs_more_is_read_only_where_a_figure_needs_it() -> None:
    training = Training()
    training.go(30)
    assert set(training.wanted) == {Wanted()}
    training.io = 60.0
    training.work = lambda wanted: work(training.clock.now, mount="nfs4" if wanted.mount else "")
    training.go(15, util=30.0)
    assert training.wanted[-1] == Wanted(mount=True)
    assert [slow for slow in training.watch.signs()["slow"] if slow.word == signs.MOUNT] == [
        Slow(signs.MOUNT, (pytest.approx(60, rel=0.1), pytest.approx(30, rel=0.1)), "nfs4")
    ]


def test_more_threads_than_the_quota_runs() -> None:
    training = Training()

    def look(wanted: Wanted) -> Work:
        now = training.clock.now
        return work(now, periods=(10 * now, 5 * now), runnable=64.0 if wanted.runnable else None)

    training.work = look
    training.go(25, util=5.0)
    [slow] = [slow for slow in training.watch.signs()["slow"] if slow.word == signs.THREADS]
    assert slow.figures == (64, 8, 0.5, 5)


def test_a_download_that_stands_still() -> None:
    training = Training()
    size = {"/data/model.incomplete": 7e9}
    training.work = lambda wanted: work(training.clock.now, downloads=dict(size) if wanted.downloads else None)
    training.go(2, has_steps=False)
    for _ in range(4):
        size["/data/model.incomplete"] += 1e8
        training.go(1, has_steps=False)
    assert training.words == []
    training.go(4, has_steps=False)
    assert training.words == [signs.DOWNLOAD]
    size.clear()
    training.go(1.5, has_steps=False)
    assert training.words == []


# --- in a beat --------------------------------------------------------------------------------------------------------

FIGURES = {
    "window.gpu_util": (0.0, 9.0, 19.0, 20.0, 49.0, 50.0, 69.0, 70.0, 95.0, 96.0, 100.0),
    "window.sm_clock_share": (0.3, 0.49, 0.5, 1.0),
    "window.power_share": (0.3, 0.39, 0.4, 1.0),
    "window.clock_reasons": (0.0, 4.0, 8.0, 32.0, 64.0, 128.0, 256.0, 65.0),
    "window.steps_share": (0.4, 0.49, 0.5, 0.74, 0.75, 0.89, 0.9, 1.0),
    "window.temperature": (60.0, 90.0),
    "window.io_pressure": (0.0, 40.0, 41.0),
    "window.throttled_share": (0.0, 0.2, 0.21),
    "window.threads": (1.0, 16.0, 17.0),
    "window.cpu_quota": (8.0,),
    "window.read_bytes": (100.0, 16_384.0),
    "window.reads_per_s": (1000.0, 1001.0),
    "window.new_inodes_per_s": (0.0, 100.0, 101.0),
    "window.card_others_bytes": (0.0, 2.0**30, 2.0**31),
    "window.download_still_s": (120.0, 121.0),
    "window.loader_cpu": (90.0, 91.0),
}
figures = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in FIGURES.items()})


def found(into: Collected) -> set[str]:
    return {verdict.rule for verdict in findings(into.evidence(), RULES)}


@given(figures, st.sampled_from(("", "ext4", "overlay", *SLOW_MOUNTS)))
def test_a_beat_gives_the_same_findings_as_all_figures(figures: dict[str, float], mount: str) -> None:
    """The agent leaves out what is not notable: no finding may be lost or added by that."""
    if "window.cpu_quota" not in figures:
        figures.pop("window.threads", None)  # they are counted only where there is a quota
    all_figures, told = Collected(), Collected()
    for name, value in figures.items():
        all_figures.add(name, value, Source.AGENT)
    all_figures.add("mount.data", mount, Source.AGENT)
    slow = slow_words(figures, mount)
    text = encode(Signs(slow=slow, up_s=1.0))
    assert bool(text) == bool(slow)
    assert len(text) <= signs.MAX_BYTES / 2
    add_signs(told, decode(text))
    assert found(told) == found(all_figures) == {RULE_OF[each.word] for each in slow}


@pytest.mark.parametrize(
    "row",
    [
        '["throttled"]', '["throttled","",64,0.5]', '["throttled","",null,null,null]', '["unknown","",1]', "7",
        '[["throttled"],"",64,0.5,80]', '["throttled",7,"x",true,[]]',
    ],
)  # fmt: skip
def test_rows_that_make_no_sense_are_dropped(row: str) -> None:
    assert decode('{"slow":[%s,["download","",130]],"up_s":1}' % row).slow == (Slow(signs.DOWNLOAD, (130.0,)),)


def test_a_detail_is_a_short_word_and_the_rest_of_an_unknown_agent_is_kept() -> None:
    [slow] = decode('{"slow":[["mount","<b>x</b>",45,30]],"later":[1]}').slow
    assert slow == Slow(signs.MOUNT, (45.0, 30.0), "")
    assert all(len(SLOW[word]) <= 4 for word in SLOW)
