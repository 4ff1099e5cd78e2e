"""Ends of our own making: the agent left, a stop, a limit; and what only the supervisor has recorded."""

from __future__ import annotations

from supervisor.contract import heartbeat
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.evidence import Evidence
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Where
from supervisor.lifecycle.diagnosis.machine_signs import CARD_MAY_HAVE_FAILED
from supervisor.lifecycle.diagnosis.rule import Match, Rule, Sign, Tier
from supervisor.lifecycle.diagnosis.signs import (
    AFTER_LAST_STEP,
    DONE,
    EXIT_IS_OLDER,
    FAILED,
    SENT_BY_US,
    SESSION_AT_CAP,
    SESSION_GONE,
    figure,
    item_sign,
    left,
    own_end,
    record_of,
    says,
)

_RECORDED = tuple(Cause)  # any: a superseded agent on a machine that the platform has ended


def _record_holds(evidence: Evidence) -> Match | None:
    return None if EXIT_IS_OLDER.find(evidence) is not None else record_of(*_RECORDED).find(evidence)


_LASTING = item_sign("metric.lasting", "a metric of `nan: stop` stays NaN or infinite", lambda _: Match())
_RECORD_HOLDS = Sign("the platform's record says more", _record_holds)


def _started_over(evidence: Evidence) -> Match | None:
    match = left(heartbeat.RESUME_IGNORED).find(evidence)
    if match is None:
        return None
    steps = {"from_step": figure(evidence, "step.from"), "first_step": figure(evidence, "step.first_after_restore")}
    return Match({name: f"{step:.0f}" for name, step in steps.items() if step is not None}, match.quotes)


_STARTED_OVER = Sign("the agent left as resume_ignored", _started_over, ("left",))


def _left(word: str, cause: Cause, sentence: str, retry: Retry, where: Where = Where.OURS) -> Rule:
    return Rule(
        f"LEFT.{word}", (), Tier.OURS, (left(word),), (), Certainty.CERTAIN, cause, where, retry, sentence,
        ("same_machine",) if cause != Cause.PREEMPTED else ("other_machine",),
    )  # fmt: skip


def _own(cause: Cause, retry: Retry, remedies: tuple[str, ...] = (), goes_on: bool | None = None) -> Rule:
    """An end that the supervisor decided by itself: it is evidence in a stored document only."""
    return Rule(
        f"OWN.{cause}", (), Tier.FIGURES, (own_end(cause),),
        (FAILED, SESSION_GONE, SESSION_AT_CAP, CARD_MAY_HAVE_FAILED), Certainty.CERTAIN, cause, Where.OURS, retry,
        "{own}", remedies, (), goes_on,
    )  # fmt: skip


RULES = (
    Rule(
        "U33.unverified", ("U33", "NB4"), Tier.OURS, (own_end(Cause.RESULTS_UNVERIFIED) | says("results.unverified"),),
        (), Certainty.CERTAIN, Cause.RESULTS_UNVERIFIED, Where.DATA, Retry.ASK,
        "the results could not be verified[: {own}]",
        ("upload_again", "approve"), (), True,
    ),
    Rule(
        "METRIC.stopped", (), Tier.OURS, (own_end(Cause.USER_ERROR), _LASTING), (), Certainty.CERTAIN,
        Cause.USER_ERROR, Where.CODE, Retry.NEVER, "{own}", ("lower_rate", "clip_gradients", "resume_kept"),
    ),
    Rule(
        "RESUME.stopped", (), Tier.OURS, (_STARTED_OVER,), (), Certainty.CERTAIN, Cause.RESUME_IGNORED, Where.CODE,
        Retry.NEVER, "the command began again[ at step {first_step}] and opened no file of the checkpoint[ of step "
        "{from_step}] that was restored for it; it was ended before it could replace it",
        ("load_checkpoint", "warn_only"),
    ),
    Rule(
        "OWN.stopped", (), Tier.OURS, (left(heartbeat.STOPPED) | own_end(Cause.STOP_REQUESTED),), (),
        Certainty.CERTAIN, Cause.STOP_REQUESTED, Where.OURS, Retry.NONE, "a stop was requested", ("resume",),
    ),
    Rule(
        "U37.after_last_step", ("U37",), Tier.OURS, (AFTER_LAST_STEP,), (),
        Certainty.CERTAIN, Cause.FINISHED, Where.CODE, Retry.NONE,
        "The command failed after its last step with {exit}[: `{line}`]; its results are kept",
        ("fix_reporting",), (), False,
    ),
    Rule(
        "OWN.done", (), Tier.OURS, (DONE,), (left(*heartbeat.LEFT),), Certainty.CERTAIN, Cause.FINISHED,
        Where.OURS, Retry.NONE, "the command ended with exit code 0",
    ),
    _left(
        heartbeat.CUT_OFF, Cause.CUT_OFF, "the agent reached neither the store nor the supervisor and left",
        Retry.FREE_SAME, Where.MACHINE,
    ),
    _left(
        heartbeat.NOTICED, Cause.PREEMPTED, "the machine received a preemption notice; the agent saved and left",
        Retry.FREE_ELSEWHERE, Where.PLACE,
    ),
    _left(heartbeat.EXPIRED, Cause.EXPIRED, "the machine reached its own time limit", Retry.FREE_SAME),
    *(
        Rule(
            f"LEFT.{word}", (), Tier.OURS, (left(word),), (record_of(*_RECORDED),), Certainty.CERTAIN,
            Cause.SUPERSEDED, Where.OURS, Retry.FREE_SAME, sentence,
        )
        for word, sentence in (
            (heartbeat.SUPERSEDED, "the agent found a newer attempt and left"),
            (heartbeat.CLOSED, "the agent found the run closed and left"),
        )
    ),
    Rule(
        "OWN.signal", ("U1",), Tier.OURS, (SENT_BY_US,), (left(*heartbeat.LEFT), _RECORD_HOLDS),
        Certainty.CERTAIN, Cause.SUPERSEDED, Where.OURS, Retry.FREE_SAME, "the agent ended the command",
    ),
)  # fmt: skip

RECORDED = (
    _own(Cause.STALLED, Retry.ONCE_IDENTICAL, ("see_dump", "longer_stall")),
    _own(Cause.BOOT_TIMEOUT, Retry.FREE_ELSEWHERE, ("other_zone",), True),
    _own(Cause.AGENT_LOST, Retry.ONCE_IDENTICAL, ("other_machine",), True),
    _own(Cause.ORPHANED, Retry.ONCE_IDENTICAL, ("other_machine",), True),
    _own(Cause.EXPIRED, Retry.FREE_SAME, ("more_frequent_checkpoints",)),
    _own(Cause.CUT_OFF, Retry.FREE_SAME, ("same_machine",)),
    _own(Cause.SUPERSEDED, Retry.FREE_SAME),
    _own(Cause.GPU_FAULT, Retry.FREE_ELSEWHERE, ("quarantine", "other_machine")),
    _own(Cause.GPU_UNAVAILABLE, Retry.FREE_ELSEWHERE, ("other_machine", "check_runtime")),
    _own(Cause.LAUNCH_REJECTED, Retry.NEVER, ("check_launch",)),
    _own(Cause.IMAGE_ERROR, Retry.NEVER, ("fix_image",)),
    _own(Cause.FINISHED, Retry.NONE),
    *(
        _own(cause, Retry.NONE, ("resume",))
        for cause in (
            Cause.DEADLINE, Cause.MAX_RUNTIME, Cause.BUDGET, Cause.LIMIT_REACHED, Cause.NO_PROGRESS,
        )
    ),
)  # fmt: skip
