"""Set-ups of machines and runs as facts: healthy ones, from which the tests take one thing away."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from supervisor.lifecycle.gates.access import Access
from supervisor.lifecycle.gates.audit import Audit, Card
from supervisor.lifecycle.gates.judging import Facts
from supervisor.lifecycle.gates.launch import Launch
from supervisor.lifecycle.gates.monitor import Monitor
from supervisor.lifecycle.gates.rules import Skip
from supervisor.lifecycle.gates.smoke import Smoke
from supervisor.lifecycle.gates.teardown import Approved, Results, Teardown

NOW = 1_764_000_000.0
GB = 10**9
CODE, OTHER_CODE = "c0de" * 16, "0dd0" * 16
MANIFEST, OTHER_MANIFEST = "feed" * 16, "beef" * 16
H100 = "NVIDIA H100 80GB HBM3"

HERE = Skip("the machine is this computer")
NO_GPU = Skip("the run requests no GPU")
NO_CODE = Skip("the run has no code bundle")
NO_BILL = Skip("nothing is billed")


def box(**parts: Any) -> Facts:
    """A rented box with one GPU and a bucket in its region; its results are verified and its teardown is approved, done
    and confirmed. `parts`: name of a part of Facts -> its fields that differ."""
    facts = Facts(
        run="digits-7", provider="lab", at=NOW,
        audit=Audit(
            clocks=("bills $1.20/h until you stop it",), clocks_shown=True, durable_path="gs://lab/runs",
            durable_free_bytes=900 * GB, reserve_bytes=5 * GB, image="lab/train@sha256:12", checkpoints_path="gs://lab",
            results_path="gs://lab", survives=("yes", "yes"), ending="machine destroy", volume_region="eu-1",
            machine_region="eu-1", measured=("disk", "inodes", "memory", "GPUs"), documented=(),
            memory_limit_bytes=64 * GB, memory_needed_bytes=20 * GB, mount_named="/data", mount_real="/data",
            hog="/data/cache", hog_bytes=20 * GB, data_path="/data", free_bytes=80 * GB, checkpoint_bytes=2 * GB,
            kept=3, scratch_bytes=10 * GB, inodes_used_pct=12.0, gpus_expected=("H100",), gpus=(Card(H100),),
            driver_cuda="12.4", image_cuda="12.1", limit_s=math.inf, restore_s=60.0, checkpoint_every_s=600.0,
            checkpoint_s=20.0, upload_s=15.0, notice_s=120.0, builds="", known_failure="", quarantine="",
        ),
        access=Access(
            host="gpu1", host_key="known", login_accepted=True, login_s=1.2, keepalive_every_s=15.0, keepalive_tries=2,
            responds=True, durable_path="gs://lab/runs", durable_listed=True, copies_files=True, relays=False,
            port_fixed=True, secrets_unreadable=(), secrets_exposed=(), store_refused=(), mirror_needed=False,
            mirror="", speed_bytes=90_000_000, same_route=True, framework_gpus=1, gpus_requested=1,
        ),
        smoke=Smoke(
            crlf_files=(), code=CODE, machine_code=CODE, values_missing=(), first_step=2, second_from=2, writers=(),
            ran_first=True, exit_code=0, traceback=False, last_line="step 2 of 2",
        ),
        launch=Launch(
            beats_after_drop=True, after_restart="it is started again", transfer_resumes=True, code_changed=False,
            traceback="", first_beat_s=6.0, first_line_s=8.0, nonce_ours=True, gpu_used=True,
            trained_s=40.0, boot_limit_s=1500.0,
        ),
        monitor=Monitor(
            expect_runtime_s=90_000.0, layers_missing=(), longest_read_s=1.5,
            used_pct=(("disk", 40.0), ("inodes", 12.0), ("memory", 55.0)), finished_after_pct=97.0, process_alive=True,
            sign_age_s=8.0, sign_due_s=60.0, last_cause="finished", patrol_age_s=900.0, patrol_every_s=3600.0,
        ),
        results=Results(
            differing=(), saved=12, expected=12, promised=(), copies=("gs://lab",), not_loading=(), made_by=CODE,
            code=CODE, verified=12,
        ),
        teardown=Teardown(
            verb="destroy", machine="gpu1", approved=Approved("ada", "destroy", "gpu1", MANIFEST), results=MANIFEST,
            done=True, released_at=NOW - 300, gone_at=NOW - 200, left_bytes=0, left_usd_per_month=0.0,
        ),
    )  # fmt: skip
    return but(facts, **parts)


def but(facts: Facts, **parts: Any) -> Facts:
    """The same set-up with other fields in these parts."""
    return replace(facts, **{name: replace(getattr(facts, name), **fields) for name, fields in parts.items()})


def skips(why: Skip, *names: str) -> dict[str, Any]:
    return dict.fromkeys(names, why)


def this_computer(**parts: Any) -> Facts:
    """Processes of the supervisor's own computer: nothing is rented, reached or given back."""
    facts = box(
        audit={
            **skips(HERE, "volume_region", "image", "notice_s", "ending"), "clocks": (),
            "durable_path": "/home/ada/runs", "data_path": "/home/ada/runs",
        },
        access={
            **skips(HERE, "host_key", "login_s", "keepalive_every_s", "responds", "copies_files", "mirror_needed"),
            "store_refused": (),
        },
        smoke={"machine_code": CODE},
        launch={"beats_after_drop": HERE},
        results={"copies": HERE},
        teardown={"approved": HERE, "released_at": NO_BILL, "left_bytes": NO_BILL},
    )  # fmt: skip
    return but(facts, **parts)


def cloud(**parts: Any) -> Facts:
    """A preemptible VM that is deleted at the end; another one is created whenever it is needed."""
    again = Skip("the machine can be had again")
    no_login = Skip("nobody logs in: the machine starts by itself")
    facts = box(
        audit={"clocks": ("deleted after 24 h",), "driver_cuda": "12.8"},
        access=skips(no_login, "host_key", "login_s", "keepalive_every_s", "copies_files"),
        launch={"beats_after_drop": no_login},
        teardown={"approved": again},
    )
    return but(facts, **parts)
