"""The supervisor's changes of the baton, where an action comes late: after a resume has opened the next generation."""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ABSENT
from supervisor.reconciler.acting import batonwork
from tests.fakes.objectstore import MemoryStore
from tests.lifecycle.sample_runs import run_in

OURS = "the-supervisor"


def stored(objects: MemoryStore, run: Run) -> Baton:
    return batons.decode(objects.get(runfiles.baton(run.run_id))[0])


def test_a_close_that_comes_after_a_resume_leaves_the_new_generation_open() -> None:
    objects, stopped = MemoryStore(), run_in(Status.STOPPED)
    resumed = replace(stopped, generation=2, status=Status.LAUNCHING)
    batonwork.raise_next(objects, stopped, "1.1.1", True, OURS)
    batonwork.raise_next(objects, resumed, "2.2.1", True, OURS)
    assert not batonwork.close(objects, stopped, "stopped", OURS)
    assert stored(objects, stopped).closed is None
    assert batonwork.close(objects, resumed, "stopped", OURS)
    assert stored(objects, stopped).closed == "stopped"


def test_a_close_opens_its_own_generation_first() -> None:
    objects, run = MemoryStore(), run_in(Status.STOPPED, generation=2)
    first = batons.close(batons.create(OURS, 1), "failed")
    objects.put(runfiles.baton(run.run_id), batons.encode(first), if_generation=ABSENT)
    assert batonwork.close(objects, run, "stopped", OURS)
    after = stored(objects, run)
    assert (after.generation, after.closed) == (2, "stopped")


def test_where_there_is_no_baton_there_is_nothing_to_close() -> None:
    objects, run = MemoryStore(), run_in(Status.STOPPED)
    assert batonwork.close(objects, run, "stopped", OURS)
    assert not next(iter(objects.pages("runs/"))).objects
