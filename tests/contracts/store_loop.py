"""The store's contract for the loop: one query for active runs, guarded pages, leases, pulses, zones, outbox."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract.beat_telemetry import Cgroup, Disk, Gpus, Telemetry, encode
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.figures import MachineFigures
from supervisor.domain.machines import Call, OfferKey, ZoneRecord, offer_key
from supervisor.domain.status import Status
from supervisor.ports.store import Change, Sample, Store
from tests.contracts.store_values import (
    CELL,
    NOW,
    STARTED,
    a_pulse,
    a_run,
    a_try,
    an_attempt,
    changed,
    insert,
    lease_of,
    running,
)

COMPLETED = Event(EventKind.COMPLETED, "Completed.")


class LoopSuite:
    def test_active_gives_what_is_not_settled_in_this_cell(self, store: Store) -> None:
        one, two, _three, over, busy = insert(
            store, a_run("a-1"), a_run("a-2"), a_run("a-3", cell="elsewhere"), a_run("a-4"), a_run("a-5")
        )
        over = changed(store, over, replace(over, status=Status.COMPLETED, settled=True))
        ending = changed(store, busy, replace(running(busy), status=Status.FAILED))
        runs, keys = store.active(CELL, {})
        assert sorted(runs, key=lambda run: run.key) == [one, two, ending]
        assert keys == {one.key, two.key, ending.key}

    def test_active_reads_again_only_what_changed(self, store: Store) -> None:
        one, two = insert(store, a_run("a-1"), a_run("a-2"))
        known = {run.key: run.version for run in (one, two)}
        assert store.active(CELL, known) == ([], {one.key, two.key})
        moved = changed(store, two, running(two))
        assert store.active(CELL, known) == ([moved], {one.key, two.key})
        changed(store, one, replace(one, status=Status.STOPPED, settled=True))
        assert store.active(CELL, {**known, two.key: moved.version}) == ([], {two.key})

    def test_active_is_complete_for_many(self, store: Store) -> None:
        runs = insert(store, *(a_run(f"many-{n}") for n in range(1234)))
        found, keys = store.active(CELL, {})
        assert sorted(found, key=lambda run: run.key) == runs
        assert keys == {run.key for run in runs}

    def test_a_page_of_changes_hits_what_was_not_changed_meanwhile(self, store: Store) -> None:
        runs = insert(store, *(a_run(f"run-{n}") for n in range(250)))
        lease = lease_of(store)
        stolen = changed(store, runs[7], replace(runs[7], hold="somebody was faster"))
        changes = [Change(run, running(run), (STARTED, COMPLETED)) for run in runs]
        hit = store.apply_all(changes, NOW + 1, lease)
        assert set(hit) == {run.key for run in runs} - {stolen.key}
        assert hit[runs[8].key] == replace(running(runs[8]), version=runs[8].version + 1)
        assert store.find("run-8") == hit[runs[8].key]
        assert store.find("run-7") == stolen
        assert [kept.event for kept in store.events("run-8", 0, 9)][1:] == [STARTED, COMPLETED]
        assert len(store.events("run-7", 0, 9)) == 1
        assert store.attempts(stolen.key) == []
        assert store.tries(stolen.key) == []
        told = store.due_outbox(NOW + 1, 1000)
        assert len(told) == 2 * 249
        assert stolen.key not in {item.stored.key for item in told}

    def test_twice_the_same_page_is_once(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        lease = lease_of(store)
        change = Change(run, running(run), (STARTED,))
        assert len(store.apply_all([change], NOW, lease)) == 1
        assert store.apply_all([change], NOW, lease) == {}
        assert len(store.events("digits-1", 0, 9)) == 2

    def test_an_empty_page_is_nothing(self, store: Store) -> None:
        assert store.apply_all([], NOW, lease_of(store)) == {}
        store.write_pulses([], lease_of(store))

    def test_a_lost_lease_hits_nothing(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        begun = changed(store, run, running(run))
        old = lease_of(store, "old")
        new = store.take_lease(CELL, "new", 60.0, 0.0, alone=True)
        assert new is not None
        assert store.apply_all([Change(begun, replace(begun, hold="x"), (STARTED,))], NOW, old) == {}
        store.write_pulses([Sample(begun.key, NOW, 1, a_pulse(99))], old)
        assert not store.set_nonce_hash(begun.key, "1.1.1", "ff", old)
        assert store.find("digits-1") == begun
        assert store.samples(begun.key, 0, 9) == []
        assert store.nonce_hash("digits-1", "1.1.1") == ""
        assert store.apply_all([Change(begun, replace(begun, hold="x"))], NOW, new) != {}

    def test_a_dropped_lease_hits_nothing(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        lease = lease_of(store)
        store.drop_lease(lease)
        assert store.apply_all([Change(run, replace(run, hold="x"))], NOW, lease) == {}

    def test_one_lease_has_one_holder(self, store: Store) -> None:
        lease = store.take_lease(CELL, "me", 60.0, 100.0)
        assert lease is not None
        assert (lease.name, lease.owner, lease.deadline) == (CELL, "me", 160.0)
        assert store.take_lease(CELL, "you", 60.0, 100.0) is None
        again = store.take_lease(CELL, "me", 60.0, 130.0)
        assert again == replace(lease, deadline=190.0)
        other = store.take_lease("another cell", "you", 60.0, 0.0)
        assert other is not None

    def test_the_epoch_rises_with_each_change_of_hands(self, store: Store) -> None:
        first = store.take_lease(CELL, "one", -1.0, 0.0)  # expired as soon as it is taken
        assert first is not None
        second = store.take_lease(CELL, "two", 60.0, 0.0)
        assert second is not None
        assert second.epoch == first.epoch + 1
        third = store.take_lease(CELL, "three", 60.0, 0.0, alone=True)
        assert third is not None
        assert third.epoch == second.epoch + 1
        assert store.take_lease(CELL, "three", 60.0, 0.0, alone=True) == third
        store.drop_lease(second)  # not its own any more: nothing happens
        assert store.take_lease(CELL, "two", 60.0, 0.0) is None
        store.drop_lease(third)
        fourth = store.take_lease(CELL, "two", 60.0, 0.0)
        assert fourth is not None
        assert fourth.epoch == third.epoch + 1

    def test_a_lease_longer_than_any_was_written_by_a_wrong_clock(self, store: Store) -> None:
        wrong = store.take_lease(CELL, "one", 3600.0, 0.0)
        assert wrong is not None
        second = store.take_lease(CELL, "two", 60.0, 0.0)
        assert second is not None
        assert second.epoch == wrong.epoch + 1

    def test_pulses_change_no_version(self, store: Store) -> None:
        runs = [changed(store, run, running(run)) for run in insert(store, *(a_run(f"r-{n}") for n in range(150)))]
        lease = lease_of(store)
        store.write_pulses([Sample(run.key, NOW + 60, 1, a_pulse(20)) for run in runs], lease)
        store.write_pulses([Sample(run.key, NOW + 120, 1, a_pulse(30)) for run in runs], lease)
        assert store.find("r-149") == replace(runs[149], pulse=a_pulse(30))
        assert store.active(CELL, {run.key: run.version for run in runs})[0] == []
        series = store.samples(runs[3].key, 0.0, 9)
        assert [(round(point.at - NOW), point.attempt, point.pulse.step) for point in series] == [
            (60, 1, 20),
            (120, 1, 30),
        ]
        assert series[1].pulse.metrics == a_pulse().metrics
        assert series[1].pulse.phase == "training"
        assert [point.pulse.step for point in store.samples(runs[3].key, NOW + 90, 9)] == [30]
        assert [point.pulse.step for point in store.samples(runs[3].key, 0.0, 1)] == [20]

    def test_a_point_keeps_the_machine_in_five_numbers(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        told = Telemetry(
            gpus=Gpus(util_pct=(93.0, 50.0), memory_used_mib=(10.0,), memory_total_mib=(40.0,)),
            cgroup=Cgroup(memory_bytes=3.0 * 2**30),
            checkpoints_disk=Disk(free_bytes=81.2, total_bytes=100.0),
        )
        pulses = (a_pulse(1), a_pulse(2, telemetry=encode(told)), a_pulse(3, telemetry=encode(Telemetry(uptime_s=1.0))))
        samples = [Sample(run.key, NOW + 60 * n, 1, pulse) for n, pulse in enumerate(pulses)]
        store.write_pulses(samples, lease_of(store))
        found = store.samples(run.key, 0.0, 9)
        assert [point.figures for point in found] == [
            MachineFigures(),
            MachineFigures(72, 25, 3 * 2**30, 81, None),
            MachineFigures(),
        ]
        assert [point.pulse.step for point in found] == [1, 2, 3]
        newest = store.find("digits-1")
        assert newest is not None
        assert newest.pulse == pulses[2]

    def test_the_newest_pulse_of_a_batch_wins(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        samples = [Sample(run.key, NOW + 120, 1, a_pulse(30)), Sample(run.key, NOW + 60, 1, a_pulse(20))]
        store.write_pulses(samples, lease_of(store))
        found = store.find("digits-1")
        assert found is not None
        assert found.pulse == a_pulse(30)
        assert len(store.samples(run.key, 0.0, 9)) == 2

    def test_a_carried_point_is_no_pulse_of_its_run(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        samples = [
            Sample(run.key, NOW + 60, 1, a_pulse(30, recent="carried by its beat")),
            Sample(run.key, NOW + 90, 1, a_pulse(20), carried=True),
        ]
        store.write_pulses(samples, lease_of(store))
        store.write_pulses(
            [Sample(run.key, NOW + 90 - n, 1, a_pulse(7), carried=True) for n in range(3)], lease_of(store)
        )
        found = store.find("digits-1")
        assert found is not None
        assert found.pulse == a_pulse(30)  # without what its beat carried
        told = [(round(point.at - NOW), point.pulse.step) for point in store.samples(run.key, 0.0, 9)]
        assert told == [(60, 30), (88, 7), (89, 7), (90, 20)]

    def test_a_nonce_belongs_to_the_open_try(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        lease = lease_of(store)
        tried = changed(store, run, replace(run, try_=a_try(1, 1)))
        assert store.set_nonce_hash(run.key, "1.1.1", "aa", lease)
        assert not store.set_nonce_hash(run.key, "1.1.2", "bb", lease)
        assert not store.set_nonce_hash(run.key + 1, "1.1.1", "bb", lease)
        assert store.nonce_hash("digits-1", "1.1.1") == "aa"
        assert store.nonce_hash("digits-1", "1.1.2") is None
        assert store.nonce_hash("nobody", "1.1.1") is None
        assert store.active(CELL, {run.key: tried.version})[0] == []

        # A caller that read the run before it had its nonce does not remove it.
        ended = changed(store, tried, replace(tried, try_=a_try(1, 1, ended_at=NOW)))
        assert not store.set_nonce_hash(run.key, "1.1.1", "cc", lease)
        changed(store, ended, replace(ended, try_=a_try(1, 2)))
        assert not store.set_nonce_hash(run.key, "1.1.1", "cc", lease)
        assert store.set_nonce_hash(run.key, "1.1.2", "dd", lease)
        assert [try_.nonce_hash for try_ in store.tries(run.key)] == ["aa", "dd"]
        found = store.find("digits-1")
        assert found is not None
        assert found.try_ == a_try(1, 2, nonce_hash="dd")

    def test_a_hash_that_is_none_is_refused(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        changed(store, run, replace(run, try_=a_try()))
        with pytest.raises(ValueError, match="nonce"):
            store.set_nonce_hash(run.key, "1.1.1", 'a"b', lease_of(store))
        with pytest.raises(ValueError, match="nonce"):
            insert(store, a_run("other", try_=a_try(nonce_hash="a\nb")))
        assert store.find("digits-1") is not None

    def test_zones_are_learned_and_forgotten_per_cell(self, store: Store) -> None:
        key: OfferKey = ("local", "zone-b", "small", True)
        other: OfferKey = ("local", "zone-b", "small", False)
        record = ZoneRecord(2, NOW + 180.5, "no_capacity", "none left in zone-b", (NOW - 60.25, NOW), NOW - 7.5)
        store.put_zone(CELL, key, record)
        store.put_zone(CELL, other, replace(record, failures=1))
        store.put_zone(CELL, key, replace(record, failures=3))
        assert store.zones(CELL) == {key: replace(record, failures=3), other: replace(record, failures=1)}
        assert store.zones("elsewhere") == {}
        store.put_zone(CELL, key, None)
        assert list(store.zones(CELL)) == [other]

    def test_past_calls_are_machines_and_refusals_of_the_newest_runs(self, store: Store) -> None:
        one, two, other = insert(store, a_run("a-1"), a_run("a-2"), a_run("a-3", cell="elsewhere"))
        lost = replace(an_attempt(), ended_at=NOW + 50.0, cause=Cause.PREEMPTED)
        changed(store, one, replace(running(one), attempt=lost))
        refused = a_try(ended_at=NOW + 5.0, outcome=Cause.NO_CAPACITY)
        changed(store, two, replace(two, try_=refused))
        changed(store, other, replace(running(other), attempt=lost))
        machine = Call(offer_key(lost.placement), lost.started_at, True, NOW + 50.0, lost=True)
        refusal = Call(offer_key(refused.placement), NOW + 5.0, False)
        assert store.past_calls(CELL, 10) == [machine, refusal]
        assert store.past_calls("nowhere", 10) == []

    def test_the_outbox_holds_what_is_announced_until_it_is_settled(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        changed(store, run, running(run), STARTED, Event(EventKind.OBTAINED, "not announced"), COMPLETED)
        store.add_events(None, [Event(EventKind.BREAKER_OPENED, "beats: opened")], NOW + 1)
        assert store.due_outbox(NOW - 1, 9) == []
        first, second, own = store.due_outbox(NOW + 1, 9)
        assert (first.stored.event, first.sequence, first.tries, first.channel) == (STARTED, 2, 0, "log")
        assert (first.stored.run_id, first.stored.key, first.stored.at) == ("digits-1", run.key, NOW)
        assert (second.stored.event, second.sequence) == (COMPLETED, 4)
        assert (own.stored.run_id, own.stored.key) == ("", None)
        store.settle_outbox(first.id, True, None, "", NOW + 2)
        store.settle_outbox(second.id, False, NOW + 60, "it answered 503", NOW + 2)
        store.settle_outbox(own.id, False, None, "no such channel", NOW + 2)
        assert store.due_outbox(NOW + 59, 9) == []
        (again,) = store.due_outbox(NOW + 60, 9)
        assert (again.id, again.tries) == (second.id, 1)
        assert len(store.due_outbox(NOW + 60, 0)) == 0

    def test_events_tell_which_attempt_they_are_about(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        begun = changed(store, run, running(run), STARTED)
        ended = replace(begun, attempt=an_attempt(ended_at=NOW), status=Status.RECOVERING)
        over = changed(store, begun, ended, Event(EventKind.ATTEMPT_ENDED, "ended"))
        placed = replace(over, try_=a_try(2, 1), status=Status.LAUNCHING)
        changed(store, over, placed, Event(EventKind.LAUNCHING, "next"))
        store.add_events(run.key, [Event(EventKind.LATE_BEAT, "late")], NOW)
        told = store.events("digits-1", 0, 9)
        assert [(kept.event.kind.value, kept.attempt) for kept in told] == [
            ("submitted", 0), ("started", 1), ("attempt_ended", 1), ("launching", 2), ("late_beat", 2),
        ]  # fmt: skip
