"""A run of the older runner has the name of a new one: the new run never silently starts from nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.domain.errors import OldRunThere
from supervisor.domain.status import Status
from supervisor.lifecycle.living.overriding import stopped_by
from tests.importing.oldrunner import OLD_ID, old_run
from tests.services.bed import Bed, make_bed
from tests.services.fresh import open_fresh


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with closing(open_fresh(tmp_path / "supervisor.db")) as store:
        yield make_bed(store, tmp_path)


def lay(bed: Bed, **changed: bytes | None) -> None:
    for key, data in old_run(OLD_ID, **changed).items():
        bed.objects.put(key, data)


def test_it_is_refused_and_says_how_to_take_it_over(bed: Bed) -> None:
    lay(bed)
    with pytest.raises(OldRunThere) as refused:
        bed.submit(OLD_ID)
    url = f"{bed.objects.url}/runs/{OLD_ID}"
    assert f"spot import {url}" in refused.value.detail
    assert "--ignore-old" in refused.value.detail
    assert bed.store.find(OLD_ID) is None
    bed.submit("another-name")
    bed.submit()


@pytest.mark.parametrize("only", ["state.json", "heartbeat.json", "checkpoint_sync/checkpoints/last.pt", ".owner.lock"])
def test_one_file_of_the_older_runner_is_enough(bed: Bed, only: str) -> None:
    bed.objects.put(f"runs/{OLD_ID}/{only}", b"{}")
    with pytest.raises(OldRunThere):
        bed.submit(OLD_ID)


@pytest.mark.parametrize("ours", [".stop", "baton.json", "instances/1.json", "logs/a1/00000001.log"])
def test_our_own_files_are_no_old_run(bed: Bed, ours: str) -> None:
    bed.objects.put(f"runs/{OLD_ID}/{ours}", b"{}")
    assert bed.submit(OLD_ID).status == 201


def test_ignore_old_starts_from_nothing_and_the_old_stop_does_not_stop_it(bed: Bed) -> None:
    lay(bed)
    reply = bed.submit(OLD_ID, ignore_old=True)
    assert reply.status == 201
    run, marker = bed.run(OLD_ID), bed.objects.stat(f"runs/{OLD_ID}/.stop").generation
    assert run.status == Status.PENDING
    assert stopped_by(run, marker, bed.clock.now()) is run
    bed.objects.put(f"runs/{OLD_ID}/.stop", b"stop again")
    newer = bed.objects.stat(f"runs/{OLD_ID}/.stop").generation
    assert stopped_by(run, newer, bed.clock.now()).stop is not None


def test_an_unreadable_store_does_not_block_a_submit_and_gives_a_warning(bed: Bed) -> None:
    lay(bed)
    bed.objects.fail_reads = True
    answer = json.loads(bed.submit(OLD_ID).body)
    assert "it may hold an older run of this name" in answer["warnings"][0]


def test_an_existing_run_causes_no_listing(bed: Bed) -> None:
    bed.submit(OLD_ID)
    lay(bed)
    assert bed.submit(OLD_ID).status == 200
