"""The machine itself: its cards, its memory, its disks, and signals from outside."""

from __future__ import annotations

import signal

from supervisor.contract.beat_telemetry import HARDWARE_XIDS
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Where
from supervisor.lifecycle.diagnosis.machine_signs import (
    CARD_AT_LIMIT,
    CARD_HELD,
    CERTAIN_XIDS,
    CONTAINER_OOM,
    DISK_AT_LIMIT,
    DISK_READ,
    FEWER_CARDS,
    LOST_CARD,
    MEMORY_NEAR_LIMIT,
    NO_CARD,
    OOM_LONG_AGO,
    OOM_ROSE,
    OOM_SHARED,
    OOM_STILL,
    XID_IS_OLD,
    xid_in,
)
from supervisor.lifecycle.diagnosis.rule import Rule, Tier
from supervisor.lifecycle.diagnosis.signs import BY_ITSELF, FAILED, NOT_ENTERED, SENT_BY_US, ended_by, own_end
from supervisor.lifecycle.diagnosis.word_signs import NAMES_A_FILE, OTHER_ERROR, cause_is, error_says, has_hit

_WORKER_KILLED = cause_is("worker_killed")
# Programs on the host have errors of that name too.
_GPU_OOM = cause_is("gpu_oom") & error_says(
    "cuda", "gpu", "hip", "xla", "torch", "tensor", "device", "cublas", "cudnn", "mps", "metal", "vulkan", "opencl",
    "cumem", "sycl", "xpu", "hbm", "vram", "rocm", "tpu", "cl_",
)  # fmt: skip
_FULL = cause_is("no_space") | error_says("Not enough free space to write")
_NO_SPACE = _FULL | cause_is("torn_write")

CARDS = (
    Rule(
        "U22.card", ("U22",), Tier.AGENT, (FAILED, LOST_CARD | xid_in(CERTAIN_XIDS)),
        (XID_IS_OLD, NOT_ENTERED, SENT_BY_US), Certainty.CERTAIN, Cause.GPU_FAULT, Where.CARD, Retry.FREE_ELSEWHERE,
        "{fault}; the command ended with it: {exit}[ after {ran}][: `{line}`]",
        ("quarantine", "other_machine", "check_card"),
    ),
    Rule(
        "U22.likely", ("U22",), Tier.AGENT, (FAILED, xid_in(HARDWARE_XIDS)), (XID_IS_OLD, NOT_ENTERED, SENT_BY_US),
        Certainty.LIKELY, Cause.GPU_FAULT, Where.CARD, Retry.FREE_ELSEWHERE,
        "{fault}; the command ended with it: {exit}[ after {ran}][: `{line}`]",
        ("quarantine", "other_machine", "check_card"),
    ),
    Rule(
        "U22.stall", ("U22",), Tier.AGENT, (LOST_CARD | xid_in(HARDWARE_XIDS), own_end(Cause.STALLED)), (XID_IS_OLD,),
        Certainty.CERTAIN, Cause.GPU_FAULT, Where.CARD, Retry.FREE_ELSEWHERE, "{fault}; {own}",
        ("quarantine", "other_machine", "check_card"),
    ),
    Rule(
        "U22.words", ("U22",), Tier.LOG, (BY_ITSELF, cause_is("gpu_hardware")), (), Certainty.LIKELY,
        Cause.GPU_FAULT, Where.CARD, Retry.FREE_ELSEWHERE, "The command ended with {exit}[ after {ran}]: `{line}`",
        ("quarantine", "other_machine", "check_card"),
    ),
    Rule(
        "U31.none", ("U31", "K8S6"), Tier.AGENT, (FEWER_CARDS,), (), Certainty.CERTAIN,
        Cause.GPU_UNAVAILABLE, Where.MACHINE, Retry.FREE_ELSEWHERE,
        "{promised} GPUs promised, {opened} can be opened", ("other_machine", "check_runtime"),
    ),
    Rule(
        "U31.words", ("U31",), Tier.LOG, (BY_ITSELF, cause_is("no_gpu"), NO_CARD), (), Certainty.LIKELY,
        Cause.GPU_UNAVAILABLE, Where.MACHINE, Retry.FREE_ELSEWHERE, "no GPU can be opened: `{line}`",
        ("other_machine", "check_runtime"),
    ),
    Rule(
        "U11.held", ("U11",), Tier.LOG, (FAILED, _GPU_OOM, CARD_HELD), (), Certainty.CERTAIN,
        Cause.GPU_UNAVAILABLE, Where.CARD, Retry.FREE_ELSEWHERE,
        "{held_card} had {held} in use before the command started, and then its memory did not suffice: `{line}`",
        ("other_machine", "free_card"),
    ),
    Rule(
        "U10.text", ("U10",), Tier.LOG, (FAILED, _GPU_OOM),
        (),
        Certainty.CERTAIN, Cause.GPU_OOM, Where.CODE, Retry.NEVER,
        "The command ended with {exit}[ after {ran}][: `{line}`]", ("smaller_batch",),
    ),
    Rule(
        "U10.card", ("U10",), Tier.LOG, (FAILED, cause_is("memory_out"), CARD_AT_LIMIT), (MEMORY_NEAR_LIMIT,),
        Certainty.LIKELY, Cause.GPU_OOM, Where.CODE, Retry.NEVER,
        "Memory ran out, and {card_share} of the card's was in use. The command ended with {exit}[ after {ran}]"
        "[: `{line}`]", ("smaller_batch",),
    ),
)  # fmt: skip

