"""The suite detects each broken store by the rule that it breaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from supervisor.domain.run import Run
from supervisor.ports.store import Change, Lease, PushedBeat, RunFilter, RunPage, Sample
from supervisor.storage.engine.statements import Statement, incoming, insert_incoming
from supervisor.storage.engine.tables import labels, pushed_beats, tokens, tries
from supervisor.storage.rows import access as stored_tokens
from supervisor.storage.rows import runs
from supervisor.storage.store import SqlStore, open_store
from tests.contracts.store_suite import StoreSuite

SUITE = StoreSuite()


@pytest.fixture
def real(tmp_path: Path) -> Iterator[SqlStore]:
    opened = open_store(f"sqlite:///{tmp_path}/supervisor.db", migrate=True)
    yield opened
    opened.close()


class Wrapped:
    """The real store, with one promise broken."""

    def __init__(self, real: SqlStore) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class KeepsNoGuard(Wrapped):
    def apply_all(self, changes: Sequence[Change], now: float, lease: Lease) -> dict[int, Run]:
        fresh = {run.key: run for run in self.real.active(lease.name, {})[0]}
        same = [Change(replace(c.before, version=fresh[c.before.key].version), c.after, c.events) for c in changes]
        return self.real.apply_all(same, now, lease)


class KeepsEventsOfAMiss(Wrapped):
    def apply_all(self, changes: Sequence[Change], now: float, lease: Lease) -> dict[int, Run]:
        hit = self.real.apply_all(changes, now, lease)
        for change in changes:
            if change.before.key not in hit:
                self.real.add_events(change.before.key, change.events, now)
        return hit


class IgnoresTheLease(Wrapped):
    def apply_all(self, changes: Sequence[Change], now: float, lease: Lease) -> dict[int, Run]:
        mine = self.real.take_lease(lease.name, lease.owner, 60.0, 0.0, alone=True)
        assert mine is not None
        return self.real.apply_all(changes, now, mine)


class PulsesOfFormerLeaders(Wrapped):
    def write_pulses(self, samples: Sequence[Sample], lease: Lease) -> None:
        mine = self.real.take_lease(lease.name, lease.owner, 60.0, 0.0, alone=True)
        assert mine is not None
        self.real.write_pulses(samples, mine)


class TakesCarriedPointsForPulses(Wrapped):
    def write_pulses(self, samples: Sequence[Sample], lease: Lease) -> None:
        self.real.write_pulses([replace(one, carried=False) for one in samples], lease)


class TwoLeaders(Wrapped):
    def take_lease(self, name: str, owner: str, ttl_s: float, monotonic: float, alone: bool = False) -> Lease | None:
        return self.real.take_lease(name, owner, ttl_s, monotonic, alone=True)


class ReadsEverythingAlways(Wrapped):
    def active(self, cell: str, known: Mapping[int, int]) -> tuple[list[Run], set[int]]:
        return self.real.active(cell, {})


class CountsWhatIsShown(Wrapped):
    def page(self, where: RunFilter, before_key: int | None, limit: int) -> RunPage:
        page = self.real.page(where, before_key, limit)
        statuses = [str(run.status) for run in page.runs]
        return replace(page, counts={status: statuses.count(status) for status in statuses})


class RepeatsOneRun(Wrapped):
    def page(self, where: RunFilter, before_key: int | None, limit: int) -> RunPage:
        return self.real.page(where, None if before_key is None else before_key + 1, limit)


class LastBeatWins(Wrapped):
    def put_beats(self, beats: Sequence[PushedBeat]) -> dict[str, str]:
        with self.real.database.writing() as session:
            session.connection.execute(sa.delete(pushed_beats))
        return self.real.put_beats(beats)


class BeatsAreFreshWhenLeft(Wrapped):
    def put_beats(self, beats: Sequence[PushedBeat]) -> dict[str, str]:
        return self.real.put_beats([replace(one, age_s=0.0) for one in beats])


class BeatsForFormerLeaders(Wrapped):
    def take_beats(self, lease: Lease) -> list[PushedBeat]:
        mine = self.real.take_lease(lease.name, lease.owner, 60.0, 0.0, alone=True)
        assert mine is not None
        return self.real.take_beats(mine)


class GivesBeatsTwice(Wrapped):
    def take_beats(self, lease: Lease) -> list[PushedBeat]:
        found = self.real.take_beats(lease)
        self.real.put_beats(found)
        return found


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (LastBeatWins, SUITE.test_the_newest_launch_and_sequence_wins_in_any_order),
        (BeatsAreFreshWhenLeft, SUITE.test_ages_go_on_while_a_beat_waits),
        (BeatsForFormerLeaders, SUITE.test_only_the_leader_of_the_cell_takes),
        (GivesBeatsTwice, SUITE.test_many_beats_in_one_call),
        (KeepsNoGuard, SUITE.test_a_page_of_changes_hits_what_was_not_changed_meanwhile),
        (KeepsEventsOfAMiss, SUITE.test_twice_the_same_page_is_once),
        (IgnoresTheLease, SUITE.test_a_lost_lease_hits_nothing),
        (PulsesOfFormerLeaders, SUITE.test_a_lost_lease_hits_nothing),
        (TakesCarriedPointsForPulses, SUITE.test_a_carried_point_is_no_pulse_of_its_run),
        (TwoLeaders, SUITE.test_one_lease_has_one_holder),
        (ReadsEverythingAlways, SUITE.test_active_reads_again_only_what_changed),
        (CountsWhatIsShown, SUITE.test_counts_are_of_the_same_filter_without_its_statuses),
        (RepeatsOneRun, SUITE.test_pages_follow_each_other_without_gap_or_repeat),
    ],
)
def test_a_broken_store_is_caught(real: SqlStore, broken: type[Wrapped], promise: Any) -> None:
    with pytest.raises(AssertionError):
        promise(broken(real))


def nothing(dialect: str) -> Any:
    return sa.update(labels).values(status="x").where(sa.false() == incoming(dialect, labels.c.run).c.run)


def with_the_nonce(dialect: str) -> Any:
    statement = insert_incoming(tries, dialect, tuple(tries.c))
    new = {name: statement.excluded[name] for name in ("nonce_hash", "open", "doc")}
    return statement.on_conflict_do_update(index_elements=["run", "attempt", "number"], set_=new)


def revoked_again(_: str) -> Any:
    return sa.update(tokens).values(revoked_at=sa.bindparam("now")).where(tokens.c.id == sa.bindparam("id_"))


@pytest.mark.parametrize(
    ("module", "name", "broken", "promise"),
    [
        (stored_tokens, "REVOKE", revoked_again, SUITE.test_making_and_revoking_are_told_once),
        (runs, "MOVE_LABELS", nothing, SUITE.test_counts_by_label_follow_the_status),
        (runs, "UPSERT_TRIES", with_the_nonce, SUITE.test_a_nonce_belongs_to_the_open_try),
    ],
)
def test_a_broken_statement_is_caught(
    real: SqlStore, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, broken: Any, promise: Any
) -> None:
    monkeypatch.setattr(module, name, Statement(broken))
    with pytest.raises(AssertionError):
        promise(real)
