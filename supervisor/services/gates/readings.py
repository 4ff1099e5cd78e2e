"""The facts of a run's gates that the supervisor knows already, or that it enforces by rules of its own; gate by gate.

A bundle with Windows line ends was refused when it was stored. An agent that has taken the baton has read, written and
compared in the object store, and each of its beats carries the nonce of its try. Results count when their manifest was
verified, and a machine is gone when a later listing did not have it. What a provider of people's own machines has to
measure stays None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from supervisor.contract.beat_telemetry import Disk, Telemetry
from supervisor.domain.attempt import Attempt, training_s
from supervisor.domain.causes import Cause
from supervisor.domain.figures import disks_of, share_pct
from supervisor.domain.gates.checks import CHECKS, error_code
from supervisor.domain.profile import End, Reach, Survival, survival
from supervisor.domain.run import Approval, Run
from supervisor.domain.texts import clause
from supervisor.lifecycle.gates.access import Access
from supervisor.lifecycle.gates.audit import Audit, Card
from supervisor.lifecycle.gates.judging import Facts
from supervisor.lifecycle.gates.launch import NEVER, Launch
from supervisor.lifecycle.gates.monitor import Monitor
from supervisor.lifecycle.gates.places import GB, NO_GPU, access_of, audit_of, with_incidents
from supervisor.lifecycle.gates.rules import Known, Skip
from supervisor.lifecycle.gates.smoke import Smoke
from supervisor.lifecycle.gates.teardown import Results
from supervisor.services.gates.kept import beats_after_drop
from supervisor.services.gates.teardowns import teardown_facts
from supervisor.services.gates.watched import HERE, Watched, skip_if
from supervisor.services.runs.smoked import facts_of_smoke
from supervisor.wording.profile import clock_texts

BUILDERS = ("conda create", "conda env create", "virtualenv", "python -m venv", "pip install", "apt-get install")
ALERTS = "announcements to a person"
SILENT = (Cause.BOOT_TIMEOUT, Cause.AGENT_LOST, Cause.UNKNOWN)  # ends of an attempt whose agent never beat

NO_CODE = Skip("the run has no code bundle")
NO_LOGIN = Skip("the agent reports by itself: the supervisor logs in nowhere")
NO_SECRETS = Skip("the spec names no secrets")
NO_IMAGES = Skip("commands run on the machine as it is")
NOT_PREEMPTED = Skip("the platform does not take this machine back")
OWN_DISK = Skip("each machine begins with a new disk")
ANY_REGION = Skip("the spec does not require one region")
NO_CONNECTION = Skip("the training has no connection that it could die with")
NO_MACHINE_WORKS = Skip("no machine of the run works now")
NO_RUNTIME = Skip("the spec names no expected runtime")


def facts_of(watched: Watched) -> Facts:
    return Facts(
        run=watched.run.run_id,
        provider=watched.provider,
        at=watched.now,
        audit=audit_facts(watched),
        access=access_facts(watched),
        smoke=smoke_facts(watched),
        launch=launch_facts(watched),
        monitor=monitor_facts(watched),
        results=results_facts(watched),
        teardown=teardown_facts(watched),
    )


# --- G0 ---------------------------------------------------------------------------------------------------------------


def audit_facts(watched: Watched) -> Audit:
    """What is known of the place, and what the agent there has measured since."""
    run, spec, disk, profile = watched.run, watched.spec, _disk(watched), watched.profile
    base = audit_of(run, watched.shape, profile, watched.store)
    base = with_incidents(base, run, watched.place, profile, blocked=watched.blocked)
    expected_gb = spec.get("expect_checkpoint_gb")  # runs of earlier versions have it in their spec alone
    expected_bytes = None if expected_gb is None else int(expected_gb * GB)
    region = None if watched.attempt is None else watched.attempt.placement.region
    cgroup, telemetry = watched.telemetry.cgroup, watched.telemetry
    memory_limit = None if cgroup is None else cgroup.memory_max_bytes
    memory = None if cgroup is None else cgroup.memory_bytes
    return replace(
        base,
        clocks=tuple(map(clause, clock_texts(profile, _price(watched)))),
        clocks_shown=True,  # in the plan, before --watch and on the page of the run
        survives=base.survives if watched.given or profile.host is not None else _survives(watched),
        image=skip_if(not watched.traits.images, NO_IMAGES, run.image.digest or run.policy.image),
        volume_region=skip_if(spec.get("same_region") != "require", ANY_REGION, region),  # else refused at the submit
        machine_region=skip_if(watched.here, HERE, region),
        measured=_measured(telemetry) or base.measured,
        memory_limit_bytes=base.memory_limit_bytes if memory_limit is None else int(memory_limit),
        memory_needed_bytes=base.memory_needed_bytes if memory is None else int(memory),
        mount_named=skip_if(watched.given and not watched.here, OWN_DISK),
        data_path=base.data_path if disk is None else "the disk of the checkpoints",
        free_bytes=base.free_bytes if disk is None or disk.free_bytes is None else int(disk.free_bytes),
        checkpoint_bytes=expected_bytes if base.checkpoint_bytes is None else base.checkpoint_bytes,
        inodes_used_pct=base.inodes_used_pct if disk is None else _used_inodes_pct(disk),
        limit_s=skip_if(watched.here and run.policy.expect_checkpoint_every_s is None, HERE, base.limit_s),
        restore_s=_last_restore_s(watched.attempts) if watched.attempts else base.restore_s,
        **_saves(watched),
        builds=_builder(spec.get("command", "")),
        **_gpu_facts(watched, base),
    )


def _saves(watched: Watched) -> dict[str, Any]:
    """The agent measures a save and its upload together, so the upload alone counts as long."""
    pulse = watched.pulse
    measured_s = watched.run.files.checkpoint_s if pulse is None or pulse.save_s is None else pulse.save_s
    save_s = None if measured_s is None else 0.0
    unneeded = watched.here or not _is_spot(watched)
    return {"checkpoint_s": skip_if(unneeded, NOT_PREEMPTED, save_s), "upload_s": measured_s}


def _gpu_facts(watched: Watched, base: Audit) -> dict[str, Any]:
    """Of a host as it was read; elsewhere the shape has the names, and the agent reports its cards without them."""
    if watched.profile.host is not None:
        return {"driver_cuda": NO_GPU if base.gpus_expected is NO_GPU else base.driver_cuda}
    return {
        "gpus_expected": skip_if(watched.gpus == "", NO_GPU, _expected_gpus(watched)),
        "gpus": _cards(watched),
        "driver_cuda": skip_if(watched.gpus == "", NO_GPU, base.driver_cuda),
    }


def _price(watched: Watched) -> float | None:
    return None if watched.attempt is None else watched.attempt.price_usd_per_h


def _survives(watched: Watched) -> tuple[str, str] | None:
    """Of a machine that cannot be had again and was not read nothing is assumed."""
    # Such a machine does not even know where the store is.
    if watched.profile.store_reach.value in (Reach.DOOR, Reach.OUTPUT):
        return Survival.YES, Survival.YES
    answer = survival(watched.profile, watched.store, End.DESTROY).value
    return None if answer is None else (answer, answer)


def _disk(watched: Watched) -> Disk | None:
    return disks_of(watched.telemetry).get("checkpoints")


def _used_inodes_pct(disk: Disk | None) -> float | None:
    free_pct = None if disk is None else share_pct(disk.free_inodes, disk.total_inodes)
    return None if free_pct is None else 100.0 - free_pct


def _measured(telemetry: Telemetry) -> tuple[str, ...]:
    names = {"disk": telemetry.checkpoints_disk, "memory": telemetry.cgroup, "GPUs": telemetry.gpus}
    return tuple(name for name, part in names.items() if part is not None)


def _card_count(words: str) -> int:
    """Of '8 × A100 80GB', '2 GPUs' or 'L4'."""
    first = words.split(" ", 1)[0]
    return int(first) if first.isdigit() else 1


def _expected_gpus(watched: Watched) -> tuple[str, ...] | None:
    """The agent reports its cards without their names; the shape has the names, and the provider gives each card to one
    machine only."""
    return None if watched.gpus is None else ("GPU",) * _card_count(watched.gpus)


def _cards(watched: Watched) -> tuple[Card, ...] | None:
    gpus = watched.telemetry.gpus
    if gpus is None:
        return None
    lost = {index for index, value in enumerate(gpus.lost) if value}
    count = max(len(gpus.util_pct), len(gpus.memory_total_mib), len(gpus.memory_used_mib))
    return tuple(Card(f"GPU {index}") for index in range(count) if index not in lost)


def _last_restore_s(attempts: Sequence[Attempt]) -> float | None:
    """How long the last restore took."""
    for attempt in reversed(attempts):
        if attempt.running_at is not None and attempt.training_at is not None:
            return max(0.0, attempt.training_at - attempt.running_at)
    return None


def _is_spot(watched: Watched) -> bool:
    return watched.attempt.placement.spot if watched.attempt is not None else watched.run.policy.spot


def _builder(command: object) -> str:
    words = command if isinstance(command, str) else " ".join(map(str, command if isinstance(command, list) else ()))
    return next((builder for builder in BUILDERS if builder in words), "")


# --- G1, G2 -----------------------------------------------------------------------------------------------------------


def access_facts(watched: Watched) -> Access:
    run, spec, base = watched.run, watched.spec, access_of(watched.profile, watched.store)
    secrets, plain = spec.get("secrets"), spec.get("allow_plain_secrets")
    # Of this computer they were read at the submit; elsewhere the agent reads them before it takes the baton.
    readable = () if watched.claimed or watched.here or not secrets else None
    no_login: dict[str, Any] = dict.fromkeys(
        ("host", "login_accepted", "keepalive_every_s", "responds", "copies_files", "mirror_needed"), NO_LOGIN
    )
    return replace(
        base,
        secrets_unreadable=skip_if(not secrets and not plain, NO_SECRETS, _refused_secret(run) or readable),
        secrets_exposed=("allow_plain_secrets",) if plain else (),
        store_refused=() if watched.claimed else base.store_refused,
        framework_gpus=skip_if(watched.has_no_gpu, NO_GPU, _busy_gpus(watched)),
        gpus_requested=_gpu_count(watched),
        **(no_login if watched.given else {}),
    )


def _refused_secret(run: Run) -> tuple[str, ...]:
    """The secret that the last request for a machine could not read, with the reason."""
    reason = run.try_.refusal(error_code(CHECKS["secrets"])) if run.try_ is not None else ""
    return (reason,) if reason else ()


def _busy_gpus(watched: Watched) -> int | None:
    """How many cards compute, once all of them do: the framework sees them. Idle cards say nothing."""
    gpus = watched.telemetry.gpus
    busy = 0 if gpus is None else sum(1 for pct in gpus.util_pct if pct)
    count = _gpu_count(watched)
    return busy if count is not None and busy >= count else None


def _gpu_count(watched: Watched) -> int | None:
    """Of a machine of its shape; None = not known."""
    if watched.profile.host is not None:
        return watched.profile.host.cards_of.get(watched.shape)
    return None if watched.gpus is None else _card_count(watched.gpus)


def smoke_facts(watched: Watched) -> Smoke:
    code, smoked = watched.run.policy.code, facts_of_smoke(watched.run, watched.spec)
    restarted, second_from = resumed(watched.attempts)
    if restarted is not None:
        smoked = replace(smoked, first_step=restarted, second_from=second_from)
    return replace(
        smoked,
        crlf_files=skip_if(not code, NO_CODE, ()),  # such a bundle is refused when it is stored
        code=skip_if(not code, NO_CODE, code),
        machine_code=None if watched.attempt is None else watched.attempt.code,
        values_missing=(),  # the agent sets them
        writers=(),  # each run has a folder of its own in the store
    )


def resumed(attempts: Sequence[Attempt]) -> tuple[int | None, int]:
    """The newest restart: the checkpoint before it, and where it began. A real restart proves more than a smoke."""
    for before, after in reversed(list(pairwise(attempts))):
        if before.generation == after.generation and before.step_kept and after.training_at is not None:
            return before.step_kept, -1 if after.step_from is None else after.step_from
    return None, -1


# --- G3, G4 -----------------------------------------------------------------------------------------------------------


def launch_facts(watched: Watched) -> Launch:
    attempt = watched.attempt
    if attempt is None:
        return Launch()
    code = watched.run.policy.code
    first = _first_sign_s(attempt)
    return Launch(
        beats_after_drop=skip_if(watched.given, NO_CONNECTION, beats_after_drop(watched, attempt)),
        after_restart=_after_restart(watched.profile.survives_reboot.value),
        transfer_resumes=skip_if(not code, NO_CODE, True),
        code_changed=attempt.code is not None and attempt.code != code,
        traceback=_first_traceback(watched),
        first_beat_s=first,
        first_line_s=first,
        nonce_ours=True if watched.claimed else None,
        gpu_used=skip_if(watched.has_no_gpu, NO_GPU, _gpu_used(watched.telemetry)),
        trained_s=training_s(attempt, watched.now),
        boot_limit_s=watched.run.policy.stall.boot_timeout_s,
    )


def _after_restart(survives: bool | None) -> str | None:
    """The supervisor starts the next attempt of a run whose machine restarted (host_rebooted)."""
    return None if survives is None else "it goes on" if survives else "the supervisor starts the next attempt"


def _first_sign_s(attempt: Attempt) -> Known[float]:
    if attempt.running_at is not None:
        return Skip("the agent beats before it starts the command")
    if attempt.ended_at is None:
        return None
    ended = Skip(f"the machine ended before the command started: {attempt.cause}")
    return NEVER if attempt.cause in SILENT else ended


def _first_traceback(watched: Watched) -> str | None:
    """Once a step was reported the start was clean. Else the last line of a command that ended before its first one."""
    attempt, pulse = watched.attempt, watched.pulse
    if attempt is None:
        return None
    if (pulse is not None and pulse.first_progress_at is not None) or attempt.step_last is not None:
        return ""
    end = attempt.exit
    return end.last_line if end is not None and end.code and "Error" in end.last_line else None


def _gpu_used(telemetry: Telemetry) -> bool | None:
    if telemetry.gpus is None:
        return None
    values = [value for value in telemetry.gpus.util_pct if value is not None]
    return any(value > 0 for value in values) if values else None


def monitor_facts(watched: Watched) -> Monitor:
    run, pulse, expected_s = watched.run, watched.pulse, watched.run.policy.expect_runtime_s
    ended = [item for item in watched.attempts if item.ended_at is not None and item.cause is not None]
    idle, host = run.live_attempt is None, watched.profile.host
    return Monitor(
        expect_runtime_s=skip_if(expected_s is None, NO_RUNTIME, expected_s),
        layers_missing=() if watched.alerted else (ALERTS,),
        longest_read_s=skip_if(watched.given, NO_LOGIN, None if host is None else host.took_s),
        used_pct=skip_if(idle, NO_MACHINE_WORKS, _used_pct(watched.telemetry)),
        finished_after_pct=_finished_after_pct(watched, expected_s),
        process_alive=skip_if(idle, NO_MACHINE_WORKS, True),
        sign_age_s=None if pulse is None else max(0.0, watched.now - pulse.beat_at),
        sign_due_s=run.policy.stall.silence_s,
        last_cause=_last_cause(ended),
        patrol_age_s=watched.tick_age_s,
        patrol_every_s=watched.tick_every_s,
    )


def _used_pct(telemetry: Telemetry) -> tuple[tuple[str, float], ...] | None:
    used: list[tuple[str, float]] = []
    for role, disk in disks_of(telemetry).items():
        for what, free, total in (
            ("disk", disk.free_bytes, disk.total_bytes),
            ("inodes", disk.free_inodes, disk.total_inodes),
        ):
            free_pct = share_pct(free, total)
            if free_pct is not None:
                used.append((f"{what} of {role}", 100.0 - free_pct))
    cgroup = telemetry.cgroup
    memory_pct = None if cgroup is None else share_pct(cgroup.memory_bytes, cgroup.memory_max_bytes)
    if memory_pct is not None:
        used.append(("memory", memory_pct))
    return tuple(used) or None


def _finished_after_pct(watched: Watched, expected_s: float | None) -> Known[float]:
    run = watched.run
    if expected_s is None or run.files.outcome is None:
        return NO_RUNTIME if expected_s is None else Skip("the training has not ended")
    return share_pct(run.training_s + training_s(run.live_attempt, watched.now), expected_s)


def _last_cause(ended: Sequence[Attempt]) -> Known[str]:
    return str(ended[-1].cause) if ended else Skip("no attempt has ended")


# --- G5 ---------------------------------------------------------------------------------------------------------------


def results_facts(watched: Watched) -> Results:
    run, attempt, outcome, code = watched.run, watched.attempt, watched.run.files.outcome, watched.run.policy.code
    accepted = _accepted_loss(run.approval)
    if outcome is None:
        value: Known[Any] = None
        if run.terminal and not accepted and not run.person.why:
            value = Skip(f"the run ended as {run.status}, without results to keep")
        names = ("differing", "saved", "copies", "not_loading", "made_by", "verified")
        return Results(**dict.fromkeys(names, value), accepted_loss=accepted)
    checked = any(rule.verify for rule in run.policy.results)
    return Results(
        differing=(),
        saved=outcome.files,
        expected=outcome.files,
        promised=outcome.missing,
        copies=skip_if(watched.here, HERE, (watched.store_url,)),
        not_loading=skip_if(not checked, Skip("the spec has no load check"), ()),
        made_by=skip_if(not code, NO_CODE, attempt.code if attempt is not None else None),
        code=code,
        verified=outcome.files,
        accepted_loss=accepted,
    )


def _accepted_loss(approval: Approval | None) -> str:
    return f"given up by {approval.actor}: {approval.accept_loss}" if approval and approval.accept_loss else ""
