"""An earlier attempt is written together with the run that has moved on, or not at all."""

from __future__ import annotations

from dataclasses import replace

from supervisor.ports.store import Change
from tests.services.bed import Bed


def moved_on(bed: Bed):
    """(run in its second attempt, the first attempt with its machine gone)"""
    bed.submit("digits-7")
    first = bed.train("digits-7", 1).attempt
    assert first is not None
    run = bed.train("digits-7", 2)
    return run, replace(first, ended_at=bed.clock.now(), gone_at=bed.clock.now() + 30)


def test_the_earlier_attempt_is_written_with_the_change(bed: Bed):
    run, gone = moved_on(bed)
    with bed.store.begin(bed.clock.now()) as tx:
        assert tx.apply(Change(run, replace(run, hold="x"), parted=(gone,)), bed.clock.now()) is not None
    assert [one.gone_at for one in bed.store.attempts(run.key)] == [gone.gone_at, None]


def test_it_is_not_written_where_the_row_had_changed_meanwhile(bed: Bed):
    run, gone = moved_on(bed)
    bed.change("digits-7", hold="somebody else was here")
    with bed.store.begin(bed.clock.now()) as tx:
        assert tx.apply(Change(run, replace(run, hold="x"), parted=(gone,)), bed.clock.now()) is None
    assert [one.gone_at for one in bed.store.attempts(run.key)] == [None, None]
