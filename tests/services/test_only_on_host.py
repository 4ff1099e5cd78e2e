"""A checkpoint that is on the host of a run only: the reader of the run is shown it, until the copy is here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.cli.views.show import files_lines
from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Home, Pointer
from supervisor.domain.profile import Fact, Profile, Reach, Source
from tests.fakes.objectstore import MemoryStore
from tests.services.bed import Bed

RELAYED = Profile("fake", "", store_reach=Fact(Reach.RELAY, Source.USER, "2026-01-01", "a setting"))


def at_home(bed: Bed, copied_step: int | None, saved_step: int) -> None:
    """Its agent has saved a checkpoint; the newest copy here is older."""
    bed.provider.profile = lambda zone="": RELAYED  # type: ignore[method-assign]
    run = bed.run("digits-7") if bed.store.find("digits-7") else None
    if run is None:
        bed.submit("digits-7")
        bed.train("digits-7")
    pointer = None if copied_step is None else Pointer(copied_step, runfiles.checkpoint("digits-7", copied_step, 1), ())
    home = Home("local", "gpu1", "digits-7-1.1.1", ready=True)
    baton = batons.create("sup", 1)._replace(checkpoint=pointer, home=home)
    bed.objects.put(runfiles.baton("digits-7"), batons.encode(baton))
    bed.change("digits-7", files=replace(bed.run("digits-7").files, checkpoint_step=saved_step), pulse=None)


def test_a_checkpoint_that_is_not_here_is_named_with_its_place(bed: Bed) -> None:
    at_home(bed, copied_step=200, saved_step=1230)
    shown = bed.services.queries.show("digits-7")
    assert shown["only_on_host"] == {"zone": "gpu1", "checkpoint_step": 1230, "copied_step": 200}
    assert files_lines(dict(shown))[-1] == "checkpoint: step 1,230 is on gpu1 only; the copy here is of step 200"
    at_home(bed, copied_step=None, saved_step=1230)
    assert files_lines(dict(bed.services.queries.show("digits-7")))[-1].endswith("no copy is here yet")


def test_a_page_waits_for_no_patient_store(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home(bed, copied_step=200, saved_step=1230)
    quick = MemoryStore()
    quick.put(runfiles.baton("digits-7"), bed.objects.get(runfiles.baton("digits-7"))[0])
    monkeypatch.setattr(bed.services.queries, "_parts", replace(bed.parts, impatient=quick))
    before = dict(bed.objects.calls)
    assert bed.services.queries.show("digits-7")["only_on_host"] is not None
    assert bed.objects.calls == before


def test_nothing_is_shown_when_the_copy_is_here(bed: Bed) -> None:
    at_home(bed, copied_step=1230, saved_step=1230)
    shown = bed.services.queries.show("digits-7")
    assert shown["only_on_host"] is None
    assert len(files_lines(dict(shown))) == 1


def test_runs_of_other_providers_cost_no_request(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    before = dict(bed.objects.calls)
    assert bed.services.queries.show("digits-7")["only_on_host"] is None
    assert dict(bed.objects.calls) == before
