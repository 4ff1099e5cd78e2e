"""The gates of a run from what is known: no request leaves, and a run has the gates that it has come to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract.beat_telemetry import Cgroup, Disk, Gpus, Telemetry, encode
from supervisor.domain.attempt import Bill, Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.gates.checks import CHECKS
from supervisor.domain.machines import How
from supervisor.domain.profile import Fact, Reach, Source, Survival, Tier
from supervisor.domain.run import Approval, Outcome
from supervisor.domain.status import Status
from supervisor.services.gates.gates import RunGates, show_gates
from tests.fakes.meters import meters_of
from tests.services.bed import COMMAND, Bed, Client

MANIFEST = "feed" * 16
GB = 10**9
DISK = Disk(free_bytes=300 * GB, total_bytes=500 * GB, free_inodes=900, total_inodes=1000)
FIGURES = Telemetry(
    gpus=Gpus(util_pct=(93.0,), memory_used_mib=(9000,), memory_total_mib=(23_000,)),
    cgroup=Cgroup(memory_bytes=4 * GB, memory_max_bytes=16 * GB),
    checkpoints_disk=DISK,
)


def shown(bed: Bed, run_id: str = "digits-7") -> RunGates:
    services = bed.services
    return show_gates(services.parts, services.queries, services.loop, run_id)


def states(gates: RunGates) -> dict[str, str]:
    return {gate["gate"]: gate["state"] for gate in gates["gates"]}


def verdict(gates: RunGates, check: str) -> tuple[str, str]:
    [found] = [item for gate in gates["gates"] for item in gate["verdicts"] if item["check"] == check]
    return found["state"], found["fact"]


def training(bed: Bed, spec: dict[str, Any] | None = None, **pulse: Any) -> None:
    bed.submit("digits-7", {**COMMAND, **(spec or {})})
    run = bed.train("digits-7")
    assert run.pulse is not None
    bed.change("digits-7", pulse=replace(run.pulse, first_progress_at=bed.clock.now() - 30, **pulse))


def finished(bed: Bed, status: Status = Status.COMPLETED, **fields: Any) -> None:
    """The results are verified, and the machine is gone."""
    run, now = bed.run("digits-7"), bed.clock.now()
    assert run.attempt is not None
    gone = replace(run.attempt, ended_at=now - 60, gone_at=now - 30, cause=Cause.FINISHED, step_last=1000)
    outcome = Outcome(MANIFEST, 3, 4096, now - 70, 1000)
    files = replace(run.files, outcome=outcome)
    bed.change("digits-7", **{"status": status, "attempt": gone, "files": files, "try_": None, **fields})


def test_a_new_run_has_come_to_the_first_three_gates(bed: Bed) -> None:
    bed.submit("digits-7")
    gates = shown(bed)
    later = {"G3": "not_reached", "G4": "not_reached", "G5": "not_reached", "G6": "not_reached"}
    assert states(gates) == {"G0": "unread", "G1": "unread", "G2": "unread", **later}
    assert gates["gates"][3]["verdicts"] == []
    assert gates["gates"][3]["text"] == "not reached yet"


def test_a_training_run_is_judged_by_its_last_beat(bed: Bed) -> None:
    training(bed, telemetry=encode(FIGURES))
    gates = shown(bed)
    inodes = "10 % of the inodes of the disk of the checkpoints are in use; fewer than 90 % are wanted"
    assert verdict(gates, "inodes") == ("pass", inodes)
    assert verdict(gates, "memory_limit") == ("pass", "the memory limit is 16.0 GB; the training needs 4.0 GB")
    assert verdict(gates, "trends")[1] == "in use: disk of checkpoints 40 %, inodes of checkpoints 10 %, memory 25 %"
    assert verdict(gates, "store_access") == ("pass", "the machine reads, writes and compares in the object store")
    assert verdict(gates, "process_ours")[0] == "pass"
    assert verdict(gates, "clean_start")[0] == "pass"
    assert verdict(gates, "reconciled")[0] == "pass"
    assert (states(gates)["G5"], states(gates)["G6"]) == ("not_reached", "not_reached")


def test_inodes_that_run_out_are_a_fail_with_code_and_fix(bed: Bed) -> None:
    training(bed, telemetry=encode(FIGURES._replace(checkpoints_disk=DISK._replace(free_inodes=40))))
    gates = shown(bed)
    assert states(gates)["G0"] == "stopped"
    [inodes] = [item for item in gates["gates"][0]["verdicts"] if item["state"] == "fail"]
    assert (inodes["check"], inodes["code"], inodes["by"]) == ("inodes", "INODES_LOW", "supervisor")
    assert inodes["fix"].startswith("Delete or pack")
    assert gates["gates"][0]["text"].startswith("1 check fails: inodes")


def test_silence_is_a_warning_beside_a_listed_machine(bed: Bed) -> None:
    training(bed, beat_at=bed.clock.now() - 900)
    assert verdict(shown(bed), "reconciled") == ("warn", "the process is alive, its newest sign is 15 min old")


def test_no_beat_is_unread_while_it_may_come_and_a_fail_after_the_attempt(bed: Bed) -> None:
    bed.submit("digits-7")
    run = bed.train("digits-7")
    assert run.attempt is not None
    silent = replace(run.attempt, running_at=None, training_at=None)
    bed.change("digits-7", attempt=silent, pulse=None, status=Status.LAUNCHING)
    assert verdict(shown(bed), "alive")[0] == "unknown"
    now = bed.clock.now()
    bed.change("digits-7", attempt=replace(silent, ended_at=now, cause=Cause.BOOT_TIMEOUT), status=Status.RECOVERING)
    gates = shown(bed)
    assert verdict(gates, "alive")[0] == "fail"
    assert states(gates)["G3"] == "stopped"


def test_a_completed_run_passed_the_last_two_gates(bed: Bed) -> None:
    training(bed)
    finished(bed)
    gates = shown(bed)
    assert (states(gates)["G5"], states(gates)["G6"]) == ("passed", "passed")
    assert verdict(gates, "all_verified") == ("pass", "3 of 3 files are verified")
    assert verdict(gates, "approved")[1].startswith("not needed")


def test_a_promised_file_that_is_missing_is_a_warning(bed: Bed) -> None:
    training(bed)
    finished(bed, Status.PARTIAL)
    outcome = bed.run("digits-7").files.outcome
    assert outcome is not None
    bed.change("digits-7", files=replace(bed.run("digits-7").files, outcome=replace(outcome, missing=("plots/*",))))
    assert verdict(shown(bed), "result_count") == ("warn", "3 of 3 files are saved; promised and missing: plots/*")


def test_a_machine_that_is_not_gone_yet_is_not_confirmed_and_later_a_fail(bed: Bed) -> None:
    training(bed)
    finished(bed)
    attempt = bed.run("digits-7").attempt
    assert attempt is not None
    bed.change("digits-7", attempt=replace(attempt, gone_at=None))
    assert states(shown(bed))["G6"] == "open"
    bed.clock.advance(700)
    gates = shown(bed)
    assert states(gates)["G6"] == "stopped"
    assert verdict(gates, "verb_done")[0] == "fail"


def test_an_approval_that_is_missing_stops_the_teardown_and_one_that_fits_passes(bed: Bed) -> None:
    training(bed, {"on_success": "ask"})
    finished(bed, Status.AWAITING_TEARDOWN)
    attempt = bed.run("digits-7").attempt
    assert attempt is not None
    bed.change("digits-7", attempt=replace(attempt, gone_at=None))
    assert verdict(shown(bed), "approved") == ("fail", "release of id-1: not approved")
    now = bed.clock.now()
    bed.change("digits-7", approval=Approval("ada", now, "id-1", MANIFEST), status=Status.COMPLETED, attempt=attempt)
    gates = shown(bed)
    assert verdict(gates, "approved") == ("pass", "release of id-1: approved by ada")
    assert states(gates)["G6"] == "passed"


def test_results_that_cannot_be_verified_hold_until_a_person_gives_them_up(bed: Bed) -> None:
    training(bed)
    run = bed.run("digits-7")
    bed.change("digits-7", status=Status.FINISHING, person=replace(run.person, why="model.pt differs."))
    assert states(shown(bed))["G5"] == "open"
    approval = Approval("ada", bed.clock.now(), "id-1", "", accept_loss="a test")
    bed.change("digits-7", approval=approval)
    gates = shown(bed)
    assert states(gates)["G5"] == "warned"
    assert verdict(gates, "all_verified")[1].endswith("given up by ada: a test")


def test_a_stopped_run_has_no_results_to_hold_it(bed: Bed) -> None:
    training(bed)
    finished(bed, Status.STOPPED, files=bed.run("digits-7").files)
    gates = shown(bed)
    assert states(gates)["G5"] == "passed"
    assert verdict(gates, "all_verified")[1] == "not needed: the run ended as stopped, without results to keep"


def test_a_machine_that_is_kept_has_not_come_to_its_teardown(bed: Bed) -> None:
    training(bed)
    finished(bed, kept_until=bed.clock.now() + 3600)
    assert states(shown(bed))["G6"] == "not_reached"


def test_a_restart_shows_that_the_run_resumes(bed: Bed) -> None:
    training(bed)
    run = bed.run("digits-7")
    assert run.attempt is not None
    now = bed.clock.now()
    first = replace(run.attempt, ended_at=now, gone_at=now, cause=Cause.PREEMPTED, step_kept=100, step_last=120)
    bed.change("digits-7", attempt=first)
    second = bed.train("digits-7", 2)
    assert second.attempt is not None
    bed.change("digits-7", attempt=replace(second.attempt, step_from=100))
    assert verdict(shown(bed), "resumes") == ("pass", "the first start reached step 100; the second began at step 100")
    bed.change("digits-7", attempt=replace(bed.run("digits-7").attempt or first, step_from=None))
    assert verdict(shown(bed), "resumes") == (
        "fail",
        "the first start reached step 100; the second began at the beginning",
    )


@pytest.mark.parametrize("command", ["conda create -n x && python train.py", ["bash", "-c", "pip install torch; x"]])
def test_a_command_that_builds_its_environment_is_warned_of(bed: Bed, command: object) -> None:
    bed.submit("digits-7", {"command": command})
    assert verdict(shown(bed), "own_environment")[0] == "warn"


def test_the_gates_are_read_without_a_request_to_a_provider_a_store_or_a_cloud(bed: Bed) -> None:
    training(bed, telemetry=encode(FIGURES))
    finished(bed)
    calls = bed.provider.calls.copy(), bed.objects.calls.copy()
    answer = Client(bed.services).get("/v1/runs/digits-7/gates")
    assert answer.status_code == 200
    assert (bed.provider.calls, bed.objects.calls) == calls
    checks = [item["check"] for gate in answer.json()["gates"] for item in gate["verdicts"]]
    assert checks == list(CHECKS)


@pytest.mark.parametrize(
    ("cause", "state"),
    [(Cause.AGENT_LOST, "fail"), (Cause.BOOT_TIMEOUT, "fail"), (Cause.PREEMPTED, "pass"), (Cause.QUOTA, "pass")],
)
def test_only_a_silent_agent_fails_the_launch_not_a_machine_that_was_taken(bed: Bed, cause: Cause, state: str) -> None:
    bed.submit("digits-7")
    run, now = bed.train("digits-7"), bed.clock.now()
    assert run.attempt is not None
    ended = replace(run.attempt, running_at=None, training_at=None, ended_at=now, cause=cause)
    bed.change("digits-7", attempt=ended, pulse=None, status=Status.RECOVERING)
    assert verdict(shown(bed), "alive")[0] == state


def test_busy_cards_are_seen_by_the_framework_and_idle_ones_say_nothing(bed: Bed) -> None:
    bed.provider.gpus = lambda shape: "2 × L4"  # type: ignore[method-assign]
    busy = FIGURES._replace(gpus=Gpus(util_pct=(93.0, 90.0), memory_total_mib=(23_000, 23_000)))
    training(bed, telemetry=encode(busy))
    gates = shown(bed)
    assert verdict(gates, "cuda_seen") == ("pass", "the framework sees 2 of 2 GPUs")
    assert verdict(gates, "gpus") == ("pass", "2 of 2 expected GPUs are there and free")
    idle = busy._replace(gpus=Gpus(util_pct=(0.0, 0.0), memory_total_mib=(23_000, 23_000), lost=(None, 1)))
    pulse = bed.run("digits-7").pulse
    assert pulse is not None
    bed.change("digits-7", pulse=replace(pulse, telemetry=encode(idle)))
    gates = shown(bed)
    assert verdict(gates, "cuda_seen")[0] == "unknown"
    assert verdict(gates, "gpus") == ("fail", "1 of 2 expected GPUs are there and free")


def test_a_region_that_the_spec_requires_is_the_machines_own(bed: Bed) -> None:
    training(bed, {"same_region": "require"})
    assert verdict(shown(bed), "region")[1] == "not needed: the machine is this computer"


def test_a_limit_of_this_computer_counts_where_the_spec_says_how_often_it_saves(bed: Bed) -> None:
    bed.submit("digits-7")
    assert verdict(shown(bed), "time_limit")[1] == "not needed: the machine is this computer"
    bed.submit("slow", {**COMMAND, "expect_checkpoint_every_s": 36_000.0})
    state, fact = verdict(shown(bed, "slow"), "time_limit")
    assert (state, fact) == ("fail", "a session ends after 24 h; a restore and 3 checkpoints need 30 h")


def test_plain_secrets_that_the_spec_allows_are_a_warning(bed: Bed) -> None:
    training(bed, {"allow_plain_secrets": True})
    assert verdict(shown(bed), "secrets") == ("warn", "on shared storage or in the spec: allow_plain_secrets")


# --- with the profile of the machine ----------------------------------------------------------------------------------


def with_profile(bed: Bed, **fields: Any) -> None:
    profile = replace(bed.provider.profile(), **fields)
    bed.provider.profile = lambda zone="": profile  # type: ignore[method-assign]


def fact(value: Any) -> Fact[Any]:
    return Fact(value, Source.USER, "2026-11-26", "a test")


def test_the_danger_clocks_of_the_profile_are_facts_of_the_audit(bed: Bed) -> None:
    training(bed)
    with_profile(bed, preemptible=fact(True), notice_s=fact(30.0), kill_grace_s=fact(0.0))
    assert "It may be preempted at any time, with 30 s to save" in verdict(shown(bed), "danger_clocks")[1]


@pytest.mark.parametrize(
    ("save_s", "state", "needed"),
    [(None, "unknown", ""), (20.0, "pass", "take 1 min 40 s"), (40.0, "warn", "take 2 min")],
)
def test_the_notice_is_compared_with_the_save_that_the_agent_measured(
    bed: Bed, save_s: float | None, state: str, needed: str
) -> None:
    bed.provider.traits = replace(bed.provider.traits, shares_computer=False)  # type: ignore[misc]
    training(bed, {"expect_checkpoint_every_s": 600.0}, save_s=save_s)
    with_profile(bed, notice_s=fact(90.0), kill_grace_s=fact(30.0))
    found, text = verdict(shown(bed), "notice")
    assert found == state
    assert needed in text


def test_checkpoints_on_a_tier_that_ends_with_the_machine_are_a_fail(bed: Bed) -> None:
    training(bed)
    lost = Tier("everything", (bed.parts.objects.url.rstrip("/"),), survives_destroy=fact(Survival.NO))
    with_profile(bed, tiers=(lost,))
    gates = shown(bed)
    assert verdict(gates, "checkpoint_tier")[0] == "fail"
    assert [item["code"] for item in gates["gates"][0]["verdicts"] if item["check"] == "checkpoint_tier"] == [
        "CHECKPOINT_NOT_DURABLE"
    ]


def test_a_box_of_ones_own_is_not_given_what_only_a_platform_gives(bed: Bed) -> None:
    """Its provider must measure: nothing is assumed of a machine that cannot be had again."""
    bed.provider.traits = replace(bed.provider.traits, irreplaceable=True, shares_computer=False)  # type: ignore[misc]
    training(bed)
    with_profile(bed, store_reach=fact(Reach.RELAY), mirror=fact("https://mirror.example"))
    gates = shown(bed)
    assert {verdict(gates, check)[0] for check in ("host_key", "key_login", "keepalive", "reachable")} == {"unknown"}
    assert {verdict(gates, check)[0] for check in ("checkpoint_tier", "detached", "mirror")} == {"unknown"}
    assert verdict(gates, "store_access")[0] == "pass"
    finished(bed)
    gates = shown(bed)
    assert verdict(gates, "approved") == ("fail", "release of id-1: not approved")
    assert verdict(gates, "storage_left")[0] == "unknown"
    assert states(gates)["G6"] == "stopped"


def test_the_bill_of_a_host_keeps_g6_until_a_later_read_confirms_its_end(bed: Bed) -> None:
    bed.provider.meters = meters_of("local-a")
    training(bed)
    finished(bed, Status.AWAITING_TEARDOWN)
    run = bed.run("digits-7")
    assert run.attempt is not None
    bill = Bill(How.COMMAND, "terminate", confirms=True, announced=True)
    item = Retiring(run.attempt.ref, run.attempt.launch_id, 0.0, 0.0, bill=bill)
    bed.change("digits-7", retiring=(item,))
    gates = shown(bed)
    assert verdict(gates, "approved") == ("fail", "terminate of id-1: not approved")
    assert states(gates)["G6"] == "stopped"
    bed.clock.advance(10)
    now = bed.clock.now()
    approval = Approval("ops", now, "id-1", MANIFEST, verb="stop")
    done = replace(item, bill=replace(bill, done_verb="stop", done_at=now))
    bed.change("digits-7", approval=approval, retiring=(done,))
    gates = shown(bed)
    assert verdict(gates, "approved") == ("pass", "stop of id-1: approved by ops")
    assert verdict(gates, "verb_done")[0] == "pass"
    assert verdict(gates, "meter_stopped") == ("fail", "id-1: no later read shows that it bills no more")
    codes = [item["code"] for gate in gates["gates"] for item in gate["verdicts"] if item["check"] == "meter_stopped"]
    assert codes == ["METER_UNCONFIRMED"]
    bed.clock.advance(10)
    finished(bed, retiring=(), status_since=bed.clock.now())
    gates = shown(bed)
    assert verdict(gates, "meter_stopped")[0] == "pass"
    bed.change("digits-7", approval=None)
    fact = "not needed: the run ended as completed, and nobody was asked about local-a"
    assert verdict(shown(bed), "approved") == ("pass", fact)
