"""The store's contract for incidents: opened and announced once, closed once, and the ended attempts behind them."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.incidents import Closing, Common, Incident, Member, Signature
from supervisor.domain.run import Run
from supervisor.ports.store import Store
from tests.contracts.store_values import CELL, NOW, a_run, an_attempt, changed, insert, lease_of, running

SAME = Signature(Common.ERROR, "KeyError: “naïve” → 日本")
OPENED = Incident(
    0,
    (SAME, Signature(Common.CODE, "c" * 64)),
    tuple(Member(f"run-{n}", "alice", 1, NOW + n, "user_error", at_once=True) for n in range(3)),
    NOW + 3,
    NOW + 2,
    blocks=True,
)
CLOSED = Event(EventKind.INCIDENT_CLOSED, "Closed.", "ops")


def announced(incident: Incident) -> Event:
    return Event(EventKind.INCIDENT, f"Incident {incident.id}.", data={"incident": incident.id})


def kinds(store: Store) -> list[tuple[EventKind, str]]:
    """Of all incidents' events, each with its owner."""
    events = store.events(None, 0, 1000)
    wanted = (EventKind.INCIDENT, EventKind.INCIDENT_CLOSED)
    return [(each.event.kind, each.owner) for each in events if each.event.kind in wanted]


def ended(store: Store, run_id: str, cause: Cause, **fields: object) -> Run:
    (run,) = insert(store, a_run(run_id, **fields))
    live = changed(store, run, running(run))
    over = replace(live, attempt=an_attempt(cause=cause, ended_at=NOW, evidence="it ended"))
    return changed(store, live, over, Event(EventKind.ATTEMPT_ENDED, "Ended.", data={"cause": str(cause)}))


