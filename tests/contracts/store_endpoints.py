"""The store's contract for endpoints and deliveries: which endpoint gets an announcement, and its delivery."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

from supervisor.domain.events import Event, EventKind
from supervisor.domain.status import Status
from supervisor.ports.notifier import BY_PERSON, SETTINGS_ID, DeliveryResult, Endpoint, EndpointHealth, Form, Secret
from supervisor.ports.store import Store
from tests.contracts.store_values import NOW, STARTED, a_run, changed, insert

ADDED = Event(EventKind.WEBHOOK_ADDED, "added", "me", {"webhook_id": "x"})
MOST = 3
DAY_S = 86_400.0


def an_endpoint(name: str = "wh-1", **fields: Any) -> Endpoint:
    plain = Endpoint(
        name, "local", False, Form.STANDARD, "https://h/x", (Secret("s"), Secret("o", NOW + 9)), (), "", NOW, "me"
    )
    return replace(plain, **fields)


def add(store: Store, *endpoints: Endpoint) -> None:
    for one in endpoints:
        assert store.endpoints.add(one, ADDED, 99, NOW)


def heard(store: Store, *names: str) -> list[list[str]]:
    return [[one.kind for one in reversed(store.deliveries.page(name, None, 99))] for name in names]


class EndpointsSuite:
    """`told` is a store whose announcements go to the channels `log` and `webhooks`."""

    def test_an_endpoint_is_kept_as_it_is(self, told: Store) -> None:
        made = an_endpoint(kinds=("preempted", "failed"), form=Form.SLACK, note="ü <x>", everything=True)
        add(told, made)
        assert told.endpoints.find("wh-1") == made
        assert told.endpoints.of_owner("local") == told.endpoints.of_owner(None) == [made]
        assert told.endpoints.of_owner("ann") == []
        assert made.secrets_at(NOW) == ("s", "o")
        assert made.secrets_at(NOW + 10) == ("s",)
        assert [one.event for one in told.events(None, 0, 9)] == [ADDED]

    def test_what_a_wrong_clock_has_put_off_is_due(self, told: Store) -> None:
        """Three messages of one endpoint: announced and tried by a clock an hour ahead, and tried by ours."""
        add(told, an_endpoint(everything=True))
        run, ahead = insert(told, a_run())[0], NOW + 3600
        told.add_events(run.key, [STARTED], ahead)
        told.add_events(run.key, [STARTED, STARTED], NOW)
        told.deliveries.fan_out(NOW + 1, 9)
        assert told.deliveries.fix_times(NOW + 1) == 2, "the outbox rows from ahead, of log and webhooks"
        told.deliveries.fan_out(NOW + 1, 9)
        ((_, (first, second, third)),) = told.deliveries.due(NOW + 1, 9)
        told.deliveries.settle([DeliveryResult(first.id, 0, False, ahead + 5, 500, "")], [], ahead)
        told.deliveries.settle([DeliveryResult(second.id, 0, False, NOW + 300, 500, "")], [], NOW + 1)
        told.deliveries.settle(
            [DeliveryResult(third.id, 0, False, NOW + 3 * DAY_S, 500, "")],
            [EndpointHealth("wh-1", NOW, NOW + DAY_S)],
            NOW + 1,
        )
        assert told.deliveries.due(NOW + 2, 9) == []
        assert told.deliveries.fix_times(NOW + 2) == 3, (
            "a try from ahead, a pause longer than any, a rest longer than any"
        )
        assert told.deliveries.fix_times(NOW + 2) == 0
        ((_, due),) = told.deliveries.due(NOW + 2, 9)
        assert {one.id for one in due} == {first.id, third.id}

    def test_an_owner_has_only_so_many(self, told: Store) -> None:
        told.endpoints.put_settings(an_endpoint(SETTINGS_ID), NOW)
        assert [told.endpoints.add(an_endpoint(f"wh-{number}"), ADDED, MOST, NOW) for number in range(MOST + 1)] == [
            True
        ] * MOST + [False]
        assert told.endpoints.add(an_endpoint("wh-ann", owner="ann"), ADDED, MOST, NOW)
        assert len(told.events(None, 0, 99)) == MOST + 1, "what was refused has no event"

    def test_of_many_that_are_added_at_once_as_many_stay_as_may(self, told: Store) -> None:
        together = Barrier(8)

        def add_one(number: int) -> bool:
            told.endpoints.of_owner("nobody")  # its thread has a connection then
            together.wait(30)
            return told.endpoints.add(an_endpoint(f"wh-{number}"), ADDED, MOST, NOW)

        with ThreadPoolExecutor(8) as pool:
            added = list(pool.map(add_one, range(16)))
        assert sum(added) == len(told.endpoints.of_owner("local")) == MOST

    def test_of_two_changes_one_counts(self, told: Store) -> None:
        before = an_endpoint()
        add(told, before)
        assert told.endpoints.change(before, replace(before, note="mine"), ADDED, NOW)
        assert not told.endpoints.change(before, replace(before, note="yours"), ADDED, NOW)
        found = told.endpoints.find("wh-1")
        assert found is not None
        assert found.note == "mine"
        assert len(told.events(None, 0, 99)) == 2
        # What tries have taught since is not a change by a person.
        told.deliveries.settle([], [EndpointHealth("wh-1", NOW, NOW + 60)], NOW)
        assert told.endpoints.change(found, replace(found, note="again"), ADDED, NOW)
        found = told.endpoints.find("wh-1")
        assert found is not None
        assert (found.failing_since, found.next_message_at) == (NOW, NOW + 60)

    def test_switched_on_again_it_begins_without_failures(self, told: Store) -> None:
        add(told, an_endpoint())
        told.deliveries.settle([], [EndpointHealth("wh-1", NOW, NOW + 60)], NOW)
        assert told.endpoints.disable("wh-1", "gone", ADDED, NOW)
        assert not told.endpoints.disable("wh-1", "gone", ADDED, NOW)
        off = told.endpoints.find("wh-1")
        assert off is not None
        assert (off.disabled_at, off.disabled_why) == (NOW, "gone")
        assert told.endpoints.change(off, replace(off, disabled_at=None, disabled_why=""), ADDED, NOW)
        on = told.endpoints.find("wh-1")
        assert on is not None
        assert (on.disabled_at, on.failing_since, on.next_message_at) == (None, None, 0.0)

    def test_each_hears_what_it_wants_and_of_whom_it_may(self, told: Store) -> None:
        add(
            told,
            an_endpoint("own"),
            an_endpoint("anns", owner="ann"),
            an_endpoint("all", owner="ann", everything=True),
            an_endpoint("few", kinds=("completed",)),
            an_endpoint("chat", form=Form.SLACK),
            an_endpoint("off"),
        )
        told.endpoints.disable("off", "", ADDED, NOW)
        mine, hers = insert(told, a_run("mine-1"), a_run("hers-1", owner="ann"))
        done = Event(EventKind.COMPLETED, "done")
        told.add_events(mine.key, [STARTED, done], NOW)
        told.add_events(hers.key, [STARTED], NOW)
        told.add_events(None, [Event(EventKind.BREAKER_OPENED, "open")], NOW)
        told.add_events(None, [Event(EventKind.WEBHOOK_DISABLED, "off", data={"owner": "local"})], NOW)
        assert told.deliveries.fan_out(NOW, 99) == 5
        assert told.deliveries.fan_out(NOW, 99) == 0
        assert heard(told, "own", "anns", "few", "chat", "off") == [
            ["started", "completed", "webhook_disabled"],
            ["started"],
            ["completed"],
            ["completed", "webhook_disabled"],
            [],
        ]
        assert heard(told, "all") == [["started", "completed", "started", "breaker_open", "webhook_disabled"]]

    def test_rows_for_endpoints_are_not_due_to_be_sent_from_here(self, told: Store) -> None:
        (run,) = insert(told, a_run())
        told.add_events(run.key, [STARTED], NOW)
        assert {item.channel for item in told.due_outbox(NOW + 1, 9)} == {"log"}
        assert told.deliveries.fan_out(NOW - 1, 9) == 0, "not yet"
        assert told.deliveries.fan_out(NOW, 9) == 1

    def test_what_is_due_comes_in_the_order_of_its_time_and_as_it_was_told(self, told: Store) -> None:
        add(told, an_endpoint())
        (run,) = insert(told, a_run())
        told.add_events(run.key, [STARTED, Event(EventKind.COMPLETED, "done")], NOW)
        told.deliveries.fan_out(NOW, 9)
        ((endpoint, (first, second)),) = told.deliveries.due(NOW, 9)
        assert endpoint.id == "wh-1"
        assert (first.kind, first.run_id, first.text, first.data) == (
            "started", "digits-1", STARTED.text, STARTED.data,
        )  # fmt: skip
        assert (first.sequence, second.sequence, first.tries, first.status) == (2, 3, 0, None)
        told.deliveries.settle([DeliveryResult(first.id, 0, False, NOW + 60, 500, "no")], [], NOW)
        ((_, due),) = told.deliveries.due(NOW + 60, 9)
        assert [one.id for one in due] == [second.id, first.id]
        assert (due[1].tries, due[1].status, due[1].detail, due[1].last_at) == (1, 500, "no", NOW)
        assert len(told.deliveries.due(NOW + 60, 1)[0][1]) == 1
        told.deliveries.settle([], [EndpointHealth("wh-1", NOW, NOW + 99)], NOW)
        assert told.deliveries.due(NOW + 60, 9) == [], "it wants nothing before"

    def test_a_result_counts_for_the_try_that_it_is_of(self, told: Store) -> None:
        add(told, an_endpoint())
        (run,) = insert(told, a_run())
        told.add_events(run.key, [STARTED], NOW)
        told.deliveries.fan_out(NOW, 9)
        ((_, (one,)),) = told.deliveries.due(NOW, 9)
        told.deliveries.settle([DeliveryResult(one.id, 0, False, NOW + 60, None, "first")], [], NOW)
        told.deliveries.settle([DeliveryResult(one.id, 0, False, NOW + 1, None, "the same, late")], [], NOW)
        assert told.deliveries.page("wh-1", None, 9)[0].detail == "first"
        told.deliveries.settle([DeliveryResult(one.id, 0, True, None, 204, "")], [], NOW)
        told.deliveries.settle([DeliveryResult(one.id, 1, False, NOW + 1, 500, "later still")], [], NOW)
        (kept,) = told.deliveries.page("wh-1", None, 9)
        assert (kept.delivered_at, kept.next_at, kept.status) == (NOW, None, 204), "taken is taken"

    def test_a_page_may_be_of_one_state(self, told: Store) -> None:
        add(told, an_endpoint())
        (run,) = insert(told, a_run())
        told.add_events(run.key, [STARTED] * 4, NOW)
        told.deliveries.fan_out(NOW, 9)
        ((_, (first, second, third, fourth)),) = told.deliveries.due(NOW, 9)
        taken = [DeliveryResult(one.id, 0, True, None, 204, "") for one in (first, fourth)]
        told.deliveries.settle([*taken, DeliveryResult(second.id, 0, False, None, 500, "no")], [], NOW)
        for state, ids in (
            ("delivered", [fourth.id, first.id]),
            ("pending", [third.id]),
            ("given_up", [second.id]),
            ("", [fourth.id, third.id, second.id, first.id]),
        ):
            assert [one.id for one in told.deliveries.page("wh-1", None, 9, state=state)] == ids
        assert [one.id for one in told.deliveries.page("wh-1", fourth.event_id, 9, state="delivered")] == [first.id]
        assert [one.id for one in told.deliveries.page("wh-1", None, 9, state="given_up")] == [second.id]

    def test_what_is_over_can_be_made_due_again(self, told: Store) -> None:
        add(told, an_endpoint())
        (run,) = insert(told, a_run())
        told.add_events(run.key, [STARTED] * 3, NOW)
        told.deliveries.fan_out(NOW, 9)
        ((_, (first, second, third)),) = told.deliveries.due(NOW, 9)
        results = [
            DeliveryResult(first.id, 0, True, None, 204, ""),
            DeliveryResult(second.id, 0, False, None, 500, "no"),
        ]
        told.deliveries.settle(results, [], NOW)
        assert [one.id for one in told.deliveries.page("wh-1", None, 9, state="given_up")] == [second.id]
        assert told.deliveries.replay("wh-1", None, NOW + 1, ADDED, NOW) == 0, "it failed before"
        assert told.deliveries.replay("wh-1", None, NOW, ADDED, NOW + 5) == 1
        assert told.deliveries.replay("wh-1", first.id, 0.0, ADDED, NOW + 5) == 1
        assert told.deliveries.replay("wh-1", third.id, 0.0, ADDED, NOW + 5) == 0, "it is under way"
        assert told.deliveries.replay("wh-2", first.id, 0.0, ADDED, NOW + 5) == 0
        ((_, due),) = told.deliveries.due(NOW + 5, 9)
        assert [one.tries for one in due] == [0, 0, 0]
        events = [stored for stored in told.events(None, 0, 99) if stored.event == ADDED]
        assert len(events) == 3, "an event where something was made due, and only there"

    def test_pages_are_newest_first(self, told: Store) -> None:
        add(told, an_endpoint())
        (run,) = insert(told, a_run())
        told.add_events(run.key, [STARTED] * 5, NOW)
        told.deliveries.fan_out(NOW, 9)
        first = told.deliveries.page("wh-1", None, 3)
        second = told.deliveries.page("wh-1", first[-1].event_id, 3)
        assert [one.sequence for one in first + second] == [6, 5, 4, 3, 2]

    def test_with_an_endpoint_its_deliveries_go(self, told: Store) -> None:
        add(told, an_endpoint())
        (run,) = insert(told, a_run())
        told.add_events(run.key, [STARTED], NOW)
        told.deliveries.fan_out(NOW, 9)
        assert told.endpoints.remove("wh-1", ADDED, NOW)
        assert not told.endpoints.remove("wh-1", ADDED, NOW)
        assert told.deliveries.page("wh-1", None, 9) == []
        assert told.deliveries.due(NOW, 9) == []

    def test_what_waits_for_nobody_is_not_overdue(self, told: Store) -> None:
        run = insert(told, a_run("digits-1"))[0]
        add(told, an_endpoint("on"), an_endpoint("paused"), an_endpoint("off"), an_endpoint("failed"))
        told.add_events(run.key, [STARTED], NOW)
        told.deliveries.fan_out(NOW, 99)
        assert (told.backlog().deliveries_pending, told.backlog().deliveries_due_at) == (4, NOW)
        ((_, (one,)),) = [found for found in told.deliveries.due(NOW, 9) if found[0].id == "on"]
        told.deliveries.settle(
            [DeliveryResult(one.id, 0, True, None, 204, "")], [EndpointHealth("paused", NOW, NOW + 60)], NOW
        )
        off = told.endpoints.find("off")
        assert off is not None
        assert told.endpoints.change(off, replace(off, disabled_at=NOW, disabled_why=BY_PERSON), ADDED, NOW)
        assert told.endpoints.disable("failed", "HTTP 410", ADDED, NOW)
        assert [found[0].id for found in told.deliveries.due(NOW, 9)] == []
        left = told.backlog()
        assert (left.deliveries_pending, left.deliveries_due_at) == (1, NOW + 60), "not before it may be sent"
        assert left.endpoints_disabled == 1, "a person wanted the other one to be off"
        assert [found[0].id for found in told.deliveries.due(NOW + 60, 9)] == ["paused"]

    def test_what_was_sent_is_forgotten_with_the_event(self, told: Store) -> None:
        live, over = insert(told, a_run("live"), a_run("over"))
        add(told, an_endpoint())
        changed(told, over, replace(over, status=Status.STOPPED, status_since=NOW, settled=True), STARTED)
        told.add_events(live.key, [STARTED], NOW)
        told.deliveries.fan_out(NOW, 99)
        told.prune(NOW + 89 * DAY_S, 1000)
        assert heard(told, "wh-1") == [["started", "started"]]
        told.prune(NOW + 91 * DAY_S, 1000)
        assert [one.run_id for one in told.deliveries.page("wh-1", None, 9)] == ["live"]

    def test_the_settings_endpoint_follows_the_settings(self, told: Store) -> None:
        told.endpoints.put_settings(None, NOW)
        assert told.endpoints.of_owner(None) == []
        told.endpoints.put_settings(an_endpoint(SETTINGS_ID, url="https://a/***"), NOW)
        told.endpoints.disable(SETTINGS_ID, "gone", ADDED, NOW)
        told.endpoints.put_settings(an_endpoint(SETTINGS_ID, url="https://b/***"), NOW)
        found = told.endpoints.find(SETTINGS_ID)
        assert found is not None
        assert (found.url, found.disabled_at, found.disabled_why) == ("https://b/***", None, "")
        told.endpoints.put_settings(None, NOW + 1)
        found = told.endpoints.find(SETTINGS_ID)
        assert found is not None
        assert found.disabled_at == NOW + 1
