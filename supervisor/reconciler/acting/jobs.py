"""What a machine is made from: the launch request, with all that the agent on it must know (training contract)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.contract.identifiers import request_id
from supervisor.domain.attempt import Try
from supervisor.domain.run import Run
from supervisor.ports.provider import LaunchRequest

JOB_VERSION = 1
# Of the time until a stall is judged: then the agent takes a thread dump, so that it is in the store before the end.
STALL_DUMP_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Paces:
    """Settings that travel to the agent unchanged. `server_file`: where it finds our address; None = store only."""

    store_url: str
    server_file: str | None
    beat_push_s: float
    beat_store_s: float
    log_chunk_s: float
    cut_off_s: float
    rest_s: float
    upload_reserve_s: float
    results_save_max_mb: int = 256
    poll_interval_s: float = 30.0  # of the supervisor: when a stall will be judged


def launch_request(
    run: Run, try_: Try, spec: Mapping[str, Any], *, nonce: str, supervisor_id: str, paces: Paces
) -> LaunchRequest:
    """The request of this try: the same for every repeat, because the nonce is read back from the baton."""
    job = {
        "version": JOB_VERSION,
        "run_id": run.run_id,
        "generation": run.generation,
        "attempt": try_.attempt,
        "launch_id": try_.launch_id,
        "nonce": nonce,
        "supervisor_id": supervisor_id,
        "store_url": paces.store_url,
        "server_file": paces.server_file,
        "command": spec["command"],
        "workdir": spec.get("workdir"),
        "env": spec.get("env") or {},
        "code": spec.get("code"),
        "image_digest": run.image.digest or None,
        "conda_env": spec.get("conda_env"),
        "venv": spec.get("venv"),
        "secrets": sorted(spec.get("secrets") or {}),
        "tracker_url": spec.get("tracker_url"),
        "checkpoints": spec.get("checkpoints") or {},
        "results": spec.get("results") or [],
        "results_generation": run.generation,
        "retry": spec.get("retry") or {"exit_codes": [], "log_patterns": []},
        "machine_max_s": run.policy.limits.machine_max_s,
        "stop_grace_s": run.policy.stop_grace_s,
        "stop_consumed": run.stop_consumed,
        "stall_dump_s": STALL_DUMP_SHARE * run.policy.stall.polls * paces.poll_interval_s,
        "first_dump_s": STALL_DUMP_SHARE * run.policy.stall.first_progress_s if run.reported else None,
        "steps_from_zero": run.from_zero,
        "stays_after_success": run.policy.on_success != "release" or run.policy.require_pull,
        "stays_after_failure": run.policy.on_failure != "release",
        "beat_push_s": paces.beat_push_s,
        "beat_store_s": paces.beat_store_s,
        "log_chunk_s": paces.log_chunk_s,
        "cut_off_s": paces.cut_off_s,
        "rest_s": paces.rest_s,
        "upload_reserve_s": paces.upload_reserve_s,
        "results_save_max_mb": paces.results_save_max_mb,
    }
    return LaunchRequest(
        name=try_.machine_name,
        request_id=request_id(supervisor_id, run.run_id, run.generation, try_.attempt, try_.number),
        placement=try_.placement,
        supervisor_id=supervisor_id,
        run_id=run.run_id,
        launch_id=try_.launch_id,
        machine_max_s=run.policy.limits.machine_max_s,
        job=job,
        image=run.image.digest or run.policy.image,
        secrets=spec.get("secrets") or {},
    )
