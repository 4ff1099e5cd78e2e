"""Every check of a run's life, from the audit of its machine to the end of the bill: the list that people read.

A check belongs to one gate. `says` is the template of its fact, filled by the judges (lifecycle/gates) with texts that
are ready to read. `code` is the error code of a fail; a check without one only warns, or fails as CHECK_FAILED. `boxes`
are the lines of the lifecycle checklist that the check stands for: S1 to S6 setup once, A1 to A5 audit, C1 to C4
connection and credentials, W1 to W4 wrapper and smoke, L1 to L3 launch, M1 to M5 monitoring, T1 to T6 teardown, and V
for the "verify" line of each part. A check without boxes comes from the gates of the platform plan alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from supervisor.domain.incidents import KNOWN_TO_FAIL, PLACE_QUARANTINED


class Gate(StrEnum):
    """In their order; the names are what people read beside the number."""

    AUDIT = "G0"
    ACCESS = "G1"
    SMOKE = "G2"
    LAUNCH = "G3"
    MONITOR = "G4"
    VERIFY = "G5"
    TEARDOWN = "G6"


# Their checks must be known to be good: an unread one holds, no waiver counts, only `spot approve` gives results up.
STRICT = frozenset({Gate.VERIFY, Gate.TEARDOWN})
CHECK_FAILED = "CHECK_FAILED"  # the error code of a fail whose check has none of its own

NOW_S = 60.0  # changes at any moment, such as who holds a GPU
MEASURED_S = 600.0  # measured on a machine that works
PROVEN_S = 7 * 86_400.0  # stays true for the same machine, image, code and spec
LASTING_S = float("inf")  # of finished work: does not change any more


@dataclass(frozen=True, slots=True)
class Check:
    """`what`: a noun phrase, for "could not be read". `young_s`: how long a verdict is reused for the same key."""

    id: str
    gate: Gate
    boxes: tuple[str, ...]
    what: str
    says: str
    fix: str
    code: str = ""
    young_s: float = MEASURED_S


_ALL = (
    # --- G0 audit -----------------------------------------------------------------------------------------------------
    Check(
        "danger_clocks", Gate.AUDIT, ("S1",), "the danger clocks of the platform", "{clocks}{shown}",
        fix="Read what bills and what deletes by itself, before the launch: spot provider show {provider}.",
        young_s=PROVEN_S,
    ),
    Check(
        "durable_room", Gate.AUDIT, ("S4",), "the free space where the kept checkpoints lie",
        "{path} has {free} free; {kept} checkpoints of {checkpoint} and a reserve need {needed}",
        fix="Enlarge {path}, or let the spec keep fewer checkpoints.", code="DISK_TOO_SMALL",
    ),
    Check(
        "prepared_image", Gate.AUDIT, ("S5",), "the image of the machines", "{image}",
        fix="Save the environment once and name it: spot build-image, then `image` in the spec.", young_s=PROVEN_S,
    ),
    Check(
        "checkpoint_tier", Gate.AUDIT, ("A1",), "what the end of a machine leaves of its storage",
        "checkpoints lie on {checkpoints}, results on {results}; after {ending} they are there: {survives}",
        fix="Put both on storage that survives {ending}: spot provider show {provider} lists it.",
        code="CHECKPOINT_NOT_DURABLE", young_s=PROVEN_S,
    ),
    Check(
        "region", Gate.AUDIT, ("A2",), "the regions of the volume and of the machine",
        "the volume is in {volume_region}, the machine in {machine_region}",
        fix="Choose zones of {volume_region}, or move the volume.", code="REGION_MISMATCH", young_s=PROVEN_S,
    ),
    Check(
        "measured_live", Gate.AUDIT, ("A3",), "which figures were measured on the machine",
        "measured on the machine: {measured}; taken from documents: {documented}",
        fix="Measure on the machine before you rely on it: {documented}.",
    ),
    Check(
        "memory_limit", Gate.AUDIT, ("A3",), "the memory limit of the machine",
        "the memory limit is {limit}; the training needs {needed}",
        fix="Choose a larger shape, or lower the memory of the training (batch size, loader workers).",
    ),
    Check(
        "space_hogs", Gate.AUDIT, ("A4",), "the large folders on the disk of the data",
        "the data lies on {mount}; the largest folder there is {hog} with {size}, and {free} are free",
        fix="Measure that disk itself, and clear or move {hog}.",
    ),
    Check(
        "disk_bytes", Gate.AUDIT, ("A5",), "the free space on the disk of the data",
        "{path} has {free} free; 3 times {kept} checkpoints of {checkpoint}, and {scratch} of scratch, need {needed}",
        fix="Free space on {path}, choose a larger disk, or let the spec keep fewer checkpoints.",
        code="DISK_TOO_SMALL",
    ),
    Check(
        "gpus", Gate.AUDIT, ("AV",), "the GPUs of the machine",
        "{free} of {expected} expected GPUs are there and free{taken}",
        fix="Wait until the named processes end, choose another machine, or request the GPUs that are there.",
        code="GPU_NOT_FREE", young_s=NOW_S,
    ),
    Check(
        "inodes", Gate.AUDIT, ("A3", "AV"), "the used inodes on the disk of the data",
        "{used} of the inodes of {path} are in use; fewer than {limit} are wanted",
        fix="Delete or pack folders of many small files on {path}.", code="INODES_LOW",
    ),
    Check(
        "driver", Gate.AUDIT, (), "the versions of the driver and of the image's CUDA",
        "the driver supports CUDA {driver}; the image needs {image}",
        fix="Choose a machine with a newer driver, or an image for CUDA {driver}.", code="DRIVER_TOO_OLD",
        young_s=PROVEN_S,
    ),
    Check(
        "time_limit", Gate.AUDIT, (), "the time limit of the session",
        "{limit}; a restore and 3 checkpoints need {needed}",
        fix="Request a longer session, or save checkpoints more often.", code="LIMIT_TOO_SHORT", young_s=PROVEN_S,
    ),
    Check(
        "notice", Gate.AUDIT, (), "the time of a save against the notice of an end",
        "a save, its upload twice and 60 s take {needed}; {notice}{loss}",
        fix="Save more often or save less, so that an end without a last save costs little.", young_s=PROVEN_S,
    ),
    Check(
        "own_environment", Gate.AUDIT, ("C2",), "whether the command builds its environment",
        "the command runs {builds}",
        fix="Use the environment of the image or of the machine; build it once, not with every machine.",
        young_s=PROVEN_S,
    ),
    Check(
        "known_to_fail", Gate.AUDIT, (), "whether the code or the image is known to fail", "{known}",
        fix="Submit a corrected one; or read the incident and close it: spot incidents.", code=KNOWN_TO_FAIL,
        young_s=NOW_S,
    ),
    Check(
        "place_quarantined", Gate.AUDIT, (), "whether the machine is set aside", "{quarantine}",
        fix="Use another machine; when this one works again, close the incident: spot incidents.",
        code=PLACE_QUARANTINED, young_s=NOW_S,
    ),
    # --- G1 access ----------------------------------------------------------------------------------------------------
    Check(
        "host_key", Gate.ACCESS, (), "the key of the host", "the host key of {host} is {state}",
        fix="Compare the fingerprint with the host's own (ssh-keygen -lf on the host), then add it to known_hosts.",
        code="HOST_KEY_UNKNOWN",
    ),
    Check(
        "key_login", Gate.ACCESS, ("S2",), "the login with a key", "{login}",
        fix="Create a key (ssh-keygen -t ed25519) and register its public part with the host or the platform.",
    ),
    Check(
        "keepalive", Gate.ACCESS, ("S3",), "the keepalive of the connection",
        "{noticed}",
        fix="Set ServerAliveInterval 15 and ServerAliveCountMax 2 for the host in ~/.ssh/config.", young_s=PROVEN_S,
    ),
    Check(
        "reachable", Gate.ACCESS, ("SV",), "the response of the machine",
        "the machine {responds}; its durable storage {path} is {listed}",
        fix="Start the machine and correct its address; spot provider show {provider} lists its storage.",
        young_s=NOW_S,
    ),
    Check(
        "transfer_flavor", Gate.ACCESS, ("C1",), "how files reach the machine", "{flavor}; {port}",
        fix="Use the direct address and port of the machine, and name it in ~/.ssh/config.",
    ),
    Check(
        "secrets", Gate.ACCESS, ("C3",), "the secrets of the run", "{secrets}",
        fix="Name each secret by variable or file that the machine's account may read, on no shared storage.",
        code="SECRET_UNREADABLE",
    ),
    Check(
        "store_access", Gate.ACCESS, (), "the object store from the machine",
        "{refused}",
        fix="Grant the machine's account read and write of the store, or let the supervisor relay.",
        code="STORE_UNREACHABLE",
    ),
    Check(
        "mirror", Gate.ACCESS, ("C4",), "the speed of downloads on their own route",
        "{route}, measured {speed} per second",
        fix="Set the mirror of the platform's profile, and measure on the route that the downloads take.",
    ),
    Check(
        "cuda_seen", Gate.ACCESS, ("CV",), "the GPUs that the training's framework sees",
        "the framework sees {seen} of {expected} GPUs",
        fix="Install a build of the framework that fits the driver, and check CUDA_VISIBLE_DEVICES.",
    ),
    # --- G2 smoke -----------------------------------------------------------------------------------------------------
    Check(
        "line_ends", Gate.SMOKE, ("S6",), "the line ends of the scripts", "scripts with Windows line ends: {files}",
        fix="Save them with Unix line ends; .gitattributes: *.sh text eol=lf.", young_s=PROVEN_S,
    ),
    Check(
        "bundle_hash", Gate.SMOKE, (), "the hash of the code on the machine",
        "the code on the machine is {machine}, the submitted one {bundle}",
        fix="Let the supervisor send the code again; do not edit it on the machine.", young_s=PROVEN_S,
    ),
    Check(
        "profile_values", Gate.SMOKE, ("W1",), "the folders and settings that the command gets",
        "values of the platform that the command does not get: {missing}",
        fix="Let the command read the SPOT_* variables, and set the missing ones in `env`.", young_s=PROVEN_S,
    ),
    Check(
        "resumes", Gate.SMOKE, ("W2",), "whether a second start goes on from the first",
        "the first start reached {reached}; the second began at {resumed}",
        fix="Load the newest checkpoint at every start, without a flag.", code="DOES_NOT_RESUME", young_s=PROVEN_S,
    ),
    Check(
        "own_output", Gate.SMOKE, ("W3",), "which runs write to the same output",
        "other runs that write to the same output: {writers}",
        fix="Give each run its own output folder.",
    ),
    Check(
        "smoke_first", Gate.SMOKE, ("W4",), "when the smoke ran", "{when}",
        fix="Run the command for two batches on your computer before anything is rented: `smoke` in the spec.",
        young_s=PROVEN_S,
    ),
    Check(
        "smoke", Gate.SMOKE, ("WV",), "the end of the smoke", "the smoke command ended with exit {exit}{last_line}",
        fix="Correct the command until the smoke ends with exit 0 and without a traceback.", code="SMOKE_FAILED",
        young_s=PROVEN_S,
    ),
    # --- G3 launch ----------------------------------------------------------------------------------------------------
    Check(
        "detached", Gate.LAUNCH, ("L1",), "whether the training outlives its connection",
        "the connection was dropped on purpose, and the beats {beats}; after a restart of the machine: {restart}",
        fix="Start the command in a session of its own (systemd-run, setsid), not in the connection.",
        code="DIES_WITH_CONNECTION", young_s=PROVEN_S,
    ),
    Check(
        "transfer", Gate.LAUNCH, ("L2",), "the transfer of the code", "{transfer}; the code {code} since the start",
        fix="Submit changed code as a new run; transfers resume by themselves.",
    ),
    Check(
        "clean_start", Gate.LAUNCH, ("L3",), "the first lines of the log", "{traceback}",
        fix="Read the first lines: spot logs {run}.", code="LAUNCH_NOT_ALIVE", young_s=LASTING_S,
    ),
    Check(
        "alive", Gate.LAUNCH, ("LV",), "the first beat and the first log line",
        "after the command's start: first beat {beat}, first log line {line}; within {limit} are wanted",
        fix="Read the log and the evidence of the attempt: spot logs {run}.", code="LAUNCH_NOT_ALIVE",
        young_s=LASTING_S,
    ),
    Check(
        "process_ours", Gate.LAUNCH, (), "the process that beats", "the process {nonce} the nonce of this try",
        fix="Nothing was ended. Find the owner of that process on the machine.", code="LAUNCH_NOT_ALIVE",
        young_s=NOW_S,
    ),
    Check(
        "gpu_used", Gate.LAUNCH, (), "the use of the GPU",
        "after {trained} the training {used}; within {limit} is wanted",
        fix="Check that the command puts its model on the GPU; a run without GPU requests none.",
        code="LAUNCH_NOT_ALIVE", young_s=LASTING_S,
    ),
    # --- G4 monitor ---------------------------------------------------------------------------------------------------
    Check(
        "watch_layers", Gate.MONITOR, ("M1",), "what watches a long run",
        "expected to run {runtime}; missing beside the agent and the loop: {missing}",
        fix="Add an endpoint for announcements: spot webhook add.",
    ),
    Check(
        "bounded_waits", Gate.MONITOR, ("M2",), "the longest read of the machine",
        "the longest read of the machine took {longest}; each is given up after {limit}",
        fix="Look for a blocked login shell or network on the machine.", young_s=NOW_S,
    ),
    Check(
        "trends", Gate.MONITOR, ("M3",), "the trend of disks, inodes and memory", "in use: {used}",
        fix="Free what is nearly full, before the training stops there.", young_s=NOW_S,
    ),
    Check(
        "fast_finish", Gate.MONITOR, ("M3",), "the duration of the finished training",
        "the training ended after {after} of its expected time",
        fix="Read the end of the log: a training that ends this early has often failed.", young_s=LASTING_S,
    ),
    Check(
        "reconciled", Gate.MONITOR, ("M4",), "the process and its files beside each other",
        "the process {process}, its newest sign is {age} old",
        fix="Read the machine itself: spot ls --machines, spot logs {run}.", young_s=NOW_S,
    ),
    Check(
        "causes_typed", Gate.MONITOR, ("M5",), "the cause of the last end", "the last attempt ended with {cause}",
        fix="Read its evidence before another retry: spot show {run} --evidence.", young_s=LASTING_S,
    ),
    Check(
        "patrol", Gate.MONITOR, ("MV",), "the last pass over all runs",
        "the last pass over all runs is {age} old; one comes every {every}",
        fix="Check the supervisor itself: spot doctor.", young_s=NOW_S,
    ),
    # --- G5 verify ----------------------------------------------------------------------------------------------------
    Check(
        "copy_checked", Gate.VERIFY, ("T1",), "the sizes and checksums of the saved results",
        "files that differ from their manifest: {differing}",
        fix="Save them again from the machine, which is kept for this.", code="RESULTS_UNVERIFIED", young_s=LASTING_S,
    ),
    Check(
        "result_count", Gate.VERIFY, ("T2",), "the number of results",
        "{saved} of {expected} files are saved; promised and missing: {missing}",
        fix="Find the missing files on the machine, which is kept for this.", code="RESULTS_UNVERIFIED",
        young_s=LASTING_S,
    ),
    Check(
        "copy_elsewhere", Gate.VERIFY, ("T3",), "the copies of the results off the machine",
        "copies that do not lie on this machine: {copies}",
        fix="Pull them: spot pull {run}.", code="RESULTS_UNVERIFIED", young_s=LASTING_S,
    ),
    Check(
        "load_check", Gate.VERIFY, ("T4",), "the load check of the results", "results that do not load: {failed}",
        fix="Save or train them again; the machine is kept for this.", code="RESULTS_UNVERIFIED", young_s=LASTING_S,
    ),
    Check(
        "provenance", Gate.VERIFY, ("T5",), "the code that made the results",
        "the results were made by code {made}, the run has {run_code}",
        fix="Find out which code ran: spot show {run} --facts.", code="RESULTS_UNVERIFIED", young_s=LASTING_S,
    ),
    Check(
        "all_verified", Gate.VERIFY, ("TV",), "how many results are verified",
        "{verified} of {files} files are verified",
        fix="Wait for the verification, or give the results up: spot approve {run} --accept-loss REASON.",
        code="RESULTS_UNVERIFIED", young_s=LASTING_S,
    ),
    # --- G6 teardown --------------------------------------------------------------------------------------------------
    Check(
        "approved", Gate.TEARDOWN, ("T6",), "the approval of the teardown", "{verb} of {machine}: {approval}",
        fix="Look at the results and the machine, then: spot approve {run}.", code="NOT_APPROVED", young_s=LASTING_S,
    ),
    Check(
        "verb_done", Gate.TEARDOWN, (), "whether the teardown was carried out", "{verb} of {machine}: {done}",
        fix="Carry it out, or let the provider retry: spot ls --machines.", code="METER_UNCONFIRMED", young_s=LASTING_S,
    ),
    Check(
        "meter_stopped", Gate.TEARDOWN, (), "whether the bill has ended", "{meter}",
        fix="Confirm on the platform that nothing bills any more; the run reminds until a read shows it.",
        code="METER_UNCONFIRMED", young_s=LASTING_S,
    ),
    Check(
        "storage_left", Gate.TEARDOWN, (), "the storage that stays", "left on the platform: {size}, {price} per month",
        fix="Delete what is not needed any more, last of all and after a verified copy.", young_s=LASTING_S,
    ),
)  # fmt: skip

CHECKS: Mapping[str, Check] = {check.id: check for check in _ALL}


def checks_of(gate: Gate) -> tuple[Check, ...]:
    return tuple(check for check in _ALL if check.gate == gate)


def error_code(check: Check) -> str:
    """The code of the error with which a fail of this check stops."""
    return check.code or CHECK_FAILED
