"""How a command ended: whose signal it was, whether the work was done, and its last line."""

import signal
from typing import Any

import pytest

from supervisor.agent.watch.ends import failed_after_work, finished, judge, last_line, matches_any
from supervisor.contract.heartbeat import Exit

TERM, KILL = int(signal.SIGTERM), int(signal.SIGKILL)


def left(code: int) -> int:
    return code << 8


def died(number: int) -> int:
    return number


def end(
    status: int,
    sent: "set[int] | None" = None,
    shell: bool = False,
    tail: bytes = b"",
    retry: Any = ((), ()),
    began: str = "",
) -> Exit:
    sent = sent or set()
    return judge(status, sent=sent, shell=shell, ran_s=1.0, tail=tail, retry=retry, began=began)


@pytest.mark.parametrize(
    ("status", "sent", "shell", "code", "number", "ours"),
    [
        (left(0), set(), False, 0, None, False),
        (left(1), set(), False, 1, None, False),
        (died(9), set(), False, None, 9, False),
        (died(15), set(), False, None, 15, False),
        (died(9), {TERM, KILL}, False, None, 9, True),
        (died(15), {TERM}, False, None, 15, True),
        (died(9), {TERM}, False, None, 9, False),  # the system's memory killer was faster than our KILL
        (died(11), {TERM}, False, None, 11, False),
        (left(143), {TERM}, False, 143, None, True),
        (left(1), {TERM}, False, 1, None, True),
        (left(0), {TERM}, False, 0, None, False),
        (left(137), set(), True, None, 9, False),
        (left(143), {TERM}, True, None, 15, True),
        (left(152), set(), True, None, 24, False),  # the computer's limit of CPU time
        (left(137), set(), False, 137, None, False),
        (left(139), set(), True, 139, None, False),
    ],
)
def test_whose_end_it_was(
    status: int, sent: set[int], shell: bool, code: "int | None", number: "int | None", ours: bool
) -> None:
    exit_of_command = end(status, sent, shell)
    assert (exit_of_command.code, exit_of_command.signal, exit_of_command.sent_by_us) == (code, number, ours)


@pytest.mark.parametrize(
    ("status", "sent", "step", "total", "done"),
    [
        (left(0), set(), None, None, True),
        (left(0), set(), 5, 10, True),
        (left(0), {TERM}, None, None, False),
        (left(0), {TERM}, 5, 10, False),
        (left(0), {TERM}, 10, 10, True),
        (left(0), {TERM}, 10, None, False),
        (left(1), set(), 10, 10, False),
        (died(15), {TERM}, 10, 10, False),
    ],
)
def test_whether_the_work_is_done(
    status: int, sent: set[int], step: "int | None", total: "int | None", done: bool
) -> None:
    assert finished(end(status, sent), sent, step, total) is done


@pytest.mark.parametrize(("step", "from_zero", "done"), [(9, True, True), (8, True, False), (9, False, False)])
def test_counted_from_zero_the_last_step_is_one_before_the_total(step: int, from_zero: bool, done: bool) -> None:
    assert finished(end(left(0), {TERM}), {TERM}, step, 10, from_zero) is done


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
TRACEBACK = "Traceback (most recent call last):"
FULL = "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["step 1", OOM, "wandb: synced 3 files"], OOM),
        ([FULL, "During handling of the above exception", "RuntimeError: save failed"], FULL),
        ([FULL, OOM], OOM),
        (["x: killed by signal: Killed.", "", "bye"], "x: killed by signal: Killed."),
        ([OOM, *["step %d" % step for step in range(40)]], "step 39"),
        (["step 1", "ValueError: no"], "ValueError: no"),
        # It was caught, and the command ended with another error.
        ([OOM, "smaller batch", TRACEBACK, "  File ...", "ValueError: no"], "ValueError: no"),
        ([FULL, TRACEBACK, "  File ...", "KeyError: 'loss'"], "KeyError: 'loss'"),
        # Another error only because of the first, or of another process of the same end.
        ([OOM, "During handling of the above exception, another exception occurred:", TRACEBACK, "E: no"], OOM),
        ([OOM, TRACEBACK, "torch.distributed.elastic.ChildFailedError:", "bye"], OOM),
        ([OOM, "[rank1]: " + TRACEBACK, "[rank1]: RuntimeError: peer is gone"], OOM),
    ],
)
def test_the_most_telling_of_the_last_lines(lines: "list[str]", expected: str) -> None:
    """A word long before the end, after which the training continued, does not explain the end."""
    assert last_line(lines) == expected


def test_the_last_line() -> None:
    assert last_line(["Traceback:", "  ValueError: no \x00 \x1b[31mred", "", "   "]) == "ValueError: no    [31mred"
    assert last_line([]) == ""
    assert len(last_line(["x" * 10_000])) == 300
    assert end(left(1), tail=b"\xff\xfe broken\n").last_line.endswith("broken")


def test_the_line_that_began_the_end_is_the_last_line() -> None:
    tail = f"step 1\n{OOM}\nhalf the batch\nstep 2\nstopped by the schedule\n".encode()
    assert end(left(3), tail=tail).last_line == "stopped by the schedule"
    assert end(left(3), tail=tail, began=OOM).last_line == OOM


def test_a_line_about_another_process_or_after_the_end_is_none_if_there_is_another() -> None:
    launcher = b"srun: error: n1: task 0: Exited with exit code 3"
    assert end(left(3), tail=b"no data for today\nwandb: synced\n" + launcher).last_line == "no data for today"
    assert end(left(3), tail=launcher).last_line == launcher.decode()


@pytest.mark.parametrize(
    ("status", "sent", "step", "after_work"),
    [
        (left(1), set(), 10, True),
        (died(6), set(), 10, True),
        (left(1), set(), 9, False),
        (left(1), set(), None, False),
        (left(0), set(), 10, False),
        (left(1), {TERM}, 10, False),
        (died(9), set(), 10, False),  # from outside: it may have been writing its results
        (died(24), set(), 10, False),  # the same: the limit of CPU time
    ],
)
def test_a_failure_after_the_last_step(status: int, sent: set[int], step: "int | None", after_work: bool) -> None:
    assert failed_after_work(end(status, sent), sent, step, 10) == after_work


def test_codes_and_patterns_that_the_run_names_for_a_retry() -> None:
    assert end(left(7), retry=((7, 8), ())).retry_named
    assert not end(left(9), retry=((7, 8), ())).retry_named
    assert end(left(1), tail=b"a\nNCCL error 5\nb\n", retry=((), ("NCCL error",))).retry_named
    assert not matches_any(["("], ["("])
    assert matches_any(["(", "x$"], ["ax"])
