"""Commands that go wrong: each ends as its own fault or gets another machine, and says which and why."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.stories import Stories, stories
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-commands")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    with stories(tmp_path_factory.mktemp("commands")) as told:
        yield told


def failed_at_once(house: Stories, run_id: str, cause: str, fact: str, *said: str) -> None:
    """One attempt, no checkpoint, never tried again."""
    run = house.wait(run_id, "failed")
    assert run["cause"] == cause
    assert run["counters"]["attempts"] == 1
    for words in ("Not retried", f"spot resume {run_id}", *said):
        assert words in run["status_text"], run["status_text"]
    [attempt] = house.attempts(run_id)
    assert attempt["cause"] == cause
    assert fact in attempt["evidence"]
    [told] = house.told(run_id, "failed")
    assert cause in told
    assert fact in told
    house.nothing_is_left(run_id)
    assert "release machine" not in house.daemon.run(run_id)["next_action"]["what"]


@pytest.mark.parametrize(
    ("run_id", "command", "fact"),
    [
        ("no-such-word", ["no-such-trainer", "--fast"], "no-such-trainer: command not found"),
        ("no-such-path", ["/no/such/trainer"], "/no/such/trainer: command not found"),
        ("no-such-shell", "no-such-trainer --fast", "exit code 127"),
    ],
)
def test_a_command_that_does_not_exist_fails_at_once(
    house: Stories, run_id: str, command: str | list[str], fact: str
) -> None:
    house.daemon.submit(run_id, command=command)
    failed_at_once(house, run_id, "command_not_found", fact, "does not exist on the machine")
    assert "not found" in house.log(run_id)


def test_a_command_that_cannot_be_executed_fails_at_once(house: Stories, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("echo never\n")
    house.daemon.submit("not-executable", command=[str(script)])
    failed_at_once(house, "not-executable", "command_not_found", f"{script} is there, but", "cannot be run")


def test_a_working_directory_that_does_not_exist_fails_at_once(house: Stories, tmp_path: Path) -> None:
    house.daemon.submit("no-workdir", command="true", workdir=str(tmp_path / "nowhere"))
    failed_at_once(house, "no-workdir", "command_not_found", "the working directory")


def test_an_exit_code_stands_in_the_sentence_with_the_last_line(house: Stories) -> None:
    last = "KeyError: loss"
    house.daemon.submit("exit-3", command=f'echo starting; echo "{last}" >&2; exit 3')
    failed_at_once(house, "exit-3", "user_error", f"exit code 3 after 0 s: `{last}`", "code 3", f"`{last}`")
    [attempt] = house.attempts("exit-3")
    assert attempt["exit"]["code"] == 3
    assert house.log("exit-3") == f"starting\n{last}\n"


def test_a_failure_with_a_newer_checkpoint_is_repeated_so_often_and_not_more(house: Stories) -> None:
    house.train("nan", "--pause-s", "0.05", "--fail-after", "1", limits={"max_user_failures": 2})
    first = house.ended("nan")
    run = house.wait("nan", "failed")
    assert run["cause"] == "user_error"
    assert run["counters"]["user_failures"] == run["counters"]["attempts"] == 2
    assert "Not retried after 2 such failures" in run["status_text"]
    assert "`ValueError: loss is NaN`" in run["status_text"]
    assert "Last checkpoint: 6" in run["status_text"]
    assert house.lives("nan") == [(1, 0), (2, 3)]
    assert first["step_kept"] == 3
    assert [one["cause"] for one in house.attempts("nan")] == ["user_error", "user_error"]
    assert "exit code 3" in house.told("nan", "attempt_ended")[0]
    house.nothing_is_left("nan")
    assert house.baton("nan")["checkpoint"]["step"] == 6


@pytest.mark.parametrize(
    ("run_id", "retry", "command"),
    [
        ("retry-code", {"exit_codes": [75]}, "exit 75"),
        ("retry-words", {"log_patterns": ["NCCL .* timeout"]}, "echo NCCL all-reduce timeout; exit 1"),
    ],
)
def test_failures_that_the_run_names_are_repeated(
    house: Stories, tmp_path: Path, run_id: str, retry: dict[str, object], command: str
) -> None:
    done = 'echo ok > "$SPOT_RESULTS_DIR/out.txt"'
    house.daemon.submit(run_id, command=f"if [ $SPOT_ATTEMPT -lt 2 ]; then {command}; fi; {done}", retry=retry)
    run = house.wait(run_id, "completed", "failed")
    assert run["status"] == "completed", run["status_text"]
    assert run["counters"]["user_failures"] == 1
    assert [one["cause"] for one in house.attempts(run_id)] == ["user_error", "finished"]
    assert run["results"]["files"] == 1
    house.nothing_is_left(run_id)


def test_a_training_killed_by_a_stranger_is_recovered_from_its_checkpoint(house: Stories) -> None:
    house.train("killed")
    house.trains("killed")
    step = house.saved("killed")
    for pid in house.training_pids("killed"):
        os.kill(pid, signal.SIGKILL)
    attempt = house.ended("killed")
    assert attempt["cause"] == "killed"
    assert "SIGKILL came from outside" in attempt["evidence"]
    run = house.trains("killed", beyond=step)
    is_certain = "the counter stood still" in attempt["evidence"]  # else it may have been the kernel, for memory
    assert run["counters"]["counted"] == (0 if is_certain else 1)
    assert house.lives("killed")[1][1] >= step
    assert "Training again" in house.told("killed", "recovered")[0]
    assert house.completes("killed")["counters"]["attempts"] == 2


def test_a_script_that_tells_no_steps_is_left_alone_and_says_so(house: Stories) -> None:
    gate = house.gate("no-steps")
    wait = f'while [ ! -e "{gate}" ]; do sleep 0.1; done; echo x > "$SPOT_RESULTS_DIR/model"'
    house.daemon.submit("no-steps", command=wait, stall={"polls": 1})
    words = "no step reported yet, watched by its beats and its motion"
    wait_for(lambda: words in house.daemon.run("no-steps")["status_text"], 60, "the sentence")
    wait_for(lambda: house.daemon.run("no-steps")["beat"]["age_s"] < 5, 60, "a beat")
    run = house.daemon.run("no-steps")
    assert run["stall"] == {"polls": 0, "limit": 1}
    assert house.completes("no-steps")["counters"]["attempts"] == 1


def test_missing_results_are_partial_and_say_what_is_missing(house: Stories) -> None:
    house.daemon.submit(
        "too-few",
        command='echo 1 > "$SPOT_RESULTS_DIR/a.csv"; echo m > "$SPOT_RESULTS_DIR/model.pt"',
        results=[{"path": "*.csv", "min_count": 2}, {"path": "model.pt"}],
    )
    run = house.wait("too-few", "partial", "completed", "failed")
    assert run["status"] == "partial", run["status_text"]
    assert run["results"]["missing"] == ["results *.csv: 1 of 2 files"]
    assert "missing: results *.csv: 1 of 2 files" in run["status_text"]
    assert "spot resume too-few" in run["status_text"]
    assert "results *.csv: 1 of 2 files" in house.told("too-few", "partial")[0]
    house.nothing_is_left("too-few")
    assert (house.objects / "runs/too-few/results/g1/a.csv").read_text() == "1\n"


def test_a_line_of_a_megabyte_is_cut_and_what_comes_after_it_is_kept(house: Stories) -> None:
    long = "head -c 1048576 /dev/zero | tr '\\0' x"
    house.daemon.submit("long-line", command=f'{long}; echo; echo after; echo r > "$SPOT_RESULTS_DIR/r"')
    assert house.wait("long-line", "completed", "failed", "partial")["status"] == "completed"
    wait_for(lambda: "after" in house.log("long-line"), 60, "the end of the log")
    first, second = house.log("long-line").splitlines()
    kept, mark = first.rstrip("x ").find("["), " bytes of this line were cut]"
    assert first.startswith("x" * 65536)
    assert first.endswith(f"[... {1048576 - 65536}{mark}")
    assert (kept, second) == (65537, "after")
    house.nothing_is_left("long-line")