MEMORY = (
    Rule(
        "U9.counter", ("U9", "U3"), Tier.AGENT, (ended_by(signal.SIGKILL), OOM_ROSE),
        (SENT_BY_US, OOM_LONG_AGO, OOM_SHARED), Certainty.CERTAIN, Cause.HOST_OOM, Where.DATA, Retry.NEVER,
        "memory limit hit (certain: the kernel counted {kills})[: oom_kill {before} → {after}][, {rose}]"
        "[; {used} of {limit} GiB in use]",
        ("fewer_workers", "larger_shape", "share_tensor", "keep_batch"), (), True,
    ),
    Rule(
        "U9.container", ("U9", "SLURM4"), Tier.AGENT, (CONTAINER_OOM,), (), Certainty.CERTAIN,
        Cause.HOST_OOM, Where.DATA, Retry.NEVER, "memory limit hit (certain: the container was OOMKilled)",
        ("fewer_workers", "larger_shape", "share_tensor", "keep_batch"), (), True,
    ),
    Rule(
        "U9.worker", ("U9",), Tier.LOG, (FAILED, _WORKER_KILLED, OOM_ROSE), (SENT_BY_US, OOM_LONG_AGO),
        Certainty.CERTAIN, Cause.HOST_OOM, Where.DATA, Retry.NEVER,
        "memory limit hit (certain: the kernel counted {kills})",
        ("fewer_workers", "larger_shape", "share_tensor", "keep_batch"), (), True,
    ),
    Rule(
        "U9.near", ("U9",), Tier.FIGURES, (BY_ITSELF, OOM_ROSE),
        (OOM_LONG_AGO, OOM_SHARED, OTHER_ERROR), Certainty.LIKELY, Cause.HOST_OOM, Where.DATA, Retry.NEVER,
        "memory limit hit (likely: the kernel counted {kills}, and the command ended with it)",
        ("fewer_workers", "larger_shape", "keep_batch"), (), True,
    ),
    Rule(
        "U9.kernel", ("U9", "SLURM4"), Tier.LOG, (ended_by(signal.SIGKILL), has_hit("kernel_oom")), (),
        Certainty.LIKELY, Cause.HOST_OOM, Where.DATA, Retry.NEVER,
        "memory limit hit (likely: `{line}`)", ("fewer_workers", "larger_shape", "keep_batch"), (), True,
    ),
    Rule(
        "U9.shared", ("U9",), Tier.AGENT, (ended_by(signal.SIGKILL), OOM_ROSE, OOM_SHARED, MEMORY_NEAR_LIMIT),
        (SENT_BY_US, OOM_LONG_AGO), Certainty.LIKELY, Cause.HOST_OOM, Where.DATA, Retry.NEVER,
        "memory limit hit (likely: the kernel counted {kills} in a group that others use too, {memory_share} in use)",
        ("fewer_workers", "larger_shape", "keep_batch"), (), True,
    ),
    Rule(
        "U9.memory", ("U9",), Tier.AGENT, (ended_by(signal.SIGKILL), MEMORY_NEAR_LIMIT),
        (SENT_BY_US, OOM_STILL, OOM_ROSE), Certainty.LIKELY, Cause.HOST_OOM, Where.DATA, Retry.NEVER,
        "memory limit hit (likely: {memory_share} of it in use)",
        ("fewer_workers", "larger_shape", "keep_batch"), (), True,
    ),
)  # fmt: skip