class IncidentsSuite:
    def test_an_incident_is_opened_and_announced_once(self, store: Store, reopened: Store) -> None:
        stored = store.incidents.write(OPENED, announced, lease_of(store), NOW)
        assert stored == replace(OPENED, id=1)
        assert reopened.incidents.write(OPENED, announced, lease_of(reopened), NOW) is None, "it is open already"
        other = replace(OPENED, common=(replace(SAME, value="another"),))
        assert reopened.incidents.write(other, announced, lease_of(reopened), NOW) is not None
        assert [each.id for each in reopened.incidents.newest(9, only_open=True)][-1:] == [1]
        assert reopened.incidents.find(1) == stored
        assert kinds(store) == [(EventKind.INCIDENT, "alice")] * 2

    def test_of_several_owners_the_event_is_nobodys(self, store: Store) -> None:
        members = (*OPENED.members, Member("other", "bob", 1, NOW, "user_error"))
        store.incidents.write(replace(OPENED, members=members), announced, lease_of(store), NOW)
        assert kinds(store) == [(EventKind.INCIDENT, "")]

    def test_without_the_lease_nothing_is_written(self, store: Store, reopened: Store) -> None:
        lost = lease_of(store)
        reopened.take_lease(CELL, "other", 60.0, 0.0, alone=True)
        assert store.incidents.write(OPENED, announced, lost, NOW) is None
        assert (store.incidents.newest(9, only_open=False), kinds(store)) == ([], [])

    def test_it_grows_until_it_is_closed_and_is_closed_once(self, store: Store, reopened: Store) -> None:
        lease = lease_of(store)
        stored = store.incidents.write(OPENED, announced, lease, NOW)
        assert stored is not None
        larger = replace(stored, members=(*stored.members, Member("late", "bob", 2, NOW + 9, "killed")))
        assert store.incidents.write(larger, None, lease, NOW + 9) == larger
        closed = reopened.incidents.close(1, "ops", "it is fixed", CLOSED, NOW + 20)
        assert closed == replace(larger, closed_at=NOW + 20, closed_by="ops", reason="it is fixed")
        assert store.incidents.close(1, "ops", "again", CLOSED, NOW + 30) is None
        assert store.incidents.close(7, "ops", "unknown", CLOSED, NOW + 30) is None
        assert store.incidents.write(larger, announced, lease, NOW + 30) is None, "it is closed"
        assert store.incidents.find(1) == closed
        assert kinds(store) == [(EventKind.INCIDENT, "alice"), (EventKind.INCIDENT_CLOSED, "")]
        again = store.incidents.write(OPENED, announced, lease, NOW + 40)
        assert again is not None
        assert again.id == 2, "the same may happen again"

    def test_an_owner_closes_it_for_the_own_runs_and_a_leader_that_knew_it_before_reads_it_again(
        self, store: Store, reopened: Store
    ) -> None:
        lease = lease_of(store)
        both = replace(OPENED, members=(*OPENED.members, Member("other", "bob", 1, NOW, "user_error")))
        stored = store.incidents.write(both, None, lease, NOW)
        assert stored is not None
        closed = reopened.incidents.close(1, "ada", "fixed", CLOSED, NOW + 20, owner="alice")
        assert closed == replace(stored, blocks=False, closings=(Closing("alice", NOW + 20, "ada", "fixed"),))
        assert store.incidents.find(1) == closed
        larger = replace(stored, members=(*stored.members, Member("late", "bob", 2, NOW + 9, "killed")))
        assert store.incidents.write(larger, None, lease, NOW + 30) is None, "the closing would be lost"
        assert store.incidents.write(replace(larger, closings=closed.closings), None, lease, NOW + 30) is not None
        assert [each.id for each in store.incidents.current(CELL, NOW)] == [1]
        over = reopened.incidents.close(1, "bob", "", CLOSED, NOW + 40, owner="bob")
        assert over is not None
        assert (over.closed_at, kinds(store)[-1]) == (NOW + 40, (EventKind.INCIDENT_CLOSED, "bob"))
        assert store.incidents.newest(9, only_open=True) == []

    def test_current_ones_are_open_or_were_closed_lately_in_this_cell(self, store: Store) -> None:
        lease = lease_of(store)
        for n in range(3):
            incident = replace(OPENED, common=(replace(SAME, value=f"error {n}"),))
            store.incidents.write(incident, None, lease, NOW)
        store.incidents.close(1, "ops", "", CLOSED, NOW + 10)
        store.incidents.close(2, "ops", "", CLOSED, NOW + 20)
        assert [each.id for each in store.incidents.current(CELL, NOW + 15)] == [2, 3]
        assert store.incidents.current("another", 0.0) == []
        assert [each.id for each in store.incidents.newest(2, only_open=False)] == [3, 2]
        assert store.prune(NOW + 15 + 90 * 86_400, 100) >= 1
        assert [each.id for each in store.incidents.newest(9, only_open=False)] == [3, 2]

    def test_open_ones_move_with_their_cell(self, store: Store) -> None:
        theirs, ours = lease_of(store), store.take_lease("ours", "me", 60.0, 100.0)
        assert ours is not None
        same = replace(OPENED, common=(replace(SAME, value="both have it"),))
        for lease, incident in ((theirs, OPENED), (theirs, same), (ours, same)):
            store.incidents.write(incident, None, lease, NOW)
        store.take_over(theirs, ours, 10)
        assert [each.id for each in store.incidents.current("ours", 0.0)] == [1, 3]

    def test_ended_attempts_without_preemptions(self, store: Store) -> None:
        failed = ended(store, "failed", Cause.USER_ERROR)
        ended(store, "lost", Cause.PREEMPTED)
        ended(store, "elsewhere", Cause.USER_ERROR, cell="another")
        faulty = ended(store, "faulty", Cause.GPU_FAULT)
        found = store.incidents.ended(CELL, NOW - 1, NOW - 1, 9)
        assert {(run.run_id, attempt.cause, attempt.evidence) for run, attempt in found} == {
            ("failed", Cause.USER_ERROR, "it ended"),
            ("faulty", Cause.GPU_FAULT, "it ended"),
        }
        assert next(run for run, _ in found if run.key == failed.key).policy == failed.policy
        assert [run.key for run, _ in store.incidents.ended(CELL, NOW + 1, NOW - 1, 9)] == [faulty.key]
        assert len(store.incidents.ended(CELL, NOW - 1, NOW - 1, 1)) == 1
