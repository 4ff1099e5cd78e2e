"""What the platform, the host or the start-up script reports: records of the machine's end, launches that failed."""

from __future__ import annotations

from supervisor.contract import heartbeat
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Where
from supervisor.lifecycle.diagnosis.rule import Rule, Sign, Tier
from supervisor.lifecycle.diagnosis.signs import (
    BOOT_CHANGED,
    BY_ITSELF,
    EXIT_IS_OLDER,
    NO_EXIT,
    SESSION_AT_CAP,
    SESSION_GONE,
    UP_WITH_OWN_EXIT,
    left,
    left_says,
    own_end,
    platform_says,
    record_of,
    says,
)
from supervisor.lifecycle.diagnosis.word_signs import error_is_other

# Words of a container runtime that refuses the arguments which the supervisor gave it: every zone refuses them.
_OUR_ARGUMENTS = left_says(
    "unknown or invalid runtime", "cdi device injection failed", "unresolvable cdi", "unknown flag",
    "unknown shorthand flag", "invalid reference format",
)  # fmt: skip
# Left by the agent itself, for a reason that it knows better than the platform.
_KNOWN_BETTER = left(heartbeat.NOTICED, heartbeat.EXPIRED, heartbeat.CUT_OFF, heartbeat.STOPPED)
_NOT_STARTED = left(heartbeat.NO_GPU, heartbeat.NO_CODE, heartbeat.NO_IMAGE, heartbeat.NO_SECRET)


def _gone(
    gotchas: tuple[str, ...], cause: Cause, where: Where, retry: Retry, *, remedy: str, signs: tuple[Sign, ...]
) -> tuple[Rule, ...]:
    """The machine went away: that wins over an exit of the command, unless the command had ended clearly before. A
    machine that goes away breaks connections first. `signs`: other forms of the same record."""
    record = record_of(cause) | own_end(cause)
    return tuple(
        Rule(
            f"RECORD.{cause}{suffix}", gotchas, Tier.RECORD, (sign,),
            (EXIT_IS_OLDER, UP_WITH_OWN_EXIT, _KNOWN_BETTER, _NOT_STARTED), Certainty.CERTAIN, cause, where, retry,
            "{record}", (remedy,), (), True,
        )
        for suffix, sign in (("", record), *((f".{number}", sign) for number, sign in enumerate(signs, 2)))
    )  # fmt: skip


def _weak(
    cause: Cause,
    retry: Retry,
    where: Where = Where.MACHINE,
    goes_on: bool | None = None,
    remedies: tuple[str, ...] = (),
    *,
    alone: bool = False,
) -> Rule:
    """The record does not say that the machine went away: it explains only an end that the command did not make.
    `alone`: it also explains an end that no beat reports."""
    record = record_of(cause) | (own_end(cause) & NO_EXIT) if alone else record_of(cause)
    return Rule(
        f"RECORD.{cause}", (), Tier.RECORD, (record,), (BY_ITSELF, _KNOWN_BETTER, _NOT_STARTED),
        Certainty.CERTAIN, cause, where, retry, "{record}", remedies, (), goes_on,
    )  # fmt: skip


def _left(gotchas: tuple[str, ...], word: str, cause: Cause, where: Where, retry: Retry, *texts: str) -> Rule:
    sentence, *remedies = texts
    return Rule(
        f"LEFT.{word}", gotchas, Tier.AGENT, (left(word),), (), Certainty.CERTAIN, cause, where, retry,
        sentence, tuple(remedies), (), cause in (Cause.GPU_UNAVAILABLE, Cause.LAUNCH_REJECTED) or None,
    )  # fmt: skip


