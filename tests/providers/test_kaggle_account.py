"""The account of Kaggle's sessions: weekly hours, the jobs that are handed over, the token, limits of requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.machines import MachineState
from supervisor.ports.provider import HoursUsedUp, LaunchRejected, ProviderUnavailable
from tests.kaggle.service import ERROR, HOUR_S, TOKEN, Refusal
from tests.providers.kaggle_subject import CAP_S, KaggleSubject


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[KaggleSubject]:
    subject = KaggleSubject(tmp_path)
    yield subject
    subject.close()


def test_without_hours_nothing_is_pushed_and_the_reset_is_named(subject: KaggleSubject) -> None:
    subject.kaggle.used_s = 29.9 * HOUR_S
    with pytest.raises(HoursUsedUp, match=r"weekly GPU hours .* used up \(29\.9 of 30\.0 h\); they begin anew at"):
        subject.provider.launch(subject.request())
    assert subject.kaggle.pushes == 0
    quota = subject.provider.quotas()["t4"]
    assert (quota.noun, quota.week_h, quota.resets_at) == ("weekly GPU hours", 30.0, subject.kaggle.resets_at)
    assert quota.left_h == pytest.approx(0.1)
    assert "cpu" not in subject.provider.quotas()
    assert subject.provider.launch(subject.request(zone=1)).zone == "cpu", "it uses no such hours"


def test_hours_that_are_not_known_refuse_nothing(subject: KaggleSubject) -> None:
    subject.kaggle.refuse["GetAcceleratorQuotaStatistics"] = Refusal(500, "Internal")
    subject.up(subject.request())
    assert subject.provider.quotas() == {}
    del subject.kaggle.refuse["GetAcceleratorQuotaStatistics"]
    subject.kaggle.allowed_s = None
    subject.up(subject.request(run="other"))


def test_hours_that_are_used_up_in_mid_run_end_the_session_and_the_next_one_waits_for_the_reset(
    subject: KaggleSubject,
) -> None:
    first, second = subject.request(), subject.request(attempt=2)
    subject.kaggle.allowed_s = HOUR_S
    subject.up(first)
    assert subject.provider.hand_over(first).job["machine_max_s"] == HOUR_S - 180.0 - 300.0
    subject.step(HOUR_S)
    subject.kaggle.end(subject.version(first), ERROR, "Your weekly GPU quota is used up")
    ended = subject.listed(first)
    assert ended is not None
    assert (ended.state, "weekly GPU quota is used up" in ended.detail) == (MachineState.ENDED, True)
    with pytest.raises(HoursUsedUp, match=r"\(1\.0 of 1\.0 h\); they begin anew at"):
        subject.provider.launch(second)
    assert subject.kaggle.pushes == 1
    subject.kaggle.used_s = 0.0
    assert subject.up(second).state is MachineState.UP


def test_kaggles_own_refusal_for_used_up_hours_names_the_reset(subject: KaggleSubject) -> None:
    subject.kaggle.push_error = "You have used up your weekly GPU quota"
    with pytest.raises(HoursUsedUp, match="weekly GPU quota; they begin anew at"):
        subject.provider.launch(subject.request())


def test_the_agent_leaves_before_the_cap_and_before_the_hours_are_used_up(subject: KaggleSubject) -> None:
    request = replace(subject.request(), machine_max_s=86_400.0)
    machine = subject.up(request)
    job = subject.provider.hand_over(request).job
    assert job["machine_max_s"] == CAP_S - 180.0 - 300.0
    assert (job["expiry_s"], job["gpus"], job["gpu_model"], job["machine_id"]) == (300.0, 1, "T4", machine.machine_id)
    assert not {"store_url", "server_url"} & set(job)
    slow = replace(request, checkpoint_s=400.0, timed_out=1)
    assert subject.provider.hand_over(slow).job["expiry_s"] == 1720.0
    subject.kaggle.used_s = 28.0 * HOUR_S
    assert subject.provider.hand_over(request).job["machine_max_s"] == 2 * HOUR_S - 180.0 - 300.0


def test_a_claim_for_a_notebook_that_is_gone_is_refused(subject: KaggleSubject) -> None:
    with pytest.raises(LaunchRejected, match="not there any more"):
        subject.provider.hand_over(subject.request())


def test_an_expired_token_says_so_and_a_new_one_is_read(subject: KaggleSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    token = Path(subject.settings.kaggle_token.removeprefix("file:"))
    token.write_text("an-old-token\n")
    subject.provider.close()
    with pytest.raises(ProviderUnavailable, match=r"refuses the token.*kaggle_token"):
        subject.provider.machines()
    token.write_text(TOKEN)
    assert subject.listed(request) == machine


def test_after_429_nothing_is_sent_until_kaggle_allows_it(subject: KaggleSubject) -> None:
    subject.kaggle.refuse["ListKernels"] = Refusal(429, "Too many requests", {"Retry-After": "300"})
    for _ in range(3):
        with pytest.raises(ProviderUnavailable, match="429"):
            subject.provider.machines()
    assert subject.kaggle.calls == ["ListKernels"]
    subject.kaggle.refuse.clear()
    subject.clock.advance(301.0)
    assert subject.provider.machines().machines == ()


def test_a_word_that_nobody_knows_leaves_its_zone_unread(
    subject: KaggleSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = subject.request()
    subject.up(request)
    monkeypatch.setattr(subject.provider.api, "status", lambda slug, version: ("PAUSED", ""))
    listing = subject.provider.machines()
    assert (listing.machines, listing.unreachable) == ((), {"gpu"})
    assert "PAUSED" in listing.reasons["gpu"]
