"""Every word of Slurm about a job has its row, and a word that nobody knows says nothing."""

from __future__ import annotations

import pytest

from supervisor.domain.causes import NEEDS_PERSON, Cause, Kind, rule_for
from supervisor.domain.machines import MachineState
from supervisor.providers.slurm.states import STATES, UnknownState, meaning, state_word, wait

S = MachineState
ROWS: list[tuple[str, MachineState, Cause | None]] = [
    ("BOOT_FAIL", S.ENDED, Cause.HOST_ERROR),
    ("CANCELLED", S.ENDED, Cause.MACHINE_DELETED),
    ("COMPLETED", S.ENDED, None),
    ("COMPLETING", S.ENDING, None),
    ("CONFIGURING", S.STARTING, None),
    ("DEADLINE", S.ENDED, Cause.TIME_LIMIT),
    ("FAILED", S.ENDED, None),
    ("NODE_FAIL", S.ENDED, Cause.HOST_ERROR),
    ("OUT_OF_MEMORY", S.ENDED, Cause.HOST_OOM),
    ("PENDING", S.ASKED, None),
    ("PREEMPTED", S.ENDED, Cause.PREEMPTED),
    ("REQUEUED", S.ASKED, None),
    ("REQUEUE_FED", S.ASKED, None),
    ("REQUEUE_HOLD", S.ASKED, None),
    ("RESIZING", S.UP, None),
    ("RESV_DEL_HOLD", S.ASKED, None),
    ("REVOKED", S.ENDED, Cause.HOST_ERROR),
    ("RUNNING", S.UP, None),
    ("SIGNALING", S.UP, None),
    ("SPECIAL_EXIT", S.ASKED, None),
    ("STAGE_OUT", S.ENDING, None),
    ("STOPPED", S.UP, None),
    ("SUSPENDED", S.UP, None),
    ("TIMEOUT", S.ENDED, Cause.TIME_LIMIT),
]


@pytest.mark.parametrize(("word", "state", "cause"), ROWS, ids=[row[0] for row in ROWS])
def test_each_state_of_a_job(word: str, state: MachineState, cause: Cause | None) -> None:
    row = meaning(word)
    assert (row.state, row.cause) == (state, cause)
    if cause is not None:
        assert row.text, "a record is shown to people"


def test_the_table_has_all_24_words_of_the_manual_and_no_other() -> None:
    assert sorted(STATES) == sorted(row[0] for row in ROWS)
    assert len(STATES) == 24


@pytest.mark.parametrize("word", ["", "NAPPING", "running", "COMPLETED+"])
def test_a_word_that_nobody_knows_says_nothing(word: str) -> None:
    with pytest.raises(UnknownState, match="about its state"):
        meaning(word)


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        ("CANCELLED by 1000", "CANCELLED"),
        (["RUNNING"], "RUNNING"),
        (["RUNNING", "COMPLETING"], "COMPLETING"),
        (["CANCELLED", "COMPLETING"], "COMPLETING"),
        (["PENDING", "REQUEUED"], "REQUEUED"),
        (["PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"], "REQUEUE_HOLD"),
        (["RUNNING", "CONFIGURING", "POWER_UP_NODE"], "CONFIGURING"),
        (["RUNNING", "NAPPING"], "NAPPING"),
        ("", ""),
        ([], ""),
    ],
)
def test_of_a_base_state_and_its_flags_one_word_counts(words: str | list[str], counts: str) -> None:
    assert state_word(words) == counts


REASONS: list[tuple[str, str, Cause | None]] = [
    ("PENDING", "Resources", None),
    ("PENDING", "Priority", None),
    ("PENDING", "BeginTime", None),
    ("PENDING", "None", None),
    ("PENDING", "Dependency", None),
    ("PENDING", "Licenses", None),
    ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1", None),
    ("PENDING", "PartitionDown", None),
    ("PENDING", "SomethingNew", None),
    ("REQUEUED", "None", None),
    ("REQUEUE_FED", "None", None),
    ("PENDING", "QOSMaxGRESPerUser", Cause.QUOTA),
    ("PENDING", "QOSMaxJobsPerUserLimit", Cause.QUOTA),
    ("PENDING", "QOSGrpCpuLimit", Cause.QUOTA),
    ("PENDING", "AssocGrpGRES", Cause.QUOTA),
    ("PENDING", "AssocMaxJobsLimit", Cause.QUOTA),
    ("PENDING", "(AssocGrpCPUMinutesLimit)", Cause.QUOTA),
    ("PENDING", "PartitionTimeLimit", Cause.LAUNCH_REJECTED),
    ("PENDING", "PartitionNodeLimit", Cause.LAUNCH_REJECTED),
    ("PENDING", "BadConstraints", Cause.LAUNCH_REJECTED),
    ("PENDING", "InvalidAccount", Cause.LAUNCH_REJECTED),
    ("PENDING", "InvalidQOS", Cause.LAUNCH_REJECTED),
    ("PENDING", "QOSNotAllowed", Cause.LAUNCH_REJECTED),
    ("PENDING", "AccountNotAllowed", Cause.LAUNCH_REJECTED),
    ("PENDING", "DependencyNeverSatisfied", Cause.LAUNCH_REJECTED),
    ("PENDING", "JobHeldUser", Cause.LAUNCH_REJECTED),
    ("PENDING", "JobHeldAdmin", Cause.LAUNCH_REJECTED),
    ("PENDING", "JobHoldMaxRequeue", Cause.LAUNCH_REJECTED),
    ("PENDING", "launch failed requeued held", Cause.LAUNCH_REJECTED),
    ("REQUEUE_HOLD", "None", Cause.LAUNCH_REJECTED),
    ("SPECIAL_EXIT", "None", Cause.LAUNCH_REJECTED),
    ("RESV_DEL_HOLD", "None", Cause.LAUNCH_REJECTED),
]


@pytest.mark.parametrize(("word", "reason", "cause"), REASONS, ids=[f"{word} {reason}" for word, reason, _ in REASONS])
def test_each_reason_of_a_pending_job(word: str, reason: str, cause: Cause | None) -> None:
    why = wait(word, reason)
    assert why.cause is cause
    assert why.text, "a run in the queue says what it waits for"
    if cause is not None:
        assert cause in NEEDS_PERSON
        assert rule_for(cause).kind is Kind.PACED


@pytest.mark.parametrize("reason", ["JobHeldUser", "JobHeldAdmin"])
def test_a_held_job_names_the_command_that_releases_it(reason: str) -> None:
    assert "scontrol release" in wait("PENDING", reason).text
