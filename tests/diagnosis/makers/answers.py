"""What a person who knows the whole story says of an end: one answer for each kind, so that cases agree.

The words of causes and retry classes are those of the issue's table of families.
"""

from __future__ import annotations

from dataclasses import replace

from tests.diagnosis.cases import Expected

HOST_OOM = Expected("host_oom", "U9", "certain", "never", "data", ("fewer_workers",))
HOST_OOM_LIKELY = replace(HOST_OOM, certainty="likely")
SLURM_OOM = replace(HOST_OOM, rule="SLURM4", remedies=("more_memory_asked",))
GPU_OOM = Expected("gpu_oom", "U10", "certain", "never", "code", ("smaller_batch",))
HELD = Expected("gpu_unavailable", "U11", "certain", "free_elsewhere", "machine", ("other_machine",))
NO_GPU = Expected("gpu_unavailable", "U31", "certain", "free_elsewhere", "machine", ("other_machine",))
GPU_FAULT = Expected("gpu_fault", "U22", "certain", "free_elsewhere", "card", ("other_machine",))
GPU_FAULT_LIKELY = replace(GPU_FAULT, certainty="likely")
DISK_FULL = Expected("disk_full", "U6", "certain", "once_after_repair", "machine", ("prune_scratch",))
DISK_TEXT = replace(DISK_FULL, certainty="likely")
INODES = replace(DISK_FULL, rule="U7")
KILLED = Expected("killed", "U3", "certain", "free_same", "machine")
HANGUP = replace(KILLED, rule="GEN2")
REBOOTED = Expected("host_rebooted", "GEN6", "certain", "free_same", "machine")
PREEMPTED = Expected("preempted", "U3", "certain", "free_elsewhere", "place")
HOST_ERROR = replace(PREEMPTED, cause="host_error")
MACHINE_DELETED = Expected("machine_deleted", "U3", "certain", "free_same", "place")
TIME_LIMIT = Expected("time_limit", "SLURM2", "certain", "free_same", "place")
# An error without a known text may pass: the table of causes repeats the identical spec once (docs/rules.md).
USER_ERROR = Expected("user_error", "CODE", "likely", "once_identical", "code")
KNOWN_ERROR = replace(USER_ERROR, retry="never")
OUR_END = Expected("superseded", "OURS", "certain", "free_same", "ours")
STOPPED = Expected("stop_requested", "OWN", "certain", "none", "ours")
FINISHED = Expected("finished", "OWN", "certain", "none", "ours")
ALIVE = Expected(None, "", "certain", "none", "unknown", negative=True)
BOOT_TIMEOUT = Expected("boot_timeout", "0-C", "certain", "free_elsewhere", "place", ("other_zone",))
LAUNCH_REJECTED = Expected("launch_rejected", "0-E", "certain", "never", "ours")
IMAGE_ERROR = Expected("image_error", "K8S3", "certain", "never", "image")
PARTIAL = Expected("finished", "U37", "certain", "none", "code")
UNVERIFIED = Expected("results_unverified", "U33", "certain", "ask", "data", ("upload_again",))
STALLED = Expected("stalled", "HANG", "certain", "once_identical", "code")
NOT_STARTED = Expected("command_not_found", "U5", "certain", "never", "code")


def code(rule: str, certainty: str = "certain", *remedies: str, cause: str = "user_error") -> Expected:
    """An error of the user's own code or environment, with the gotcha that explains it."""
    return Expected(cause, rule, certainty, "never", "code", remedies)


def hang(place: str) -> Expected:
    return replace(STALLED, rule=f"HANG.{place}")


def slow(*hints: str) -> Expected:
    """A healthy run that is slow: a hint with its number, and no action."""
    return Expected(None, "", "hint", "none", "unknown", (), hints)


def not_(answer: Expected, *looks_like: str) -> Expected:
    """A look-alike: `answer` is true, and none of the rules `looks_like`."""
    return replace(answer, negative=True, looks_like=looks_like)