SIGNALS = (
    Rule(
        "U3.cpu_time", ("U3",), Tier.AGENT, (ended_by(signal.SIGXCPU),), (), Certainty.CERTAIN,
        Cause.TIME_LIMIT, Where.MACHINE, Retry.FREE_SAME,
        "SIGXCPU[ after {ran}]: the process used up its soft limit of CPU time (ulimit -S -t)",
        ("raise_ulimit", "more_frequent_checkpoints"), (), True,
    ),
    Rule(
        "GEN2.hangup", ("GEN2", "U3"), Tier.AGENT, (ended_by(signal.SIGHUP),), (), Certainty.CERTAIN,
        Cause.KILLED, Where.MACHINE, Retry.FREE_SAME,
        "{signal} came from outside[ after {ran}]; the agent did not send it", ("nohup", "same_machine"), (), True,
    ),
    Rule(
        "U3.killed", ("U3",), Tier.AGENT, (ended_by(signal.SIGKILL), OOM_STILL), (),
        Certainty.CERTAIN, Cause.KILLED, Where.MACHINE, Retry.FREE_SAME,
        "{signal} came from outside[ after {ran}]; the agent did not send it"
        "[; not out of memory: {counter}; do not shrink the batch]",
        ("same_machine", "ask_killer"), (), True,
    ),
    Rule(
        "U3.unread", ("U3",), Tier.AGENT, (ended_by(signal.SIGKILL),),
        (SENT_BY_US, OOM_STILL, OOM_ROSE, has_hit("kernel_oom")),
        Certainty.LIKELY, Cause.KILLED, Where.MACHINE, Retry.ONCE_IDENTICAL,
        "{signal} came from outside[ after {ran}]; the agent did not send it", ("same_machine", "ask_killer"), (), True,
    ),
    Rule(
        "U3.killed_later", ("U3",), Tier.AGENT, (ended_by(signal.SIGKILL), OOM_ROSE), (), Certainty.LIKELY,
        Cause.KILLED, Where.MACHINE, Retry.FREE_SAME,
        "{signal} came from outside[ after {ran}]; the agent did not send it; the kernel killed another",
        ("same_machine", "ask_killer"), (), True,
    ),
    Rule(
        "U3.signal", ("U3",), Tier.AGENT, (ended_by(signal.SIGTERM, signal.SIGINT),), (), Certainty.CERTAIN,
        Cause.KILLED, Where.MACHINE, Retry.FREE_SAME,
        "{signal} came from outside[ after {ran}]; the agent did not send it", ("same_machine", "ask_killer"), (), True,
    ),
)  # fmt: skip

DISKS = (
    Rule(
        "U6.torn", ("U6",), Tier.LOG, (FAILED, cause_is("torn_write")),
        (DISK_READ,), Certainty.LIKELY, Cause.DISK_FULL, Where.MACHINE,
        Retry.ONCE_AFTER_REPAIR,
        "disk full (likely: a file could not be written). The command ended with {exit}[ after {ran}][: `{line}`]",
        ("prune_scratch", "expand_disk", "largest_folders"), (), True,
    ),
    Rule(
        "U6.space", ("U6", "U7"), Tier.LOG, (FAILED, _NO_SPACE, DISK_AT_LIMIT),
        (), Certainty.CERTAIN, Cause.DISK_FULL, Where.MACHINE,
        Retry.ONCE_AFTER_REPAIR,
        "disk full (certain: {disk}). The command ended with {exit}[ after {ran}][: `{line}`]",
        ("prune_scratch", "expand_disk", "largest_folders"), (), True,
    ),
    Rule(
        "U6.text", ("U6", "U7"), Tier.LOG, (FAILED, _FULL), (),
        Certainty.LIKELY, Cause.DISK_FULL, Where.MACHINE, Retry.ONCE_AFTER_REPAIR,
        "disk full (likely: its last line says so). The command ended with {exit}[ after {ran}][: `{line}`]",
        ("prune_scratch", "expand_disk", "largest_folders"), (), True,
    ),
    Rule(
        "U6.tool", ("U6", "U7"), Tier.LOG, (BY_ITSELF, DISK_AT_LIMIT, NAMES_A_FILE), (), Certainty.LIKELY,
        Cause.DISK_FULL, Where.MACHINE, Retry.ONCE_AFTER_REPAIR,
        "disk full (likely: {disk}, and its last words are about a file). The command ended with {exit}[ after {ran}]"
        "[: `{line}`]", ("prune_scratch", "expand_disk", "largest_folders"), (), True,
    ),
)  # fmt: skip
