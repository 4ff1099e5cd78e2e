"""Deliveries: none is lost, whatever a receiver does, and one process of all delivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from supervisor.domain.events import Event, EventKind
from supervisor.lifecycle.events.delivering import (
    BACKOFFS_S,
    GIVE_UP_ENDPOINT_S,
    MOST_TRIES,
    failed_too_long,
    next_try_at,
)
from supervisor.ports.notifier import SETTINGS_ID, DeliveryFailed, Endpoint, Form, Notification, Target
from supervisor.reconciler.delivering import announcer as announcing
from supervisor.reconciler.delivering.announcer import LEASE, Announcer
from supervisor.reconciler.delivering.delivering import Delivering
from supervisor.reconciler.leader import Leader
from tests.contracts.store_values import NOW, a_run, insert
from tests.fakes.courier import failing
from tests.fakes.notifier import FakeNotifier
from tests.reconciler.office import ADDED, Office
from tests.scenarios.doors import AtOnce
from tests.waiting import wait_for


def test_the_schedule_is_ten_tries_over_three_days_and_the_same_for_the_same_delivery() -> None:
    assert MOST_TRIES == 10
    for number in range(200):
        at = 0.0
        for tries in range(MOST_TRIES - 1):
            then = next_try_at(number, tries, None, at)
            assert then is not None
            assert 0.9 <= (then - at) / BACKOFFS_S[tries] <= 1.1
            assert then == next_try_at(number, tries, None, at)
            at = then
        assert 68 * 3600 < at < 84 * 3600
        assert next_try_at(number, MOST_TRIES - 1, None, at) is None
    assert len({next_try_at(number, 3, None, 0.0) for number in range(200)}) > 190, "they come back apart"
    assert next_try_at(1, 0, 120.0, NOW) == NOW + 120.0
    assert failed_too_long(NOW, NOW + GIVE_UP_ENDPOINT_S)
    assert not failed_too_long(None, NOW)


def test_what_was_taken_is_sent_once(office: Office) -> None:
    office.endpoint("a")
    office.announce("digits-1", EventKind.STARTED, EventKind.COMPLETED)
    office.steps(3)
    (one, two) = [batch[0] for batch in office.courier.sent["https://a/x"]]
    assert (one.kind, one.sequence, one.run_id) == ("started", 2, "digits-1")
    assert (two.kind, two.sequence) == ("completed", 3)
    assert office.courier.tried == 2
    assert {one.status for one in office.store.deliveries.page("a", None, 9)} == {204}


def test_after_the_last_try_it_is_given_up_and_can_be_sent_again(office: Office) -> None:
    office.endpoint("a")
    office.courier.answer = failing(500)
    office.announce("digits-1", EventKind.STARTED)
    for _ in range(MOST_TRIES + 2):
        office.step()
        (kept,) = office.store.deliveries.page("a", None, 9)
        office.clock.advance(max(0.0, (kept.next_at or 0.0) - office.clock.now()))
    (kept,) = office.store.deliveries.page("a", None, 9, state="given_up")
    assert (kept.tries, kept.next_at, kept.status) == (MOST_TRIES, None, 500)
    assert office.courier.tried == MOST_TRIES
    office.store.endpoints.change(
        office.endpoint_now("a"), replace(office.endpoint_now("a"), disabled_at=None), ADDED, office.clock.now()
    )
    office.courier.answer = lambda target, batch: None
    assert office.store.deliveries.replay("a", None, 0.0, ADDED, office.clock.now()) == 1
    office.step()
    assert office.courier.events("https://a/x") == [kept.event_id]


def test_gone_switches_the_endpoint_off_and_the_others_hear_of_it(office: Office) -> None:
    office.endpoint("a", note="the pager")
    office.endpoint("b")

    def answer(target: Target, batch: Sequence[Notification]) -> None:
        if "a" in target.url.split("/")[2]:
            raise DeliveryFailed("HTTP 410 from a", permanent=True, status=410, gone=True)

    office.courier.answer = answer
    office.announce("digits-1", EventKind.STARTED)
    office.step()
    gone = office.endpoint_now("a")
    assert gone.disabled_at is not None
    assert "410" in gone.disabled_why
    while office.store.deliveries.fan_out(office.clock.now(), 500):
        pass
    office.step()
    told = [batch[0] for batch in office.courier.sent["https://b/x"]]
    assert [one.kind for one in told] == ["started", "webhook_disabled"]
    assert "the pager" in told[1].text
    tried = office.courier.tried
    office.announce("digits-1", EventKind.COMPLETED)
    office.steps(1000, 300)
    assert office.courier.tried == tried + 1, "nothing more was sent to it"
    # Switched on again it gets what it had not taken.
    office.courier.answer = lambda target, batch: None
    office.store.endpoints.change(gone, replace(gone, disabled_at=None, disabled_why=""), ADDED, office.clock.now())
    office.clock.advance(1000)
    office.step()
    assert len(office.courier.events("https://a/x")) == 1


def test_who_takes_nothing_for_five_days_is_switched_off_and_one_success_starts_the_count_anew(office: Office) -> None:
    office.endpoint("a")
    office.courier.answer = failing(500)
    office.announce("digits-1", EventKind.STARTED)
    office.step()
    office.clock.advance(GIVE_UP_ENDPOINT_S - 10)
    office.courier.answer = lambda target, batch: None
    office.step()
    assert office.endpoint_now("a").failing_since is None
    office.courier.answer = failing(None)
    office.announce("digits-1", EventKind.COMPLETED)
    office.step()
    assert office.endpoint_now("a").disabled_at is None
    office.clock.advance(GIVE_UP_ENDPOINT_S)
    office.step()
    off = office.endpoint_now("a")
    assert off.disabled_at is not None
    assert off.disabled_why.startswith("it accepted nothing for 5 days")


def test_retry_after_is_a_rest_for_the_whole_endpoint(office: Office) -> None:
    office.endpoint("a")
    office.courier.answer = failing(429, retry_after_s=600.0)
    office.announce("digits-1", EventKind.STARTED, EventKind.RECOVERED, EventKind.COMPLETED)
    office.steps(599, 20)
    assert office.courier.tried == 1
    office.courier.answer = lambda target, batch: None
    office.clock.advance(60)
    office.steps(3)
    assert len(office.courier.events("https://a/x")) == 3


def test_a_chat_gets_many_announcements_in_few_messages(office: Office) -> None:
    office.endpoint("slack", form=Form.SLACK, secrets=(), kinds=("preempted", "needs_person"))
    for number in range(40):
        run_id = f"run-{number}"
        run = insert(office.store, a_run(run_id))[0]
        ended = Event(EventKind.ATTEMPT_ENDED, "gone", data={"cause": "preempted"})
        office.store.add_events(run.key, [ended], office.clock.now())
        while office.store.deliveries.fan_out(office.clock.now(), 500):
            pass
        office.steps(1.5, 0.5)
    office.steps(120)
    assert len(office.courier.events("https://slack/x")) == 40
    assert len(office.courier.sent["https://slack/x"]) <= 3
    pages = office.store.deliveries.page("slack", None, 99)
    assert all(one.delivered_at is not None for one in pages), "all in one message are settled with it"


def test_without_the_lease_nothing_is_sent(office: Office) -> None:
    office.endpoint("a")
    office.announce("digits-1", EventKind.STARTED)
    office.delivering.leading = lambda: None
    office.step()
    assert office.courier.tried == 0


def test_of_two_replicas_one_delivers(office: Office) -> None:
    office.endpoint("a")
    run = insert(office.store, a_run("digits-1"))[0]
    office.store.add_events(run.key, [Event(EventKind.RECOVERED, "again")] * 30, office.clock.now())
    pair = []
    for name in ("one", "two"):
        leader = Leader(office.store, LEASE, name, office.clock, False, lambda: None)
        leader.renew()
        delivering = Delivering(office.store, office.courier, office.clock, leader.lease, threads=AtOnce())
        notifier = FakeNotifier()
        pair.append((Announcer(office.store, {"log": notifier}, office.clock, leader, delivering, True), notifier))
    for _ in range(10):
        for announcer, _ in pair:
            announcer.empty()
            announcer.delivering.wake()
            announcer.delivering.step(office.clock.now())
            announcer.delivering.step(office.clock.now())
    assert [len(notifier.sent) for _, notifier in pair] == [30, 0]
    assert len(office.courier.events("https://a/x")) == 30


def test_what_was_committed_goes_out_without_waiting_for_the_next_look(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "POLL_S", 600.0)
    office.endpoint("a")
    run = insert(office.store, a_run("digits-1"))[0]
    woken: list[str] = []
    office.store.deliveries.on_announced(lambda: woken.append("announced"))
    office.store.add_events(run.key, [Event(EventKind.LAUNCHING, "not announced")], office.clock.now())
    assert woken == []
    office.store.written_elsewhere()  # another replica wrote, which may have announced
    assert woken == ["announced"]
    leader = Leader(office.store, LEASE, "one", office.clock, True, lambda: None)
    leader.renew()
    announcer = Announcer(office.store, {}, office.clock, leader, office.delivering, True)
    announcer.start()
    office.store.add_events(run.key, [Event(EventKind.STARTED, "trains")] * 2, office.clock.now())
    office.store.add_events(None, [Event(EventKind.BREAKER_OPENED, "opened")], office.clock.now())
    try:
        wait_for(lambda: len(office.courier.sent.get("https://a/x", ())) == 3, 20, "all three announcements")
    finally:
        announcer.stop()


def test_the_address_of_the_settings_is_in_no_row(office: Office) -> None:
    own = Target("https://hooks.example.org/hunter2", Form.STANDARD, ("s3cr3t",), trusted=True)
    shown = Endpoint(
        SETTINGS_ID, "local", True, Form.STANDARD, "https://hooks.example.org/***", (), (), "", 1.0, "settings"
    )
    office.store.endpoints.put_settings(shown, office.clock.now())
    office.delivering.own = own
    office.announce("digits-1", EventKind.STARTED)
    office.step()
    assert office.courier.targets == [own]
    assert len(office.courier.events(own.url)) == 1
    # No longer set: it is switched off, and what comes later is not for it.
    office.store.endpoints.put_settings(None, office.clock.now())
    office.announce("digits-1", EventKind.COMPLETED)
    office.step()
    assert office.courier.tried == 1
    office.store.endpoints.put_settings(shown, office.clock.now())
    assert office.endpoint_now(SETTINGS_ID).disabled_at is None
