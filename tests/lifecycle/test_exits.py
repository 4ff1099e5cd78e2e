"""Ends that look alike: the kernel's counter, a foreign signal, a full disk, a full GPU; and ends that two signs prove.
The figures of the kernel are recorded ones: tests/acceptance makes real ones where the machine allows it."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from supervisor.contract.beat_telemetry import Cgroup, Telemetry, encode
from supervisor.contract.heartbeat import FINISHED, NO_GPU, Beat, Exit
from supervisor.domain.causes import Cause
from tests.lifecycle.ends import end_of

BYTES = "scratch: 0 of 16 MiB are free"
INODES = "scratch: 0 of 500 inodes are free, and 60 MiB"
NO_SPACE = "OSError: [Errno 28] No space left on device: 'best.pt.tmp'"
CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has 22.5 GiB, 0.9 GiB is free."
WORKER = "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed."

Judge = Callable[[Beat], tuple[Cause, str] | None]


def beat(end: Exit | None, memory: float | None = None, limit: float | None = None, **more: object) -> Beat:
    telemetry = "" if memory is None else encode(Telemetry(cgroup=Cgroup(memory_bytes=memory, memory_max_bytes=limit)))
    made = Beat("r", 1, "1.1.1", "m", "b", 7, FINISHED, exit=end, telemetry=telemetry)
    return made._replace(**more)  # type: ignore[arg-type]


def killed(oom_kills: int | None, number: int = signal.SIGKILL) -> Exit:
    return Exit(None, int(number), False, 40.0, "step 300", oom_kills=oom_kills)


def failed(line: str, disk_full: str = "", code: int = 1, oom_kills: int | None = 0) -> Exit:
    return Exit(code, None, False, 40.0, line, oom_kills=oom_kills, disk_full=disk_full)


# (the beat, the cause, words of its text, words that its text must not contain)
CASES: dict[str, tuple[Beat, Cause, tuple[str, ...], tuple[str, ...]]] = {
    "the counter rose": (
        beat(killed(1)),
        Cause.HOST_OOM,
        ("memory limit hit", "certain: the kernel counted 1 kill)", "num_workers", "batch can stay"),
        ("likely",),
    ),
    "the counter rose twice, with an exit code": (
        beat(failed("Killed", code=137, oom_kills=2)),
        Cause.HOST_OOM,
        ("2 kills",),
        (),
    ),
    "a worker of the loader was killed by the kernel": (
        beat(failed(WORKER, oom_kills=1)),
        Cause.HOST_OOM,
        ("certain", "num_workers"),
        (),
    ),
    "a worker was killed by another process": (
        beat(failed(WORKER, oom_kills=0)),
        Cause.USER_ERROR,
        ("killed by signal",),
        ("memory limit",),
    ),
    "the counter stood still": (
        beat(killed(0), memory=9.9e8, limit=1e9),
        Cause.KILLED,
        ("SIGKILL came from outside", "not out of memory: the counter stood still", "do not shrink the batch"),
        (),
    ),
    "no counter, and memory at its limit": (
        beat(killed(None), memory=9.7e8, limit=1e9),
        Cause.HOST_OOM,
        ("likely: 97 % of it in use",),
        ("certain",),
    ),
    "no counter, and memory to spare": (
        beat(killed(None), memory=5e8, limit=1e9),
        Cause.KILLED,
        ("the agent did not send it",),
        ("counter", "batch"),
    ),
    "no counter, and no limit": (beat(killed(None), memory=5e8), Cause.KILLED, (), ("counter", "batch")),
    "a foreign TERM, though the kernel killed a worker before": (
        beat(killed(1, signal.SIGTERM)),
        Cause.KILLED,
        ("SIGTERM came from outside",),
        ("memory", "batch"),
    ),
    "a hang-up": (beat(killed(0, signal.SIGHUP)), Cause.KILLED, ("SIGHUP (hang-up)",), ("memory",)),
    "the computer's limit of CPU time": (
        beat(killed(0, signal.SIGXCPU)),
        Cause.TIME_LIMIT,
        ("SIGXCPU", "soft limit of CPU time", "ulimit -S -t"),
        ("the agent did not send",),
    ),
    "the same, as a shell reports it": (beat(failed("step 300", code=152)), Cause.TIME_LIMIT, (), ()),
    "a crash": (beat(killed(0, signal.SIGSEGV)), Cause.USER_ERROR, ("SIGSEGV",), ()),
    "words and figure of a full disk": (
        beat(failed(NO_SPACE, BYTES)),
        Cause.DISK_FULL,
        ("disk full (certain: " + BYTES,),
        ("likely",),
    ),
    "inodes": (beat(failed(NO_SPACE, INODES)), Cause.DISK_FULL, ("500 inodes are free",), ()),
    "words alone": (beat(failed(NO_SPACE)), Cause.DISK_FULL, ("disk full (likely",), ("certain",)),
    "an archive that broke off on a full disk": (
        beat(failed("RuntimeError: [enforce fail at inline_container.cc:471] . unexpected pos 64 vs 0", BYTES)),
        Cause.DISK_FULL,
        ("certain",),
        (),
    ),
    "a figure alone only warns": (
        beat(failed("ValueError: loss is NaN", BYTES)),
        Cause.USER_ERROR,
        ("loss is NaN", "(warning: " + BYTES),
        ("certain", "likely"),
    ),
    "a card": (beat(failed(CUDA)), Cause.GPU_OOM, ("2.50 GiB",), ("memory limit",)),
    "an ordinary error": (beat(failed("ValueError: no")), Cause.USER_ERROR, ("exit code 1",), ("warning",)),
    "a card that is missing": (
        beat(None, left=NO_GPU, message="0 of 1 GPUs can be opened"),
        Cause.GPU_UNAVAILABLE,
        ("0 of 1 GPUs can be opened",),
        (),
    ),
}


def check(judge: Judge, name: str) -> None:
    value, cause, words, never = CASES[name]
    end = judge(value)
    assert end is not None
    assert end[0] == cause, end
    for word in words:
        assert word in end[1]
    for word in never:
        assert word not in end[1]


@pytest.mark.parametrize("name", CASES)
def test_ends_are_distinguished(name: str) -> None:
    check(end_of, name)


def test_memory_is_judged_by_the_beats_before_the_end_too() -> None:
    """At the time of the last beat the memory is free again."""
    last = beat(killed(None), memory=1e7, limit=1e9)
    full = encode(Telemetry(cgroup=Cgroup(memory_bytes=9.9e8, memory_max_bytes=1e9)))
    for before, cause in ((full, Cause.HOST_OOM), ("", Cause.KILLED), ("{}", Cause.KILLED)):
        end = end_of(last, before)
        assert end is not None
        assert end[0] == cause


def test_what_is_no_failure() -> None:
    assert end_of(beat(None)) is None
    assert end_of(beat(failed("", code=0))) is None
    assert end_of(beat(killed(1), left="stopped")) is None
    ours = killed(1)._replace(sent_by_us=True)
    assert end_of(beat(ours)) == (Cause.SUPERSEDED, "the agent ended the command")


def without_counter(value: Beat) -> tuple[Cause, str] | None:
    """As if no agent ever read the kernel's counter."""
    end = value.exit
    return end_of(value if end is None else value._replace(exit=end._replace(oom_kills=None)))


def unread_is_zero(value: Beat) -> tuple[Cause, str] | None:
    end = value.exit
    return end_of(value if end is None else value._replace(exit=end._replace(oom_kills=end.oom_kills or 0)))


def without_disks(value: Beat) -> tuple[Cause, str] | None:
    end = value.exit
    return end_of(value if end is None else value._replace(exit=end._replace(disk_full="")))


def by_the_figure_alone(value: Beat) -> tuple[Cause, str] | None:
    end = end_of(value)
    full = value.exit is not None and value.exit.disk_full
    return (Cause.DISK_FULL, end[1]) if end is not None and full else end


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (without_counter, "the counter rose"),
        (without_counter, "the counter stood still"),
        (unread_is_zero, "no counter, and memory to spare"),
        (unread_is_zero, "no counter, and memory at its limit"),
        (without_disks, "inodes"),
        (by_the_figure_alone, "a figure alone only warns"),
    ],
)
def test_broken_rules_are_found(broken: Judge, name: str) -> None:
    with pytest.raises(AssertionError):
        check(broken, name)
