"""The store's contract for single runs: inserted once, changed under a guard, read back exactly."""

from __future__ import annotations

import math
import threading
from dataclasses import fields, replace

import pytest

from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.store import Change, DuplicateRun, Store
from tests.contracts.store_values import (
    NOW,
    PLACE,
    SPEC,
    STARTED,
    SUBMITTED,
    a_pulse,
    a_run,
    a_try,
    an_attempt,
    changed,
    full,
    insert,
    running,
)


class RunsSuite:
    def test_active_runs_of_an_owner_are_counted_up_to_a_number(self, store: Store) -> None:
        runs = insert(store, a_run("a-1"), a_run("a-2"), a_run("a-3"), a_run("b-1", owner="her"))
        changed(store, runs[0], replace(runs[0], status=Status.STOPPED, settled=True))
        with store.begin(NOW) as tx:
            assert [tx.active_of("local", most) for most in (0, 1, 2, 9)] == [0, 1, 2, 2]
            assert tx.active_of("her", 9) == 1
            assert tx.active_of("nobody", 9) == 0

    def test_who_counts_waits_for_who_has_counted(self, store: Store, reopened: Store) -> None:
        """A variant without the lock on Postgres counts 0 before the other transaction's commit."""
        counted: list[int] = []
        done = threading.Event()

        def count() -> None:
            with reopened.begin(NOW) as tx:
                counted.append(tx.active_of("local", 9))
            done.set()

        thread = threading.Thread(target=count)
        with store.begin(NOW) as tx:
            assert tx.active_of("local", 9) == 0
            tx.insert(a_run(), SPEC, {}, [SUBMITTED])
            thread.start()
            assert not done.wait(0.2)
        thread.join(20)
        assert counted == [1]

    def test_a_run_is_found_as_it_was_inserted(self, store: Store) -> None:
        (run,) = insert(store, a_run(), labels={"team": "vision", "Größe": "ß"})
        assert run.key > 0
        assert store.find("digits-1") == run
        assert store.spec(run.key) == SPEC
        assert store.labels(run.key) == {"team": "vision", "Größe": "ß"}
        assert [(kept.event, kept.at, kept.generation) for kept in store.events("digits-1", 0, 9)] == [
            (SUBMITTED, NOW, 1)
        ]

    def test_an_unknown_run_is_none(self, store: Store) -> None:
        assert store.find("nobody") is None
        assert store.events("nobody", 0, 9) == []
        with store.begin(NOW) as tx:
            assert tx.find("nobody") is None

    def test_every_field_survives(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        rich = full(run)
        same = {field.name for field in fields(Run) if getattr(rich, field.name) == getattr(run, field.name)}
        assert same == {"key", "version", "run_id", "owner", "cell", "provider", "created_at"}
        stored = changed(store, run, rich)
        assert store.find("digits-1") == stored == replace(rich, version=run.version + 1)

    def test_a_full_run_can_be_inserted(self, store: Store) -> None:
        (run,) = insert(store, full(a_run()))
        assert store.find("digits-1") == run

    def test_a_taken_id_is_refused_and_nothing_is_written(self, store: Store) -> None:
        (first,) = insert(store, a_run())
        with pytest.raises(DuplicateRun):
            insert(store, a_run("other"), a_run(hold="another"))
        assert store.find("digits-1") == first
        assert store.find("other") is None
        assert len(store.events(None, 0, 9)) == 1

    def test_the_transaction_goes_on_after_a_duplicate(self, store: Store) -> None:
        insert(store, a_run())
        with store.begin(NOW) as tx:
            with pytest.raises(DuplicateRun):
                tx.insert(a_run(), {}, {}, [])
            tx.insert(a_run("other"), SPEC, {}, [])
        assert store.find("other") is not None

    def test_a_block_that_raises_leaves_nothing(self, store: Store) -> None:

        def fail_late() -> None:
            with store.begin(NOW) as tx:
                tx.insert(a_run(), SPEC, {"a": "b"}, [SUBMITTED])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_late()
        assert store.find("digits-1") is None
        assert store.events(None, 0, 9) == []

    def test_a_transaction_sees_its_own_writes(self, store: Store) -> None:
        with store.begin(NOW) as tx:
            run = tx.insert(a_run(), SPEC, {}, [])
            assert tx.find("digits-1") == run
            moved = tx.apply(Change(run, replace(run, hold="x")), NOW)
            assert tx.find("digits-1") == moved
            assert tx.spec(run.key) == SPEC

    def test_apply_is_guarded_by_the_version(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        first = changed(store, run, replace(run, hold="first"))
        assert first.version > run.version
        with store.begin(NOW) as tx:
            assert tx.apply(Change(run, running(run, hold="second"), (STARTED,)), NOW) is None
        assert store.find("digits-1") == first
        assert store.attempts(run.key) == []
        assert store.tries(run.key) == []
        assert [kept.event for kept in store.events("digits-1", 0, 9)] == [SUBMITTED]
        assert store.due_outbox(NOW + 1, 9) == []

    def test_a_new_spec_counts_from_its_generation_on(self, store: Store) -> None:
        (run,) = insert(store, a_run(status=Status.STOPPED), labels={"team": "vision", "keep": "no"})
        with store.begin(NOW) as tx:
            reopened = tx.apply(Change(run, replace(run, generation=2, status=Status.PENDING)), NOW)
            assert reopened is not None
            tx.put_spec(reopened, {"command": "true"}, {"team": "audio"})
            assert tx.spec(run.key) == {"command": "true"}
        assert store.spec(run.key) == {"command": "true"}
        assert store.labels(run.key) == {"team": "audio"}

    def test_attempts_and_tries_are_kept_one_row_each(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        tried = changed(store, run, replace(run, status=Status.LAUNCHING, try_=a_try(1, 1)))
        failed = changed(store, tried, replace(tried, try_=a_try(1, 1, ended_at=NOW, detail="stock-out")))
        second = changed(store, failed, replace(failed, try_=a_try(1, 2)))
        begun = changed(store, second, running(second, try_=a_try(1, 2)))
        ended = an_attempt(ended_at=NOW + 9, evidence="gone")
        over = changed(store, begun, replace(begun, attempt=ended, status=Status.RECOVERING))
        third = changed(store, over, running(over, 2))
        assert store.tries(run.key) == [a_try(1, 1, ended_at=NOW, detail="stock-out"), a_try(1, 2), a_try(2, 1)]
        assert store.attempts(run.key) == [ended, an_attempt(2)]
        assert store.find("digits-1") == third

    def test_a_pulse_can_be_forgotten(self, store: Store) -> None:
        (run,) = insert(store, a_run())
        beating = changed(store, run, running(run))
        silent = changed(store, beating, replace(beating, pulse=None))
        found = store.find("digits-1")
        assert found == silent
        assert found is not None
        assert found.pulse is None

    def test_placements_of_different_runs_do_not_mix(self, store: Store) -> None:
        other = replace(PLACE, zone="zone-c")
        first, second = insert(store, a_run("a-1"), a_run("a-2"))
        one = changed(store, first, running(first))
        two = changed(store, second, running(second, attempt=an_attempt(placement=other)))
        assert [store.find("a-1"), store.find("a-2")] == [one, two]

    @pytest.mark.parametrize(
        "bad",
        [
            {"hold": "NUL \x00 inside"},
            {"detail": "half a pair \ud800"},
            {"next_at": math.nan},
            {"next_at": math.inf},
            {"owner": "NUL \x00"},
            {"created_at": math.nan},
            {"pulse": a_pulse(metrics={"loss": math.nan})},
            {"try_": a_try(detail="\x00")},
        ],
    )
    def test_what_databases_would_store_differently_is_refused(self, store: Store, bad: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=r"."):
            insert(store, a_run("bad", **bad))
        assert store.find("bad") is None
        (good,) = insert(store, a_run())
        assert store.find("digits-1") == good

    @pytest.mark.parametrize(
        ("spec", "labels"),
        [({"env": {"A": "\x00"}}, {}), ({"x": math.inf}, {}), ({}, {"a\x00": "b"}), ({}, {"a": "\udfff"})],
    )
    def test_so_are_specs_and_labels(self, store: Store, spec: dict[str, object], labels: dict[str, str]) -> None:
        with pytest.raises(ValueError, match=r"."), store.begin(NOW) as tx:
            tx.insert(a_run(), spec, labels, [])
        assert store.find("digits-1") is None

    @pytest.mark.parametrize("text", ["\x00", "\ud800"])
    def test_so_are_events(self, store: Store, text: str) -> None:
        for event in (Event(EventKind.STARTED, text), Event(EventKind.STARTED, "x", data={"a": text})):
            with pytest.raises(ValueError, match=r"."), store.begin(NOW) as tx:
                tx.insert(a_run(), SPEC, {}, [event])
            with pytest.raises(ValueError, match=r"."):
                store.add_events(None, [event], NOW)
        assert store.events(None, 0, 9) == []
