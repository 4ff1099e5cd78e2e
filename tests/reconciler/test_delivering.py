"""Deliveries: none is lost, whatever a receiver does, and one process of all delivers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from supervisor.domain.events import Event, EventKind
from supervisor.ports.notifier import SETTINGS_ID, DeliveryFailed, Endpoint, Form, Notification, Target
from supervisor.reconciler.delivering import announcer as announcing
from supervisor.reconciler.delivering.announcer import LEASE, Announcer
from supervisor.reconciler.delivering.delivering import Delivering
from supervisor.reconciler.delivering.timing import (
    BACKOFFS_S,
    GIVE_UP_ENDPOINT_S,
    MOST_TRIES,
    failed_too_long,
    next_try_at,
)
from supervisor.reconciler.leader import Leader
from tests.contracts.store_values import NOW, a_run, insert
from tests.fakes.courier import failing
from tests.fakes.notifier import FakeNotifier
from tests.reconciler.outbox import ADDED, Outbox
from tests.scenarios.fault_points import AtOnce
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


def test_an_accepted_message_is_sent_once(outbox: Outbox) -> None:
    outbox.endpoint("a")
    outbox.announce("digits-1", EventKind.STARTED, EventKind.COMPLETED)
    outbox.steps(3)
    (item, two) = [batch[0] for batch in outbox.courier.sent["https://a/x"]]
    assert (item.kind, item.sequence, item.run_id) == ("started", 2, "digits-1")
    assert (two.kind, two.sequence) == ("completed", 3)
    assert outbox.courier.tried == 2
    assert {item.status for item in outbox.store.deliveries.page("a", None, 9)} == {204}


def test_after_the_last_try_it_is_given_up_and_can_be_sent_again(outbox: Outbox) -> None:
    outbox.endpoint("a")
    outbox.courier.answer = failing(500)
    outbox.announce("digits-1", EventKind.STARTED)
    for _ in range(MOST_TRIES + 2):
        outbox.step()
        (kept,) = outbox.store.deliveries.page("a", None, 9)
        outbox.clock.advance(max(0.0, (kept.next_at or 0.0) - outbox.clock.now()))
    (kept,) = outbox.store.deliveries.page("a", None, 9, state="given_up")
    assert (kept.tries, kept.next_at, kept.status) == (MOST_TRIES, None, 500)
    assert outbox.courier.tried == MOST_TRIES
    outbox.store.endpoints.change(
        outbox.endpoint_now("a"), replace(outbox.endpoint_now("a"), disabled_at=None), ADDED, outbox.clock.now()
    )
    outbox.courier.answer = lambda target, batch: None
    assert outbox.store.deliveries.replay("a", None, 0.0, ADDED, outbox.clock.now()) == 1
    outbox.step()
    assert outbox.courier.events("https://a/x") == [kept.event_id]


def test_gone_disables_the_endpoint_and_the_others_get_a_message(outbox: Outbox) -> None:
    outbox.endpoint("a", note="the pager")
    outbox.endpoint("b")

    def respond(target: Target, batch: Sequence[Notification]) -> None:
        if "a" in target.url.split("/")[2]:
            raise DeliveryFailed("HTTP 410 from a", permanent=True, status=410, gone=True)

    outbox.courier.answer = respond
    outbox.announce("digits-1", EventKind.STARTED)
    outbox.step()
    gone = outbox.endpoint_now("a")
    assert gone.disabled_at is not None
    assert "410" in gone.disabled_why
    while outbox.store.deliveries.fan_out(outbox.clock.now(), 500):
        pass
    outbox.step()
    messages = [batch[0] for batch in outbox.courier.sent["https://b/x"]]
    assert [item.kind for item in messages] == ["started", "webhook_disabled"]
    assert "the pager" in messages[1].text
    tried = outbox.courier.tried
    outbox.announce("digits-1", EventKind.COMPLETED)
    outbox.steps(1000, 300)
    assert outbox.courier.tried == tried + 1, "nothing more was sent to it"
    # Switched on again it gets what it had not taken.
    outbox.courier.answer = lambda target, batch: None
    outbox.store.endpoints.change(gone, replace(gone, disabled_at=None, disabled_why=""), ADDED, outbox.clock.now())
    outbox.clock.advance(1000)
    outbox.step()
    assert len(outbox.courier.events("https://a/x")) == 1


def test_five_days_without_success_disable_an_endpoint_and_one_success_restarts_the_count(outbox: Outbox) -> None:
    outbox.endpoint("a")
    outbox.courier.answer = failing(500)
    outbox.announce("digits-1", EventKind.STARTED)
    outbox.step()
    outbox.clock.advance(GIVE_UP_ENDPOINT_S - 10)
    outbox.courier.answer = lambda target, batch: None
    outbox.step()
    assert outbox.endpoint_now("a").failing_since is None
    outbox.courier.answer = failing(None)
    outbox.announce("digits-1", EventKind.COMPLETED)
    outbox.step()
    assert outbox.endpoint_now("a").disabled_at is None
    outbox.clock.advance(GIVE_UP_ENDPOINT_S)
    outbox.step()
    off = outbox.endpoint_now("a")
    assert off.disabled_at is not None
    assert off.disabled_why.startswith("it accepted nothing for 5 days")


def test_retry_after_is_a_rest_for_the_whole_endpoint(outbox: Outbox) -> None:
    outbox.endpoint("a")
    outbox.courier.answer = failing(429, retry_after_s=600.0)
    outbox.announce("digits-1", EventKind.STARTED, EventKind.RECOVERED, EventKind.COMPLETED)
    outbox.steps(599, 20)
    assert outbox.courier.tried == 1
    outbox.courier.answer = lambda target, batch: None
    outbox.clock.advance(60)
    outbox.steps(3)
    assert len(outbox.courier.events("https://a/x")) == 3


def test_a_chat_gets_many_announcements_in_few_messages(outbox: Outbox) -> None:
    outbox.endpoint("slack", form=Form.SLACK, secrets=(), kinds=("preempted", "needs_person"))
    for number in range(40):
        run_id = f"run-{number}"
        run = insert(outbox.store, a_run(run_id))[0]
        ended = Event(EventKind.ATTEMPT_ENDED, "gone", data={"cause": "preempted"})
        outbox.store.add_events(run.key, [ended], outbox.clock.now())
        while outbox.store.deliveries.fan_out(outbox.clock.now(), 500):
            pass
        outbox.steps(1.5, 0.5)
    outbox.steps(120)
    assert len(outbox.courier.events("https://slack/x")) == 40
    assert len(outbox.courier.sent["https://slack/x"]) <= 3
    pages = outbox.store.deliveries.page("slack", None, 99)
    assert all(item.delivered_at is not None for item in pages), "all in one message are settled with it"


def test_without_the_lease_nothing_is_sent(outbox: Outbox) -> None:
    outbox.endpoint("a")
    outbox.announce("digits-1", EventKind.STARTED)
    outbox.delivering.leading = lambda: None
    outbox.step()
    assert outbox.courier.tried == 0


def test_of_two_replicas_one_delivers(outbox: Outbox) -> None:
    outbox.endpoint("a")
    run = insert(outbox.store, a_run("digits-1"))[0]
    outbox.store.add_events(run.key, [Event(EventKind.RECOVERED, "again")] * 30, outbox.clock.now())
    pair = []
    for name in ("one", "two"):
        leader = Leader(outbox.store, LEASE, name, outbox.clock, False, lambda: None)
        leader.renew()
        delivering = Delivering(outbox.store, outbox.courier, outbox.clock, leader.lease, threads=AtOnce())
        notifier = FakeNotifier()
        pair.append((Announcer(outbox.store, {"log": notifier}, outbox.clock, leader, delivering, True), notifier))
    for _ in range(10):
        for announcer, _ in pair:
            announcer.empty()
            announcer.delivering.wake()
            announcer.delivering.step(outbox.clock.now())
            announcer.delivering.step(outbox.clock.now())
    assert [len(notifier.sent) for _, notifier in pair] == [30, 0]
    assert len(outbox.courier.events("https://a/x")) == 30


def test_a_committed_announcement_is_sent_without_waiting_for_the_next_pass(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "POLL_S", 600.0)
    outbox.endpoint("a")
    run = insert(outbox.store, a_run("digits-1"))[0]
    woken: list[str] = []
    outbox.store.deliveries.on_announced(lambda: woken.append("announced"))
    outbox.store.add_events(run.key, [Event(EventKind.LAUNCHING, "not announced")], outbox.clock.now())
    assert woken == []
    outbox.store.written_elsewhere()  # another replica wrote, which may have announced
    assert woken == ["announced"]
    leader = Leader(outbox.store, LEASE, "one", outbox.clock, True, lambda: None)
    leader.renew()
    announcer = Announcer(outbox.store, {}, outbox.clock, leader, outbox.delivering, True)
    announcer.start()
    outbox.store.add_events(run.key, [Event(EventKind.STARTED, "trains")] * 2, outbox.clock.now())
    outbox.store.add_events(None, [Event(EventKind.BREAKER_OPENED, "opened")], outbox.clock.now())
    try:
        wait_for(lambda: len(outbox.courier.sent.get("https://a/x", ())) == 3, 20, "all three announcements")
    finally:
        announcer.stop()


def test_the_address_of_the_settings_is_in_no_row(outbox: Outbox) -> None:
    own = Target("https://hooks.example.org/hunter2", Form.STANDARD, ("s3cr3t",), trusted=True)
    shown = Endpoint(
        SETTINGS_ID, "local", True, Form.STANDARD, "https://hooks.example.org/***", (), (), "", 1.0, "settings"
    )
    outbox.store.endpoints.put_settings(shown, outbox.clock.now())
    outbox.delivering.own = own
    outbox.announce("digits-1", EventKind.STARTED)
    outbox.step()
    assert outbox.courier.targets == [own]
    assert len(outbox.courier.events(own.url)) == 1
    # No longer set: it is switched off, and what comes later is not for it.
    outbox.store.endpoints.put_settings(None, outbox.clock.now())
    outbox.announce("digits-1", EventKind.COMPLETED)
    outbox.step()
    assert outbox.courier.tried == 1
    outbox.store.endpoints.put_settings(shown, outbox.clock.now())
    assert outbox.endpoint_now(SETTINGS_ID).disabled_at is None
