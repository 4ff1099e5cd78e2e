"""The texts of Slurm: names of jobs, both forms of the queue, and the history of ends."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.slurm.jobs import (
    FIELDS,
    MARK,
    QUEUE_TEXT,
    Job,
    JobEnd,
    JobName,
    Keeper,
    Unclear,
    from_json,
    from_text,
    history,
    history_command,
    moment,
    parse_name,
    peaks,
)
from supervisor.providers.slurm.machines import NotOver, Sighting, end_of, machine_of, one_each
from supervisor.providers.slurm.states import STATES, UnknownState
from supervisor.providers.slurm.survey import Survey, Surveyor, kept_of

NAME = JobName("spot-0a1b2c3d-a1-t1", "5f3e1c2d", "digits-7", "1.1.1", "spot")
TEXT = "spot-0a1b2c3d-a1-t1:5f3e1c2d:digits-7:1.1.1:spot"


def job(state: str = "RUNNING", restarts: int = 0, job_id: str = "12", reason: str = "None") -> Job:
    over = state in STATES and STATES[state].state is MachineState.ENDED
    return Job(job_id, NAME, state, reason, restarts, 100.0, 200.0 if over else None)


class TestName:
    def test_it_carries_machine_supervisor_run_launch_and_partition(self) -> None:
        assert NAME.text == TEXT
        assert parse_name(TEXT) == NAME

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "wrap",
            "a:b:c",
            TEXT + ":x",
            TEXT.replace("1.1.1", "1.1"),
            TEXT.replace("digits-7", ""),
            "a b:c:d:1.1.1:e",
        ],
    )
    def test_any_other_name_is_not_ours(self, text: str) -> None:
        assert parse_name(text) is None

    @pytest.mark.parametrize("part", ["a:b", "", "a b", "x" * 300, "-a"])
    def test_a_part_that_would_not_be_read_back_is_refused(self, part: str) -> None:
        with pytest.raises(ValueError, match="cannot be the name of a job"):
            JobName(NAME.machine, NAME.supervisor_id, part, NAME.launch_id, NAME.zone).text  # noqa: B018


def row(**values: Any) -> dict[str, Any]:
    """As Slurm 22.05 prints it, without the fields that nobody reads."""
    return {
        "job_id": 12, "name": TEXT, "job_state": "RUNNING", "state_reason": "None", "restart_cnt": 0,
        "submit_time": 100, "end_time": 200, "partition": "spot", **values,
    }  # fmt: skip


def queue(*rows: dict[str, Any], errors: list[Any] | None = None) -> str:
    return json.dumps({"meta": {}, "errors": errors or [], "jobs": list(rows)})


class TestQueueAsJson:
    def test_of_version_22(self) -> None:
        assert from_json(queue(row())) == (job(),)

    def test_of_version_24(self) -> None:
        number = {"set": True, "infinite": False, "number": 100}
        newer = row(
            job_state=["RUNNING"], restart_cnt=1, submit_time=number, end_time={"set": False, "number": 0},
        )  # fmt: skip
        assert from_json(queue(newer)) == (Job("12", NAME, "RUNNING", "None", 1, 100.0, None),)

    def test_other_peoples_jobs_are_left_out_whatever_they_hold(self) -> None:
        assert from_json(queue({"name": "wrap"}, {"name": None, "job_state": 5}, row())) == (job(),)

    @pytest.mark.parametrize(("nodes", "node"), [("n-1.lab", "n-1.lab"), ("", ""), ("n[1-2]", ""), ("(null)", "")])
    def test_it_has_one_node(self, nodes: str, node: str) -> None:
        assert from_json(queue(row(nodes=nodes)))[0].node == from_text(line(NodeList=nodes))[0].node == node
        found = machine_of(Sighting(NAME, from_json(queue(row(nodes=nodes)))[0]), {})
        assert found is not None
        assert found.node == node

    def test_an_unknown_state_is_kept_as_it_is(self) -> None:
        assert from_json(queue(row(job_state="NAPPING")))[0].state == "NAPPING"

    @pytest.mark.parametrize(
        "text",
        [
            "", "[]", "{}", queue(row(job_id="x")), queue(row(job_state=None)), queue(row(), errors=[{"error": "p"}]),
            queue(row())[:-20], json.dumps({"jobs": 5}), json.dumps({"jobs": [5]}),
            queue(row(user_id=0), row(user_id=1, name="wrap")),
        ],
    )  # fmt: skip
    def test_an_answer_that_cannot_be_read_or_is_partial_is_no_answer(self, text: str) -> None:
        with pytest.raises(Unclear):
            from_json(text)


def line(**values: str) -> str:
    cells = {
        "JobID": "12", "State": "RUNNING", "Reason": "None", "RestartCnt": "0", "SubmitTime": "100", "EndTime": "200",
        "NodeList": "", "Name": TEXT, **values,
    }  # fmt: skip
    return "".join(f"{cells[name]:60}{MARK}" for name in FIELDS)


class TestQueueAsText:
    def test_it_says_the_same_as_json(self) -> None:
        text = "\n".join([line(), line(JobID="13", Name="wrap")])
        assert from_text(text) == from_json(queue(row()))
        assert from_text("") == ()

    def test_a_job_that_never_started_has_no_end(self) -> None:
        pending = from_text(line(State="PENDING", Reason="Resources", EndTime="N/A"))[0]
        assert (pending.state, pending.reason, pending.ended_at) == ("PENDING", "Resources", None)

    @pytest.mark.parametrize(
        "text", [line()[:-3], "squeue: something", line(JobID=""), line(RestartCnt="x"), line(State="")]
    )
    def test_a_line_that_cannot_be_read_makes_the_whole_answer_none(self, text: str) -> None:
        with pytest.raises(Unclear):
            from_text(f"{line()}\n{text}")

    def test_a_job_of_an_array_of_somebody_else_is_no_problem(self) -> None:
        assert from_text(line(JobID="12_[1-3]", Name="sweep")) == ()

    def test_the_name_of_a_job_of_somebody_else_may_have_several_lines(self) -> None:
        """Slurm prints it as it is."""
        foreign = line(JobID="13", Name="a\nb\u2028c\rJobId=12")
        assert from_text(f"{foreign}\n{line()}\n{foreign}\n") == (job(),)

    def test_no_field_is_cut(self) -> None:
        assert all(":256" in word for word in QUEUE_TEXT[-1].removeprefix("--Format=").split(","))


@pytest.mark.parametrize(
    ("text", "at"),
    [("1795687437", 1795687437.0), ("N/A", None), ("Unknown", None), ("NONE", None), ("0", None), ("", None)],
)
def test_times(text: str, at: float | None) -> None:
    assert moment(text) == at


def test_a_time_of_the_log_of_completions_is_in_this_computers_zone() -> None:
    assert moment("2026-11-26T10:04:10") == moment("2026-11-26T10:04:09") + 1.0  # type: ignore[operator]


# As Slurm 22.05 has printed them: a preemption, a requeue by hand, a start that is cancelled.
COMPLETIONS = """\
JobID|UID|JobName|Partition|NNodes|NodeList|State|End
1|0|m|spot|1|spot1|PREEMPTED|1795687437
1|0|m|spot|1|spot1|PENDING|1795687452
1|0|m|spot|1|spot1|CANCELLED|1795687474
3|0|m3|spot|1|spot1|FAILED|1795687455
"""
ACCOUNTING = """\
JobIDRaw|State|ExitCode|End
1|CANCELLED by 1000|0:0|1795687474
1|NODE_FAIL|1:0|1795687437
1.batch|CANCELLED|0:15|1795687474
5|TIMEOUT|0:9|1795687455
6|RUNNING|0:0|Unknown
"""
CONTROLLER = """\
JobId=1 JobName=x UserId=root(0) JobState=OUT_OF_MEMORY Restarts=1 ExitCode=0:125 EndTime=1795687474 JobState=RUNNING
JobId=7 JobName=y JobState=PENDING Reason=Priority Restarts=0 ExitCode=0:0 EndTime=Unknown
"""


class TestHistory:
    def test_one_command_for_many_jobs(self) -> None:
        assert history_command(Keeper.COMPLETIONS, ["12", "3"])[-1] == "--jobs=3,12"
        assert "--duplicates" in history_command(Keeper.ACCOUNTING, ["1"])
        assert history_command(Keeper.CONTROLLER, ["1"])[:3] == ("scontrol", "show", "job")

    def test_a_requeued_job_has_a_row_for_each_start(self) -> None:
        ends = history(Keeper.COMPLETIONS, COMPLETIONS)
        assert end_of(ends, "1.0") == JobEnd("PREEMPTED", 1795687437.0)
        assert end_of(ends, "1.1") is None, "a requeue by hand is no end that has a reason"
        assert end_of(ends, "1.2") == JobEnd("CANCELLED", 1795687474.0)
        assert end_of(ends, "3.0") == JobEnd("FAILED", 1795687455.0)
        assert end_of(ends, "3.1") is None
        assert end_of(ends, "4.0") is None

    def test_rows_of_the_accounting_are_put_in_order_and_steps_left_out(self) -> None:
        ends = history(Keeper.ACCOUNTING, ACCOUNTING)
        assert end_of(ends, "1.0") == JobEnd("NODE_FAIL", 1795687437.0, "1:0")
        assert end_of(ends, "1.1") == JobEnd("CANCELLED", 1795687474.0, "0:0")
        assert end_of(ends, "5.0") == JobEnd("TIMEOUT", 1795687455.0, "0:9")
        assert end_of(ends, "6.0") is None

    def test_the_controller_knows_only_the_last_start(self) -> None:
        ends = history(Keeper.CONTROLLER, CONTROLLER)
        assert end_of(ends, "1.0") is None
        assert end_of(ends, "1.1") == JobEnd("OUT_OF_MEMORY", 1795687474.0, "0:125")
        assert end_of(ends, "7.0") is None

    @pytest.mark.parametrize(
        ("keeper", "text"),
        [
            (Keeper.ACCOUNTING, ""),
            (Keeper.ACCOUNTING, "Slurm accounting storage is disabled"),
            (Keeper.COMPLETIONS, "JobID|State|End\n1|COMPLETED"),
            (Keeper.CONTROLLER, "JobId=1 JobName=x"),
            (Keeper.CONTROLLER, "JobId=1 JobState=RUNNING Restarts=x"),
        ],
    )
    def test_an_answer_that_cannot_be_read_says_nothing(self, keeper: Keeper, text: str) -> None:
        with pytest.raises(Unclear):
            history(keeper, text)

    def test_an_unknown_word_is_no_end(self) -> None:
        ends = history(Keeper.COMPLETIONS, "JobID|State|End\n1|NAPPING|5\n")
        with pytest.raises(UnknownState):
            end_of(ends, "1.0")


class TestMachine:
    def test_a_running_job(self) -> None:
        machine = machine_of(Sighting(NAME, job()), {})
        assert machine is not None
        assert (machine.machine_id, machine.name, machine.zone) == ("12.0", NAME.machine, "spot")
        assert (machine.run_id, machine.launch_id, machine.supervisor_id) == ("digits-7", "1.1.1", "5f3e1c2d")
        assert (machine.state, machine.created_at, machine.record) == (MachineState.UP, 100.0, None)

    def test_a_pending_job_says_why(self) -> None:
        machine = machine_of(Sighting(NAME, job("PENDING", reason="Priority")), {})
        assert machine is not None
        assert (machine.state, machine.detail) == (MachineState.ASKED, "jobs with a higher priority wait before it")

    def test_a_job_that_was_put_back_after_its_start_is_over_and_not_gone(self) -> None:
        again = Sighting(NAME, job("PENDING", 1, reason="BeginTime"), first_start="12.0")
        machine = machine_of(again, {"12": [JobEnd("NODE_FAIL", 150.0)]})
        assert machine is not None
        assert machine.record is not None
        assert (machine.machine_id, machine.state) == ("12.0", MachineState.ENDED)
        assert (machine.record.cause, machine.record.at) == (Cause.HOST_ERROR, 150.0)

    @pytest.mark.parametrize("ends", [{}, {"12": [JobEnd("PENDING", 150.0)]}, {"12": [JobEnd("", None)]}])
    def test_where_nobody_says_why_it_was_put_back_it_is_free(self, ends: dict[str, list[JobEnd]]) -> None:
        machine = machine_of(Sighting(NAME, job("RUNNING", 1), first_start="12.0"), ends)
        assert machine is not None
        assert machine.record is not None
        assert (machine.state, machine.record.cause) == (MachineState.ENDED, Cause.PREEMPTED)
        assert "does not say why" in machine.record.detail

    def test_a_job_that_was_put_back_before_its_first_start_is_the_machine(self) -> None:
        machine = machine_of(Sighting(NAME, job("RUNNING", 2)), {})
        assert machine is not None
        assert (machine.machine_id, machine.state) == ("12.2", MachineState.UP)

    @pytest.mark.parametrize(
        ("state", "cause"),
        [("TIMEOUT", Cause.TIME_LIMIT), ("OUT_OF_MEMORY", Cause.HOST_OOM), ("CANCELLED", Cause.MACHINE_DELETED)],
    )
    def test_an_ended_job_has_a_record(self, state: str, cause: Cause) -> None:
        machine = machine_of(Sighting(NAME, job(state)), {})
        assert machine is not None
        assert machine.record is not None
        assert (machine.state, machine.record.cause, machine.record.at) == (MachineState.ENDED, cause, 200.0)

    @pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
    def test_a_job_that_ended_by_itself_is_gone(self, state: str) -> None:
        assert machine_of(Sighting(NAME, job(state)), {}) is None

    def test_a_job_that_left_the_queue_ended_as_the_history_says(self) -> None:
        left = Sighting(NAME, None, job_id="12")
        machine = machine_of(left, {"12": [JobEnd("TIMEOUT", 150.0, "0:9")]})
        assert machine is not None
        assert machine.record is not None
        assert (machine.record.cause, machine.record.detail) == (
            Cause.TIME_LIMIT,
            "it reached its time limit (12.0 is TIMEOUT, exit 0:9)",
        )
        assert machine_of(left, {"12": [JobEnd("COMPLETED", 150.0)]}) is None
        assert machine_of(left, {}) is None

    def test_a_history_that_lags_behind_says_nothing(self) -> None:
        with pytest.raises(NotOver):
            machine_of(Sighting(NAME, None, job_id="12"), {"12": [JobEnd("RUNNING", None)]})

    def test_an_unknown_word_says_nothing(self) -> None:
        with pytest.raises(UnknownState):
            machine_of(Sighting(NAME, job("NAPPING")), {})

    def test_the_oldest_living_job_of_a_name_counts(self) -> None:
        jobs = [job("CANCELLED", job_id="3"), job("PENDING", job_id="9"), job("RUNNING", job_id="8")]
        assert [each.job_id for each in one_each(jobs)[NAME.machine]] == ["8", "9", "3"]

    def test_ids(self) -> None:
        again = Sighting(NAME, job("PENDING", 1), first_start="12.0")
        assert [again.has_id(text) for text in (None, "", "12.0", "12.1", "12.2", "12.01", "13.0")] == [
            True, True, True, True, False, False, False,
        ]  # fmt: skip


# --- the memory that a job used ---------------------------------------------------------------------------------------

PEAKS = "JobIDRaw|MaxRSS\n12|\n12.batch|61234K\n12.extern|0\n12.0|2.5M\n13|\n13.batch|\n14.batch|wrong\n"


def test_the_largest_step_of_a_job_counts() -> None:
    assert peaks(PEAKS) == {"12": 61234 * 1024.0}
    assert peaks("") == {}


def measured(keeper: Keeper, answer: str | Exception) -> tuple[Survey, list[tuple[str, ...]]]:
    """What a listing makes of a job that ran out of memory."""
    made: list[tuple[str, ...]] = []

    def run(*words: str) -> str:
        made.append(words)
        if isinstance(answer, Exception):
            raise answer
        return answer

    cluster = SimpleNamespace(read=lambda: SimpleNamespace(keeper=keeper))
    surveyor = Surveyor(SimpleNamespace(run=run), cluster, SimpleNamespace(), lambda: 0.0)  # type: ignore[arg-type]
    sighting = Sighting(NAME, job("OUT_OF_MEMORY"))
    machine = machine_of(sighting, {})
    survey = Survey({}, {NAME.machine: machine} if machine else {}, {NAME.machine: sighting})
    surveyor._measure(survey, {NAME.machine: machine})
    return survey, made


def test_what_it_used_is_in_the_record_of_its_end_and_in_the_words_that_are_kept() -> None:
    survey, made = measured(Keeper.ACCOUNTING, PEAKS)
    record = survey.machines[NAME.machine].record
    assert record is not None
    assert (record.cause, record.memory_bytes) == (Cause.HOST_OOM, 61234 * 1024.0)
    assert record.detail.endswith("; MaxRSS was 60M")
    assert made == [("sacct", "--duplicates", "--parsable2", "--format=JobIDRaw,MaxRSS", "--jobs=12")]
    fields = {"has_agent": True, "has_started": True, "first_start": "", "job_id": "12", "submitted_at": 1.0}
    values = {"job": None, "is_released": False, "gone_at": None, **fields}
    kept = kept_of("x", {**values, "record": {"cause": "host_oom", "detail": record.detail, "at": 200.0}})
    assert kept.record is not None
    assert kept.record.memory_bytes == 60 * 2**20


@pytest.mark.parametrize(
    ("keeper", "answer"),
    [
        (Keeper.CONTROLLER, PEAKS),
        (Keeper.COMPLETIONS, PEAKS),
        (Keeper.ACCOUNTING, "JobIDRaw|MaxRSS\n12|\n"),  # not there yet
        (Keeper.ACCOUNTING, ProviderUnavailable("sacct does not answer")),
    ],
)
def test_without_that_figure_the_end_is_the_same(keeper: Keeper, answer: str | Exception) -> None:
    survey, made = measured(keeper, answer)
    record = survey.machines[NAME.machine].record
    assert record is not None
    assert (record.cause, record.memory_bytes) == (Cause.HOST_OOM, None)
    assert len(made) == (keeper is Keeper.ACCOUNTING)