RULES = (
    *_gone(
        ("U3",), Cause.PREEMPTED, Where.PLACE, Retry.FREE_ELSEWHERE, remedy="other_machine",
        signs=(platform_says("preempted", "due to preemption", "PreemptionByScheduler", "spot instance termination"),),
    ),
    *_gone(
        ("U3",), Cause.HOST_ERROR, Where.MACHINE, Retry.FREE_ELSEWHERE, remedy="other_machine",
        signs=(platform_says("NODE_FAIL", "BOOT_FAIL", "hostError", "NodeLost", "low on resource: memory",
        "node failure"),),
    ),
    *_gone(
        ("U3", "GEN6"), Cause.HOST_REBOOTED, Where.MACHINE, Retry.FREE_SAME, remedy="same_machine",
        signs=(BOOT_CHANGED, platform_says("automaticRestart", "rebooted")),
    ),
    *_gone(
        ("U3",), Cause.MACHINE_DELETED, Where.ACCOUNT, Retry.FREE_SAME, remedy="same_machine",
        signs=(platform_says("CANCELLED", "deleted by", "machine deleted", "instance deleted"),),
    ),
    *_gone(
        ("SLURM2",), Cause.TIME_LIMIT, Where.PLACE, Retry.FREE_SAME, remedy="more_frequent_checkpoints",
        signs=(platform_says("TIMEOUT", "DeadlineExceeded", "due to time limit"),),
    ),
    Rule(
        "NB5.cap", ("NB5",), Tier.RECORD, (SESSION_AT_CAP,), (), Certainty.LIKELY, Cause.TIME_LIMIT,
        Where.PLACE, Retry.FREE_SAME, "{record}", ("more_frequent_checkpoints",), (), True,
    ),
    Rule(
        "NB5.session", ("NB5",), Tier.RECORD, (SESSION_GONE,), (), Certainty.LIKELY, Cause.PREEMPTED,
        Where.PLACE, Retry.FREE_ELSEWHERE, "the session is not in the platform's list any more[; it was {age} old]",
        ("other_machine",), (), True,
    ),
    Rule(
        "SLURM4.state", ("SLURM4", "U9"), Tier.RECORD,
        (record_of(Cause.HOST_OOM) | (own_end(Cause.HOST_OOM) & NO_EXIT) | platform_says("OUT_OF_MEMORY",
        "OOMKilled", "oom-kill"),),
        (_KNOWN_BETTER, error_is_other("memory", "killed", "worker", "oom")), Certainty.CERTAIN, Cause.HOST_OOM,
        Where.DATA, Retry.NEVER, "{record}", ("more_memory_asked", "fewer_workers", "larger_shape"), (), True,
    ),
    Rule(
        "K8S5.evicted", ("K8S5",), Tier.RECORD, (platform_says("low on resource: ephemeral-storage",
        "ephemeral local storage", "DiskPressure", "exceeds the limit"),),
        (), Certainty.CERTAIN, Cause.DISK_FULL, Where.MACHINE, Retry.ONCE_AFTER_REPAIR,
        "{record}",
        ("expand_disk", "prune_scratch"), (), True,
    ),
    Rule(
        "K8S1.taint", ("K8S1",), Tier.RECORD, (platform_says("taint"),), (), Certainty.CERTAIN,
        Cause.LAUNCH_REJECTED, Where.ACCOUNT, Retry.NEVER, "no node takes the pod: {record}", ("check_launch",),
    ),
    Rule(
        "K8S1.no_gpu", ("K8S1", "K8S6"), Tier.RECORD,
        (platform_says("0 allocatable", "no GPU node", "device plugin", "UnexpectedAdmissionError")
       ,),
        (),
        Certainty.CERTAIN, Cause.GPU_UNAVAILABLE, Where.MACHINE, Retry.FREE_ELSEWHERE,
        "no node can give a GPU: {record}", ("check_runtime", "other_machine"),
    ),
    Rule(
        "K8S1.full", ("K8S1",), Tier.RECORD, (platform_says("Insufficient ", "FailedScheduling"),),
        (platform_says("taint", "0 allocatable"), BY_ITSELF), Certainty.CERTAIN,
        Cause.NO_CAPACITY, Where.PLACE,
        Retry.FREE_ELSEWHERE, "all capacity is in use: {record}", ("other_zone",),
    ),
    Rule(
        "K8S3.image", ("K8S3",), Tier.RECORD,
        (platform_says("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "manifest unknown"),),
        (platform_says("timeout", "timed out", "TLS handshake", "connection refused", "toomanyrequests"), BY_ITSELF),
        Certainty.CERTAIN, Cause.IMAGE_ERROR, Where.IMAGE, Retry.NEVER, "the image cannot be pulled: {record}",
        ("fix_image",),
    ),
    Rule(
        "K8S2.refused", ("K8S2", "K8S6"), Tier.RECORD,
        (platform_says("is invalid:", "Unprocessable", "422", "unknown field", "without nvidia.com/gpu"),),
        (BY_ITSELF,),
        Certainty.CERTAIN, Cause.LAUNCH_REJECTED, Where.OURS, Retry.NEVER, "the platform refuses the request: {record}",
        ("check_launch",),
    ),
    Rule(
        "0-C.phase", ("0-C",), Tier.RECORD, (own_end(Cause.BOOT_TIMEOUT), says("serial.phase")), (), Certainty.CERTAIN,
        Cause.BOOT_TIMEOUT, Where.MACHINE, Retry.FREE_ELSEWHERE, "{own}; the last phase of its boot: {serial_phase}",
        ("other_zone",), (), True,
    ),
    _weak(
        Cause.DISK_FULL, Retry.ONCE_AFTER_REPAIR, goes_on=True, remedies=("expand_disk", "prune_scratch"), alone=True
    ),
    _weak(Cause.EXPIRED, Retry.FREE_SAME, Where.OURS, True),
    _weak(Cause.GPU_UNAVAILABLE, Retry.FREE_ELSEWHERE, Where.MACHINE, True),
    _weak(Cause.IMAGE_ERROR, Retry.NEVER, Where.IMAGE),
    _weak(Cause.LAUNCH_REJECTED, Retry.NEVER, Where.OURS),
    _weak(Cause.KILLED, Retry.FREE_SAME, goes_on=True, alone=True),
    _weak(Cause.ORPHANED, Retry.ONCE_IDENTICAL, goes_on=True),
    _weak(Cause.AGENT_LOST, Retry.ONCE_IDENTICAL, goes_on=True),
    _weak(Cause.UNKNOWN, Retry.ONCE_IDENTICAL),
    Rule(
        "0-E.arguments", ("0-E",), Tier.AGENT, (left(heartbeat.NO_START, heartbeat.NO_GPU), _OUR_ARGUMENTS), (),
        Certainty.CERTAIN, Cause.LAUNCH_REJECTED, Where.OURS, Retry.NEVER,
        "the container runtime refuses the arguments of the start: {message}", ("check_launch",), (), True,
    ),
    Rule(
        "SLURM3.affinity", ("SLURM3",), Tier.AGENT, (left(heartbeat.NO_START), left_says("may use 1 CPU",
        "affinity")), (),
        Certainty.CERTAIN, Cause.LAUNCH_REJECTED, Where.OURS, Retry.NEVER, "{message}", ("check_launch",), (), True,
    ),
    Rule(
        "NB3.flags", ("NB3",), Tier.AGENT,
        (left(heartbeat.NO_START), left_says("the session has no GPU", "the session has no network",
        "was not taken")), (),
        Certainty.CERTAIN, Cause.LAUNCH_REJECTED, Where.OURS, Retry.ONCE_AFTER_REPAIR, "{message}",
        ("deliver_again", "verify_account"), (), True,
    ),
    Rule(
        "U28.start", ("U28",), Tier.AGENT, (left(heartbeat.NO_GPU), left_says("cuInit says 803", "cuInit says 804")),
        (), Certainty.CERTAIN, Cause.GPU_UNAVAILABLE, Where.IMAGE, Retry.NEVER, "{message}",
        ("other_driver", "fix_layers"), (), True,
    ),
    _left(
        ("U31", "0-D", "0-F"), heartbeat.NO_GPU, Cause.GPU_UNAVAILABLE, Where.MACHINE, Retry.FREE_ELSEWHERE,
        "{message:the machine has fewer GPUs than its shape promises}", "other_machine", "check_runtime",
    ),
    _left(
        ("U42",), heartbeat.NO_CODE, Cause.LAUNCH_REJECTED, Where.OURS, Retry.ONCE_AFTER_REPAIR,
        "{message:the code bundle could not be unpacked}", "deliver_again",
    ),
    _left(
        (), heartbeat.NO_IMAGE, Cause.IMAGE_ERROR, Where.IMAGE, Retry.NEVER,
        "{message:the image could not be pulled or run}", "fix_image",
    ),
    _left(
        (), heartbeat.NO_SECRET, Cause.USER_ERROR, Where.ACCOUNT, Retry.NEVER,
        "{message:a secret of the run cannot be read on the machine}", "fix_secret",
    ),
    _left(
        (), heartbeat.NO_START, Cause.UNKNOWN, Where.MACHINE, Retry.ONCE_IDENTICAL,
        "{message:the container could not be started}", "other_machine",
    ),
)  # fmt: skip
