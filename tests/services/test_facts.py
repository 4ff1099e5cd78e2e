"""The facts of a run as the API tells them, and as the manifest keeps them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.domain.causes import Cause
from supervisor.domain.errors import NotFound
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.reconciler.acting.records import write_records
from supervisor.services.reading.evidence import RunFacts, show_facts
from tests.services.bed import Bed
from tests.services.declared import declared

SPEC = {"command": ["python", "train.py", "--seed", "7"], "image": "lab/train:3"}


def note(bed: Bed, attempt: int, packages: list[str], **more: Any) -> dict[str, Any]:
    facts = {"attempt": attempt, "packages": packages, "packages_sha256": "+".join(packages), **more}
    bed.objects.put(runfiles.facts("digits-7", attempt), json.dumps(facts).encode())
    return facts


def three_attempts(bed: Bed) -> None:
    bed.submit("digits-7", SPEC)
    for number in (1, 2, 3):
        run = bed.train("digits-7", number)
        assert run.attempt is not None
        bed.end("digits-7")


def shown(bed: Bed) -> Any:
    return declared(RunFacts, show_facts(bed.parts, bed.services.queries, "digits-7"))


def test_facts_causes_and_differences_are_told(bed: Bed) -> None:
    three_attempts(bed)
    first = note(bed, 1, ["numpy==1.26.0"])
    newest = note(bed, 3, ["numpy==1.26.4"])
    answer = shown(bed)
    assert (answer["command"], answer["code"], answer["image"]) == (SPEC["command"], None, "lab/train:3")
    assert answer["spec"] == SPEC
    short = {name: value for name, value in first.items() if name != "packages"}
    assert [one["facts"] for one in answer["attempts"]] == [short, None, newest]
    (row,) = answer["differs"]
    assert (row["attempt"], row["against"], row["fact"]) == (3, 1, "packages")
    assert row["packages"]["changed"] == [{"was": "numpy==1.26.0", "is": "numpy==1.26.4"}]


def test_a_run_without_attempts_and_one_that_is_not_there(bed: Bed) -> None:
    bed.submit("digits-7", SPEC)
    assert (shown(bed)["attempts"], shown(bed)["differs"]) == ([], [])
    with pytest.raises(NotFound):
        show_facts(bed.parts, bed.services.queries, "nobody")


def test_torn_facts_are_none_and_a_store_that_is_away_is_told(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    three_attempts(bed)
    bed.objects.put(runfiles.facts("digits-7", 1), b'{"attempt": 1')
    assert [one["facts"] for one in shown(bed)["attempts"]] == [None, None, None]

    def away(*_: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(bed.objects, "read", away)
    with pytest.raises(StoreUnavailable):
        shown(bed)


def test_the_manifest_keeps_the_newest_facts_in_full_and_the_others_as_differences(bed: Bed) -> None:
    three_attempts(bed)
    note(bed, 1, ["a==1"], python="3.11.4")
    note(bed, 2, ["a==1"], python="3.12.0")
    newest = note(bed, 3, ["a==2"], python="3.12.0")
    run = bed.run("digits-7")
    bed.change("digits-7", cause=Cause.STOP_REQUESTED)
    write_records(bed.objects, bed.store, run)
    manifest = json.loads(bed.objects.get(runfiles.manifest("digits-7"))[0])
    assert manifest["facts"] == newest
    assert [(row["attempt"], row["fact"]) for row in manifest["facts_differ"]] == [(2, "python"), (3, "packages")]
    assert [one["attempt"] for one in manifest["attempts"]] == [1, 2, 3]
    write_records(bed.objects, bed.store, run)
    assert json.loads(bed.objects.get(runfiles.manifest("digits-7"))[0]) == manifest
