"""Planted violations: each is found by its own check at its own gate, with the stated code and fix, and by no other."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from supervisor.domain.gates.checks import CHECKS, Gate, error_code
from supervisor.domain.gates.verdicts import State, may_go_on
from supervisor.lifecycle.gates.audit import Card
from supervisor.lifecycle.gates.judging import judge
from supervisor.lifecycle.gates.launch import NEVER
from supervisor.lifecycle.gates.teardown import NOT_YET, Approved
from tests.gates.setups import GB, H100, MANIFEST, NOW, OTHER_CODE, OTHER_MANIFEST, box


class Planted(NamedTuple):
    """`code` "" = it only warns."""

    story: str
    gate: str
    check: str
    code: str
    fix: str
    parts: dict[str, dict[str, Any]]


def planted(story: str, at: str, code: str, fix: str, **parts: dict[str, Any]) -> Planted:
    """`at`: the gate and the check that finds it."""
    gate, check = at.split()
    return Planted(story, gate, check, code, fix, parts)


STOPPED = (
    planted("the volume of the kept checkpoints is small", "G0 durable_room", "DISK_TOO_SMALL",
            "keep fewer checkpoints",
            audit={"durable_free_bytes": 10 * GB}),
    planted("checkpoints lie on the disk that goes with the box", "G0 checkpoint_tier", "CHECKPOINT_NOT_DURABLE",
            "storage that survives machine destroy", audit={"survives": ("no", "no")}),
    planted("results lie on the disk that goes with the box", "G0 checkpoint_tier", "CHECKPOINT_NOT_DURABLE",
            "spot provider show lab", audit={"survives": ("yes", "no")}),
    planted("the volume is on another continent", "G0 region", "REGION_MISMATCH", "zones of us-1",
            audit={"volume_region": "us-1"}),
    planted("the disk is full", "G0 disk_bytes", "DISK_TOO_SMALL", "Free space on /data",
            audit={"free_bytes": 0, "hog_bytes": 0}),
    planted("the disk is one byte too small", "G0 disk_bytes", "DISK_TOO_SMALL", "a larger disk",
            audit={"free_bytes": 28 * GB - 1, "hog_bytes": 0}),
    planted("many small files: inodes before bytes", "G0 inodes", "INODES_LOW", "many small files",
            audit={"inodes_used_pct": 97.0}),
    planted("inodes exactly at the limit", "G0 inodes", "INODES_LOW", "pack folders", audit={"inodes_used_pct": 90.0}),
    planted("another GPU than expected", "G0 gpus", "GPU_NOT_FREE", "another machine",
            audit={"gpus": (Card("NVIDIA T4"),)}),
    planted("a stranger works on the card", "G0 gpus", "GPU_NOT_FREE", "named processes end",
            audit={"gpus": (Card(H100, "pid 4711 python (bob)"),)}),
    planted("one of two cards is missing", "G0 gpus", "GPU_NOT_FREE", "request the GPUs that are there",
            audit={"gpus_expected": ("H100", "H100")}),
    planted("no GPU at all", "G0 gpus", "GPU_NOT_FREE", "another machine", audit={"gpus": ()}),
    planted("a code that failed at once in three runs", "G0 known_to_fail", "KNOWN_TO_FAIL", "spot incidents",
            audit={"known_failure": "the code 0a1b failed at once"}),
    planted("a host with two faults of its GPU", "G0 place_quarantined", "PLACE_QUARANTINED", "Use another machine",
            audit={"quarantine": "GPUs of two runs on gpu1 failed"}),
    planted("the driver is older than the image's CUDA", "G0 driver", "DRIVER_TOO_OLD", "an image for CUDA 11.8",
            audit={"driver_cuda": "11.8"}),
    planted("12.9 is older than 12.10", "G0 driver", "DRIVER_TOO_OLD", "newer driver",
            audit={"driver_cuda": "12.9", "image_cuda": "12.10"}),
    planted("a session of half an hour", "G0 time_limit", "LIMIT_TOO_SHORT", "a longer session",
            audit={"limit_s": 1800.0}),
    planted("the host key was never seen", "G1 host_key", "HOST_KEY_UNKNOWN", "Compare the fingerprint",
            access={"host_key": "not known"}),
    planted("the host key has changed", "G1 host_key", "HOST_KEY_UNKNOWN", "known_hosts",
            access={"host_key": "another one than before"}),
    planted("the key is refused", "G1 key_login", "CHECK_FAILED", "register its public part",
            access={"login_accepted": False}),
    planted("the login takes longer than anyone waits", "G1 key_login", "CHECK_FAILED", "ssh-keygen -t ed25519",
            access={"login_s": 16.0}),
    planted("the machine does not respond", "G1 reachable", "CHECK_FAILED", "Start the machine",
            access={"responds": False}),
    planted("no way for files", "G1 transfer_flavor", "CHECK_FAILED", "the direct address",
            access={"copies_files": False}),
    planted("a secret that the account may not read", "G1 secrets", "SECRET_UNREADABLE", "variable or file",
            access={"secrets_unreadable": ("HF_TOKEN",)}),
    planted("the store is out of reach, without relay", "G1 store_access", "STORE_UNREACHABLE",
            "let the supervisor relay",
            access={"store_refused": ("read", "write")}),
    planted("the store takes writes without their precondition", "G1 store_access", "STORE_UNREACHABLE",
            "read and write of the store", access={"store_refused": ("precondition",)}),
    planted("the framework sees no GPU", "G1 cuda_seen", "CHECK_FAILED", "fits the driver",
            access={"framework_gpus": 0}),
    planted("a script from Windows", "G2 line_ends", "CHECK_FAILED", "*.sh text eol=lf",
            smoke={"crlf_files": ("run.sh",)}),
    planted("the code arrived damaged", "G2 bundle_hash", "CHECK_FAILED", "send the code again",
            smoke={"machine_code": OTHER_CODE}),
    planted("the second start begins at nothing", "G2 resumes", "DOES_NOT_RESUME", "at every start",
            smoke={"second_from": -1}),
    planted("the second start repeats a step", "G2 resumes", "DOES_NOT_RESUME", "newest checkpoint",
            smoke={"second_from": 1}),
    planted("two runs write to one folder", "G2 own_output", "CHECK_FAILED", "its own output folder",
            smoke={"writers": ("digits-6",)}),
    planted("the smoke fails", "G2 smoke", "SMOKE_FAILED", "exit 0",
            smoke={"exit_code": 1, "last_line": "KeyError: 'lr'"}),
    planted("the smoke swallows its traceback", "G2 smoke", "SMOKE_FAILED", "without a traceback",
            smoke={"traceback": True, "last_line": "RuntimeError: shapes"}),
    planted("the training dies with its connection", "G3 detached", "DIES_WITH_CONNECTION", "a session of its own",
            launch={"beats_after_drop": False}),
    planted("the code was edited under the run", "G3 transfer", "CHECK_FAILED", "as a new run",
            launch={"code_changed": True}),
    planted("the log begins with a traceback", "G3 clean_start", "LAUNCH_NOT_ALIVE", "spot logs digits-7",
            launch={"traceback": "Traceback (most recent call last):"}),
    planted("no beat ever", "G3 alive", "LAUNCH_NOT_ALIVE", "evidence of the attempt", launch={"first_beat_s": NEVER}),
    planted("beats, and no log line", "G3 alive", "LAUNCH_NOT_ALIVE", "spot logs digits-7",
            launch={"first_line_s": 61.0}),
    planted("another process with our name", "G3 process_ours", "LAUNCH_NOT_ALIVE", "Nothing was ended",
            launch={"nonce_ours": False}),
    planted("the training stays on the CPU", "G3 gpu_used", "LAUNCH_NOT_ALIVE", "its model on the GPU",
            launch={"gpu_used": False, "trained_s": 1501.0}),
    planted("a saved file has another hash", "G5 copy_checked", "RESULTS_UNVERIFIED", "Save them again",
            results={"differing": ("model.pt",)}),
    planted("eleven of twelve files", "G5 result_count", "RESULTS_UNVERIFIED", "Find the missing files",
            results={"saved": 11}),
    planted("the only copy lies on the box", "G5 copy_elsewhere", "RESULTS_UNVERIFIED", "spot pull digits-7",
            results={"copies": ()}),
    planted("a checkpoint that does not load", "G5 load_check", "RESULTS_UNVERIFIED", "the machine is kept",
            results={"not_loading": ("model.pt",)}),
    planted("other code made the results", "G5 provenance", "RESULTS_UNVERIFIED", "which code ran",
            results={"made_by": OTHER_CODE}),
    planted("one file is not verified yet", "G5 all_verified", "RESULTS_UNVERIFIED", "--accept-loss",
            results={"verified": 11}),
    planted("nobody approved", "G6 approved", "NOT_APPROVED", "spot approve digits-7", teardown={"approved": NOT_YET}),
    planted("another machine was approved", "G6 approved", "NOT_APPROVED", "Look at the results",
            teardown={"approved": Approved("ada", "destroy", "gpu2", MANIFEST)}),
    planted("another verb was approved", "G6 approved", "NOT_APPROVED", "the machine",
            teardown={"approved": Approved("ada", "stop", "gpu1", MANIFEST)}),
    planted("the results have changed since", "G6 approved", "NOT_APPROVED", "spot approve",
            teardown={"approved": Approved("ada", "destroy", "gpu1", OTHER_MANIFEST)}),
    planted("approved before there were results", "G6 approved", "NOT_APPROVED", "spot approve",
            teardown={"approved": Approved("ada", "destroy", "gpu1")}),
    planted("approved, and nobody did it", "G6 verb_done", "METER_UNCONFIRMED", "Carry it out",
            teardown={"done": False}),
    planted("no read shows that the bill has ended", "G6 meter_stopped", "METER_UNCONFIRMED", "Confirm on the platform",
            teardown={"gone_at": 0.0}),
    planted("the only read is older than the request", "G6 meter_stopped", "METER_UNCONFIRMED", "until a read shows it",
            teardown={"gone_at": NOW - 301}),
)  # fmt: skip

WARNED = (
    planted("nobody saw the danger clocks", "G0 danger_clocks", "", "spot provider show lab",
            audit={"clocks_shown": False}),
    planted("every machine builds its environment", "G0 prepared_image", "", "spot build-image", audit={"image": ""}),
    planted("a tier that must be verified", "G0 checkpoint_tier", "", "spot provider show lab",
            audit={"survives": ("verify first", "yes")}),
    planted("a size from a page of the platform", "G0 measured_live", "", "rely on it: inodes",
            audit={"measured": ("disk",), "documented": ("inodes",)}),
    planted("less memory than the last attempt used", "G0 memory_limit", "", "larger shape",
            audit={"memory_limit_bytes": 8 * GB}),
    planted("the data folder is a link to another disk", "G0 space_hogs", "", "clear or move",
            audit={"mount_real": "/mnt/small"}),
    planted("a cache larger than what is left", "G0 space_hogs", "", "/data/cache", audit={"hog_bytes": 300 * GB}),
    planted("a save longer than the notice", "G0 notice", "", "Save more often", audit={"checkpoint_s": 200.0}),
    planted("a box without any notice", "G0 notice", "", "save less", audit={"notice_s": 0.0}),
    planted("a new environment for each machine", "G0 own_environment", "", "build it once",
            audit={"builds": "conda create"}),
    planted("no keepalive", "G1 keepalive", "", "ServerAliveInterval 15", access={"keepalive_every_s": 0.0}),
    planted("durable storage that the profile does not list", "G1 reachable", "", "lists its storage",
            access={"durable_listed": False}),
    planted("a port that changes", "G1 transfer_flavor", "", "address and port", access={"port_fixed": False}),
    planted("a key on the shared disk", "G1 secrets", "", "no shared storage",
            access={"secrets_exposed": ("HF_TOKEN",)}),
    planted("no mirror behind the firewall", "G1 mirror", "", "Set the mirror", access={"mirror_needed": True}),
    planted("the speed of another route", "G1 mirror", "", "the route that the downloads take",
            access={"same_route": False}),
    planted("a crawling route", "G1 mirror", "", "Set the mirror", access={"speed_bytes": 200_000}),
    planted("a folder of the platform that the command never gets", "G2 profile_values", "", "SPOT_*",
            smoke={"values_missing": ("HF_HOME",)}),
    planted("rented before anything was tried", "G2 smoke_first", "", "before anything is rented",
            smoke={"ran_first": False}),
    planted("nobody knows what a restart does", "G3 detached", "", "systemd-run", launch={"after_restart": ""}),
    planted("a transfer that begins again", "G3 transfer", "", "resume by themselves",
            launch={"transfer_resumes": False}),
    planted("a day-long run that tells nobody", "G4 watch_layers", "", "spot webhook add",
            monitor={"layers_missing": ("announcements",)}),
    planted("a read that hangs", "G4 bounded_waits", "", "blocked login shell", monitor={"longest_read_s": 40.0}),
    planted("inodes run out", "G4 trends", "", "nearly full", monitor={"used_pct": (("disk", 40.0), ("inodes", 91.0))}),
    planted("done in a tenth of the time", "G4 fast_finish", "", "end of the log",
            monitor={"finished_after_pct": 10.0}),
    planted("a live process without signs", "G4 reconciled", "", "spot ls --machines", monitor={"sign_age_s": 900.0}),
    planted("signs of a process that is gone", "G4 reconciled", "", "spot logs", monitor={"process_alive": False}),
    planted("an end that nobody understands", "G4 causes_typed", "", "before another retry",
            monitor={"last_cause": "unknown"}),
    planted("a silent patrol", "G4 patrol", "", "spot doctor", monitor={"patrol_age_s": 8000.0}),
    planted("a promised file that was never written", "G5 result_count", "", "missing files",
            results={"promised": ("plots/*.png",)}),
    planted("a volume that goes on to bill", "G6 storage_left", "", "last of all",
            teardown={"left_bytes": 50 * GB, "left_usd_per_month": 8.0}),
)  # fmt: skip

ALL = {item.story: item for item in (*STOPPED, *WARNED)}


@pytest.mark.parametrize("item", STOPPED, ids=lambda item: item.story)
def test_a_violation_is_stopped_at_its_own_gate_with_its_code_and_fix(item: Planted) -> None:
    verdicts = judge(box(**item.parts))
    passages = {gate: may_go_on(gate, verdicts, (), NOW) for gate in Gate}
    assert [gate for gate, passage in passages.items() if not passage.go] == [item.gate]
    [stopping] = passages[Gate(item.gate)].stopped_by
    assert (stopping.check, stopping.state, stopping.code) == (item.check, State.FAIL, item.code)
    assert item.fix in stopping.fix
    assert stopping.code == error_code(CHECKS[item.check])


@pytest.mark.parametrize("item", WARNED, ids=lambda item: item.story)
def test_a_doubt_is_warned_of_at_its_own_gate_with_its_fix(item: Planted) -> None:
    verdicts = judge(box(**item.parts))
    passages = {gate: may_go_on(gate, verdicts, (), NOW) for gate in Gate}
    assert all(passage.go for passage in passages.values())
    [(gate, warned)] = [(gate, verdict) for gate, passage in passages.items() for verdict in passage.warned]
    assert (gate, warned.check, warned.code) == (item.gate, item.check, "")
    assert item.fix in warned.fix


@pytest.mark.parametrize("item", ALL.values(), ids=lambda item: item.story)
def test_its_sentences_have_every_value_and_no_full_stop_in_the_fact(item: Planted) -> None:
    [verdict] = [verdict for verdict in judge(box(**item.parts)) if verdict.state != State.PASS]
    assert not {"{", "}"} & set(verdict.fact + verdict.fix)
    assert "None" not in verdict.fact
    assert not verdict.fact.endswith(".")
    assert verdict.fix.endswith(".")


def test_every_check_has_a_violation_and_forty_are_stopped() -> None:
    assert {item.check for item in ALL.values()} == set(CHECKS)
    assert len(STOPPED) >= 40
    assert len(ALL) == len(STOPPED) + len(WARNED), "two stories have one name"


def test_every_code_of_the_list_stops_something() -> None:
    assert {item.code for item in STOPPED} == {check.code for check in CHECKS.values() if check.code} | {"CHECK_FAILED"}
