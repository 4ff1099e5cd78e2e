"""The store's contract for readers, and its retention: pages with counts, events in order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from supervisor.domain.events import Event, EventKind
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.store import Change, KeptResponse, RunFilter, Sample, Store
from tests.contracts.store_values import (
    CELL,
    NOW,
    PLACE,
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

DAY_S = 86_400.0


def ids(store: Store, **where: object) -> list[str]:
    return [run.run_id for run in store.page(RunFilter(**where), None, 100).runs]  # type: ignore[arg-type]


class ReadersSuite:
    def some(self, store: Store) -> dict[str, Run]:
        """Six runs: two running in different zones, one of another owner, one over."""
        made = {
            "a-train": insert(store, a_run("a-train"), labels={"team": "vision", "prio": "1"})[0],
            "b-train": insert(store, a_run("b-train", created_at=NOW + 1), labels={"team": "vision"})[0],
            "c-test": insert(store, a_run("c-test", created_at=NOW + 2), labels={"team": "audio"})[0],
            "d-other": insert(store, a_run("d-other", owner="her", created_at=NOW + 3))[0],
            "e-over": insert(store, a_run("e-over", created_at=NOW + 4), labels={"team": "vision"})[0],
        }
        made["a-train"] = changed(store, made["a-train"], running(made["a-train"]))
        there = replace(PLACE, zone="zone-c")
        elsewhere = running(
            made["b-train"], try_=a_try(placement=there), attempt=an_attempt(placement=there, price_usd_per_h=1.25)
        )
        made["b-train"] = changed(store, made["b-train"], elsewhere)
        over = running(made["e-over"], attempt=an_attempt(ended_at=NOW + 9, gone_at=NOW + 9))
        over = replace(over, status=Status.COMPLETED, settled=True)
        made["e-over"] = changed(store, made["e-over"], over)
        return made

    def test_a_page_is_newest_first_with_labels_counts_and_cost(self, store: Store) -> None:
        made = self.some(store)
        page = store.page(RunFilter(), None, 100)
        assert page.runs == tuple(reversed(made.values()))
        assert page.labels[made["a-train"].key] == {"team": "vision", "prio": "1"}
        assert page.labels.get(made["d-other"].key, {}) == {}
        assert page.counts == {"running": 2, "pending": 2, "completed": 1}
        assert page.usd_per_h == 1.75
        assert page.next_key is None

    def test_filters(self, store: Store) -> None:
        self.some(store)
        assert ids(store, statuses=("running",)) == ["b-train", "a-train"]
        assert ids(store, statuses=("completed", "pending")) == ["e-over", "d-other", "c-test"]
        assert ids(store, labels=(("team", "vision"),)) == ["e-over", "b-train", "a-train"]
        assert ids(store, labels=(("team", "vision"), ("prio", "1"))) == ["a-train"]
        assert ids(store, labels=(("team", "vision"),), statuses=("running",)) == ["b-train", "a-train"]
        assert ids(store, labels=(("prio", "1"), ("team", "audio"))) == []
        assert ids(store, zone="zone-b") == ["e-over", "a-train"]
        assert ids(store, owner="her") == ["d-other"]
        assert ids(store, created_after=NOW + 2) == ["e-over", "d-other"]
        assert ids(store, text="train") == ["b-train", "a-train"]
        assert ids(store, text="%") == []
        assert ids(store, run_ids=("a-train", "e-over", "nobody", "a-train")) == ["e-over", "a-train"]
        assert ids(store, run_ids=("d-other",), owner="local") == []
        assert ids(store, run_ids=("c-test", "a-train"), labels=(("team", "vision"),)) == ["a-train"]
        named = store.page(RunFilter(run_ids=("a-train", "d-other"), statuses=("running",)), None, 9)
        assert ([run.run_id for run in named.runs], named.counts) == (["a-train"], {"running": 1, "pending": 1})
        assert ids(store, text="train", labels=(("team", "vision"),), zone="zone-c") == ["b-train"]
        assert ids(store, zone="zone-b", owner="local", created_after=NOW, statuses=("completed",)) == ["e-over"]

    def test_a_group_is_a_filter_and_no_label(self, store: Store) -> None:
        in_group = replace(a_run("cell-1"), policy=Policy(group="sweep"))
        first = insert(store, in_group, labels={"lr": "0.1"})[0]
        insert(store, replace(in_group, run_id="cell-2"))
        insert(store, replace(a_run("cell-3"), policy=Policy(group="other")), labels={"lr": "0.1"})
        assert ids(store, group="sweep") == ["cell-2", "cell-1"]
        assert ids(store, group="sweep", labels=(("lr", "0.1"),)) == ["cell-1"]
        assert ids(store, group="sweep", run_ids=("cell-1", "cell-3")) == ["cell-1"]
        assert ids(store, group="nobody") == []
        assert store.labels(first.key) == {"lr": "0.1"}
        over = changed(store, first, replace(first, status=Status.STOPPED))
        page = store.page(RunFilter(group="sweep", statuses=("stopped",)), None, 9)
        assert (page.counts, dict(page.labels)) == ({"pending": 1, "stopped": 1}, {over.key: {"lr": "0.1"}})

    def test_another_spec_moves_a_run_to_another_group(self, store: Store) -> None:
        run = insert(store, replace(a_run("cell-1"), policy=Policy(group="sweep")))[0]
        moved = replace(run, policy=Policy(group="again"))
        with store.begin(NOW) as tx:
            tx.put_spec(moved, {"command": ["x"]}, {"lr": "0.2"})
        assert (ids(store, group="sweep"), ids(store, group="again")) == ([], ["cell-1"])
        assert store.labels(run.key) == {"lr": "0.2"}

    def test_statuses_of_many_runs_in_one_read(self, store: Store) -> None:
        self.some(store)
        assert store.statuses(["a-train", "e-over", "nobody"]) == {"a-train": "running", "e-over": "completed"}
        assert store.statuses([]) == {}

    def test_counts_are_of_the_same_filter_without_its_statuses(self, store: Store) -> None:
        self.some(store)

        def counts(**where: object) -> dict[str, int]:
            return dict(store.page(RunFilter(**where), None, 1).counts)  # type: ignore[arg-type]

        assert counts(statuses=("running",)) == {"running": 2, "pending": 2, "completed": 1}
        assert counts(labels=(("team", "vision"),)) == {"running": 2, "completed": 1}
        assert counts(labels=(("team", "vision"), ("prio", "1")), statuses=("stopped",)) == {"running": 1}
        assert counts(labels=(("team", "vision"),), zone="zone-c") == {"running": 1}
        assert counts(owner="her") == {"pending": 1}
        assert counts(text="nothing") == {}
        page = store.page(RunFilter(labels=(("team", "vision"),), zone="zone-c"), None, 9)
        assert page.usd_per_h == 1.25
        assert store.page(RunFilter(owner="her"), None, 9).usd_per_h == 0.0

    def test_counts_by_label_follow_the_status(self, store: Store) -> None:
        (run,) = insert(store, a_run(), labels={"team": "vision"})
        where = RunFilter(labels=(("team", "vision"),))
        assert store.page(where, None, 9).counts == {"pending": 1}
        begun = store.apply_all([_to(run, Status.RUNNING)], NOW, lease_of(store))[run.key]
        assert store.page(where, None, 9).counts == {"running": 1}
        with store.begin(NOW) as tx:
            stopped = tx.apply(_to(begun, Status.STOPPED), NOW)
            assert stopped is not None
            tx.put_spec(stopped, {}, {"team": "vision", "new": "yes"})
        assert store.page(where, None, 9).counts == {"stopped": 1}
        assert store.page(RunFilter(labels=(("new", "yes"),)), None, 9).counts == {"stopped": 1}

    def test_pages_of_the_oldest_first(self, store: Store) -> None:
        insert(store, *(a_run(f"run-{n:02}") for n in range(11)), labels={"team": "vision"})
        names = [f"run-{n:02}" for n in range(11)]
        for labels in ((), (("team", "vision"),)):
            where = RunFilter(("running", "pending"), labels, oldest_first=True)
            first = store.page(where, None, 6)
            rest = store.page(where, first.next_key, 6)
            assert [run.run_id for run in (*first.runs, *rest.runs)] == names
            assert (rest.next_key, rest.counts) == (None, {"pending": 11})

    def test_pages_follow_each_other_without_gap_or_repeat(self, store: Store) -> None:
        insert(store, *(a_run(f"run-{n:03d}") for n in range(23)), labels={"team": "vision"})
        for where in (RunFilter(), RunFilter(labels=(("team", "vision"),)), RunFilter(statuses=("pending",))):
            seen: list[str] = []
            before: int | None = None
            while True:
                page = store.page(where, before, 5)
                seen += [run.run_id for run in page.runs]
                assert page.counts == {"pending": 23}
                before = page.next_key
                if before is None:
                    break
            assert seen == [f"run-{n:03d}" for n in reversed(range(23))]
        assert store.page(RunFilter(), None, 23).next_key is None

    def test_a_machine_bills_until_it_is_known_gone(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        begun = changed(store, run, running(run))
        ended = changed(store, begun, replace(begun, attempt=an_attempt(ended_at=NOW), status=Status.FAILED))
        assert store.page(RunFilter(), None, 9).usd_per_h == 0.5
        changed(store, ended, replace(ended, attempt=an_attempt(ended_at=NOW, gone_at=NOW)))
        assert store.page(RunFilter(), None, 9).usd_per_h == 0.0

    def test_events_are_read_in_order_from_where_one_stopped(self, store: Store) -> None:
        one, two = insert(store, a_run("a-1"), a_run("a-2"))
        for n in range(5):
            store.add_events(one.key, [Event(EventKind.LATE_BEAT, f"one {n}")], NOW + n)
            store.add_events(two.key, [Event(EventKind.LATE_BEAT, f"two {n}", "ops", {"n": n})], NOW + n)
        store.add_events(two.key, [Event(EventKind.STOP_IGNORED, "two last"), STARTED], NOW + 9)
        everything = store.events(None, 0, 99)
        assert [kept.id for kept in everything] == sorted({kept.id for kept in everything})
        assert len(everything) == 14
        mine = store.events("a-2", 0, 99)
        assert [kept.event.text for kept in mine[1:]] == [
            "two 0", "two 1", "two 2", "two 3", "two 4", "two last", STARTED.text,
        ]  # fmt: skip
        assert mine[1].event == Event(EventKind.LATE_BEAT, "two 0", "ops", {"n": 0})
        assert store.events("a-2", mine[2].id, 2) == mine[3:5]
        assert store.events("a-2", 0, 2, newest_first=True) == mine[:-3:-1]
        assert store.events("a-2", mine[5].id, 99, newest_first=True) == mine[:5:-1]
        assert store.events("a-2", 0, 2, newest_first=True, before_id=mine[5].id) == mine[4:2:-1]
        assert store.events("a-2", mine[1].id, 99, before_id=mine[4].id) == mine[2:4]
        assert store.events(None, 0, 99, before_id=everything[3].id, actor="ops") == [
            one for one in everything[:3] if one.event.actor == "ops"
        ]
        assert store.events(None, everything[-1].id, 9) == []
        assert store.events(None, 0, 1, newest_first=True) == everything[-1:]

    def test_an_event_of_a_run_that_does_not_exist_is_an_error(self, store: Store) -> None:
        try:
            store.add_events(4711, [STARTED], NOW)
        except KeyError:
            return
        raise AssertionError("it was swallowed")

    def test_old_points_are_thinned_out_and_then_deleted(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        lease = lease_of(store)
        start = NOW - NOW % 600
        store.write_pulses([Sample(run.key, start + 60 * n, 1, a_pulse(n)) for n in range(40)], lease)
        assert store.prune(start + DAY_S, 1000) == 0
        assert store.prune(start + DAY_S + 3600, 10) == 10
        assert store.prune(start + DAY_S + 3600, 1000) == 26
        assert [point.pulse.step for point in store.samples(run.key, 0, 99)] == [0, 10, 20, 30]
        assert store.prune(start + 31 * DAY_S, 1000) == 4
        assert store.samples(run.key, 0, 99) == []

    def test_points_from_further_ahead_than_they_are_kept_are_of_a_wrong_clock(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        ahead = (0.0, DAY_S / 2, 40 * DAY_S, 4000 * DAY_S)
        store.write_pulses([Sample(run.key, NOW + s, 1, a_pulse(1)) for s in ahead], lease_of(store))
        assert store.prune(NOW, 1000) == 2
        assert [round(point.at - NOW) for point in store.samples(run.key, 0, 99)] == [0, DAY_S / 2]

    def test_events_stay_until_their_run_is_long_over(self, store: Store) -> None:
        live, over, late = insert(store, a_run("live"), a_run("over"), a_run("late"))
        changed(store, over, replace(over, status=Status.STOPPED, status_since=NOW, settled=True), STARTED)
        after = replace(late, status=Status.STOPPED, status_since=NOW + 60 * DAY_S, settled=True)
        changed(store, late, after)
        store.add_events(None, [Event(EventKind.BREAKER_OPENED, "opened")], NOW)
        assert store.prune(NOW + 89 * DAY_S, 1000) == 0
        assert store.prune(NOW + 91 * DAY_S, 1000) == 3  # two of `over`, one of the supervisor itself
        assert [kept.run_id for kept in store.events(None, 0, 99)] == ["live", "late"]
        assert store.due_outbox(NOW + 91 * DAY_S, 9) == []
        assert store.find("over") is not None
        assert live.key in store.active(CELL, {})[1]

    def test_a_number_is_not_given_twice_after_events_were_deleted(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        over = changed(store, run, replace(run, status=Status.STOPPED, settled=True), STARTED)
        last = store.events(None, 0, 9)[-1].id
        assert store.prune(NOW + 91 * DAY_S, 1000) == 2
        changed(store, over, replace(over, status=Status.PENDING, settled=False, generation=2), STARTED)
        (item,) = store.due_outbox(NOW, 9)
        assert item.sequence == 3
        assert item.stored.id > last

    def test_idempotency_keys_are_kept_for_a_week(self, store: Store) -> None:
        with store.begin(NOW) as tx:
            tx.take_key("scope", "key", "print", NOW)
        assert store.prune(NOW + 6.9 * DAY_S, 9) == 0
        assert store.prune(NOW + 7.1 * DAY_S, 9) == 1
        with store.begin(NOW) as tx:
            assert tx.take_key("scope", "key", "other", NOW) is None

    def test_an_answer_is_kept_with_its_key(self, store: Store) -> None:
        answer = KeptResponse("print", 201, '{"run_id": "digits-1", "text": "ß"}', "/v1/runs/digits-1")
        with store.begin(NOW) as tx:
            assert tx.take_key("scope", "key", "print", NOW) is None
            assert tx.take_key("scope", "key", "print", NOW) == KeptResponse("print", 0, "", "")
            tx.keep_response("scope", "key", answer)
        with store.begin(NOW) as tx:
            assert tx.take_key("scope", "key", "other print", NOW) == answer
            assert tx.take_key("other scope", "key", "print", NOW) is None

    def test_lines_of_steps_are_few_points_of_any_length(self, store: Store) -> None:
        long, short, none = insert(store, a_run("long"), a_run("short"), a_run("none"))
        told = [Sample(long.key, NOW + 60 * n, 1 + n // 500, a_pulse(n)) for n in range(1000)]
        told += [Sample(short.key, NOW, 1, a_pulse(None)), Sample(short.key, NOW + 60, 2, a_pulse(7))]
        store.write_pulses(told, lease_of(store))
        found = store.lines([long.key, short.key, none.key, 10**6])
        assert [(point.attempt, point.step) for point in found[short.key]] == [(1, None), (2, 7)]
        line = found[long.key]
        assert (line[0].step, line[-1].step, line[-1].attempt) == (0, 999, 2)
        assert 20 <= len(line) <= 24
        apart = [after.step - before.step for before, after in pairwise(line)]  # type: ignore[operator]
        assert {45, 46} >= set(apart)
        assert set(found) == {long.key, short.key}
        assert store.lines([]) == {}


def _to(run: Run, status: Status) -> Change:
    return Change(run, replace(run, status=status))
