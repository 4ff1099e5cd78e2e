"""The gates of runs on hosts that people own: the last reading with its age, the connection, earlier attempts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.attempt import Try, refusal_detail
from supervisor.domain.causes import Cause
from supervisor.domain.gates.verdicts import Key
from supervisor.domain.machines import HostFacts, Placement
from supervisor.domain.status import Status
from supervisor.ports.provider import SecretRefused
from supervisor.services.gates import kept
from supervisor.services.gates.gates import RunGates
from supervisor.services.runs.changing import change
from supervisor.services.runs.waiving import WaiveRequest, waive
from supervisor.services.views.formats import time_text
from tests.fakes.callers import MEMBER
from tests.services.bed import COMMAND, Bed
from tests.services.test_gates import GB, shown, states, training, verdict, with_profile


def with_host(bed: Bed, **fields: Any) -> None:
    """Read a moment ago, and healthy."""
    healthy: dict[str, Any] = {
        "host_key": "known", "login_accepted": True, "login_s": 0.3, "keepalive": (15.0, 2), "took_s": 0.4,
        "free_bytes": 300 * GB, "inodes_used_pct": 10.0, "memory_bytes": 64 * GB, "store_refused": (),
        "dropped_at": bed.clock.now(),
    }  # fmt: skip
    bed.provider.traits = replace(bed.provider.traits, shares_computer=False)  # type: ignore[misc]
    with_profile(bed, host=HostFacts(at=bed.clock.now(), host="gpu1", **{**healthy, **fields}))


def by(gates: RunGates, check: str) -> tuple[str, str]:
    [found] = [item for gate in gates["gates"] for item in gate["verdicts"] if item["check"] == check]
    return found["state"], found["by"]


def test_a_host_is_judged_by_its_last_reading_before_anything_is_started(bed: Bed) -> None:
    bed.submit("digits-7", {**COMMAND, "expect_checkpoint_gb": 2})
    with_host(bed)
    gates = shown(bed)
    assert {by(gates, check) for check in ("disk_bytes", "inodes", "host_key", "key_login", "store_access")} == {
        ("pass", "gpu1")
    }
    assert verdict(gates, "keepalive") == ("pass", "a dead connection is noticed after 30 s (15 s x 2)")
    assert verdict(gates, "transfer_flavor")[0] == "pass"


def test_a_host_that_was_read_too_long_ago_is_not_known(bed: Bed) -> None:
    bed.submit("digits-7", {**COMMAND, "expect_checkpoint_gb": 2})
    with_host(bed)
    bed.clock.advance(700)
    state, fact = verdict(shown(bed), "disk_bytes")
    assert (state, fact.startswith("last read 11 min ago: the disk of gpu1 has 300 GB free")) == ("unknown", True)
    assert verdict(shown(bed), "host_key")[0] == "unknown"


def test_a_failed_check_shows_its_code_and_a_waiver_passes_it(bed: Bed) -> None:
    bed.submit("digits-7")
    with_host(bed, inodes_used_pct=99.0)
    assert states(shown(bed))["G0"] == "stopped"
    change(bed.parts, "digits-7", waive(WaiveRequest("inodes", "cleared tonight"), MEMBER))
    assert states(shown(bed))["G0"] in ("waived", "warned", "unread")


@pytest.mark.parametrize(
    ("dropped_s", "beat_s", "cause", "state"),
    [
        (-30.0, -5.0, None, "pass"),
        (-30.0, -40.0, None, "unknown"),
        (-30.0, -40.0, Cause.AGENT_LOST, "fail"),
        (-5000.0, -5.0, None, "unknown"),
        (-30.0, -40.0, Cause.USER_ERROR, "unknown"),
    ],
    ids=["it beats on", "no beat since", "lost after the drop", "no drop in this attempt", "ended by itself"],
)
def test_the_beats_after_the_end_of_the_connection(
    bed: Bed, dropped_s: float, beat_s: float, cause: Cause | None, state: str
) -> None:
    training(bed, beat_at=bed.clock.now() + beat_s)
    with_host(bed, dropped_at=bed.clock.now() + dropped_s)
    if cause is not None:
        attempt = bed.run("digits-7").attempt
        assert attempt is not None
        ended = replace(attempt, ended_at=bed.clock.now(), cause=cause)
        bed.change("digits-7", attempt=ended, status=Status.RECOVERING)
    gates = shown(bed)
    assert verdict(gates, "detached")[0] == state
    [item] = [item for item in gates["gates"][3]["verdicts"] if item["check"] == "detached"]
    assert item["code"] == ("DIES_WITH_CONNECTION" if state == "fail" else "")


def again_on_the_host(bed: Bed, zone: str = "local-a", **earlier: Any) -> str:
    """The verdict of `detached` of a second attempt that was not read yet, after one that trained for an hour."""
    training(bed)
    first, now = bed.run("digits-7").attempt, bed.clock.now()
    assert first is not None
    times = {"requested_at": now - 7200, "started_at": now - 7200, "running_at": now - 7100, "training_at": now - 7000}
    ended = {"ended_at": now - 3600, "gone_at": now - 3600, "cause": Cause.PREEMPTED, "step_last": 10}
    bed.change("digits-7", attempt=replace(first, **{**times, **ended, **earlier}))
    place = replace(first.placement, zone=zone)
    second = replace(first, number=2, launch_id="1.2.1", placement=place, requested_at=now - 5, running_at=None)
    bed.change("digits-7", attempt=replace(second, training_at=None), pulse=None, status=Status.LAUNCHING)
    with_host(bed, dropped_at=0.0)
    return verdict(shown(bed), "detached")[0]


def test_what_an_earlier_attempt_on_the_same_host_has_shown_is_not_tried_again(bed: Bed) -> None:
    assert again_on_the_host(bed) == "pass"
    gates = shown(bed)
    [item] = [item for item in gates["gates"][3]["verdicts"] if item["check"] == "detached"]
    assert item["at"] == time_text(bed.clock.now() - 3600), "with its age"
    assert verdict(gates, "clean_start")[0] == "pass"


@pytest.mark.parametrize(
    "earlier",
    [{"zone": "local-b"}, {"ended_at": -8 * 86_400.0}, {"cause": Cause.AGENT_LOST}, {"code": "0dd0" * 16}],
    ids=["another host", "too long ago", "it was lost", "other code"],
)
def test_nothing_is_taken_over_from_another_host_code_or_week(bed: Bed, earlier: dict[str, Any]) -> None:
    fields = dict(earlier)
    if "ended_at" in fields:
        back_s = fields["ended_at"]
        fields = {
            name: bed.clock.now() + back_s - before_s
            for name, before_s in (("requested_at", 3600), ("started_at", 3600), ("running_at", 3500), ("ended_at", 0))
        }
    assert again_on_the_host(bed, **fields) == "unknown"


def test_a_judge_that_forgets_which_host_it_was_is_caught(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant."""
    monkeypatch.setattr(kept, "key_of", lambda watched, attempt: Key("any", "", "", ""))
    assert again_on_the_host(bed, zone="local-b") == "pass"


def test_a_secret_that_the_launch_could_not_read_is_named(bed: Bed) -> None:
    bed.submit("digits-7")
    spec = {**COMMAND, "secrets": {"HF_TOKEN": "env:HF_TOKEN"}}
    bed.parts.store.spec = lambda key: spec  # type: ignore[method-assign]
    with_host(bed)
    now, place = bed.clock.now(), Placement("local", "local", "local-a", "any", False)
    detail = refusal_detail(SecretRefused.code, "secret HF_TOKEN: it is not set")
    refused = Try(1, 1, "1.1.1", "m", place, now, ended_at=now, outcome=Cause.LAUNCH_REJECTED, detail=detail)
    bed.change("digits-7", status=Status.WAITING, detail="in other words", try_=refused)
    fact = "not readable on the machine: secret HF_TOKEN: it is not set"
    assert verdict(shown(bed), "secrets") == ("fail", fact)
