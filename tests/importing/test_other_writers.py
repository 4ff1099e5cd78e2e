"""Another run has the name, or gets it meanwhile: its files are not touched."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.domain.errors import Conflict, ImportRunning
from tests.importing.conftest import Import
from tests.importing.oldrunner import OLD_ID


@pytest.mark.parametrize("key", ["state.json", "instances/1.json", "results/g1/model.pt"])
def test_a_folder_of_another_run(imports: Import, key: str) -> None:
    imports.lay()
    imports.bed.objects.put(runfiles.folder(OLD_ID) + key, b"theirs")
    with pytest.raises(Conflict, match="holds files of another run"):
        imports()


def test_a_baton_of_another_run(imports: Import) -> None:
    imports.lay()
    theirs = batons.encode(batons.create("another supervisor", 1))
    imports.bed.objects.put(runfiles.baton(OLD_ID), theirs)
    with pytest.raises(Conflict, match="holds files of another run"):
        imports()
    assert imports.bed.objects.get(runfiles.baton(OLD_ID))[0] == theirs


def test_two_imports_of_one_run_at_once(imports: Import) -> None:
    imports.lay()
    imports.parts.elsewhere.busy.add(OLD_ID)
    with pytest.raises(ImportRunning):
        imports()


def test_a_run_of_this_name_that_starts_at_the_last_moment_keeps_its_baton(
    imports: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports.lay()
    put, theirs = imports.bed.objects.put, batons.encode(batons.create("another supervisor", 1))

    def late(key: str, data: bytes, *more: Any, **named: Any) -> Any:
        if data != theirs and key == runfiles.baton(OLD_ID):
            put(key, theirs)
        return put(key, data, *more, **named)

    monkeypatch.setattr(imports.bed.objects, "put", late)
    with pytest.raises(Conflict, match="has started"):
        imports()
    assert imports.bed.objects.get(runfiles.baton(OLD_ID))[0] == theirs
    assert imports.bed.store.find(OLD_ID) is None
