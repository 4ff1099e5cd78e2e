"""The supervisor's view of the folder: the same objects as the agent's, in the words of the port."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.contract.stores import promise
from supervisor.contract.stores.folder import FolderStore
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.ports import objectstore as port


def test_supervisor_and_agent_see_each_others_objects(tmp_path: Path) -> None:
    store = FilesystemStore.create(tmp_path / "objects")
    beside_the_training = FolderStore.at(store.url)
    beat = beside_the_training.put("beats/a", b"{}", metadata={"beat": "{}"})
    (page,) = store.pages("beats/")
    assert page.objects == (port.ObjectInfo("beats/a", 2, beat.generation, beat.updated, {"beat": "{}"}),)
    assert store.url == beside_the_training.url == FilesystemStore.at(store.url).url
    assert store.delete("beats/a", beat.generation)
    with pytest.raises(promise.PreconditionFailed):
        beside_the_training.put("beats/a", b"{}", beat.generation)


def test_a_refusal_keeps_its_text_and_its_reason(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(port.StoreUnavailable, match="neither empty nor an object store"):
        FilesystemStore.create(tmp_path)
    with pytest.raises(port.StoreUnavailable, match="is its disk mounted") as caught:
        FilesystemStore(tmp_path / "nowhere").put("beats/a", b"")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    store = FilesystemStore.create(tmp_path / "objects")
    with pytest.raises(port.PreconditionFailed, match=r"'beats/a' is of generation 0, not 7"):
        store.put("beats/a", b"", if_generation="7")
    with pytest.raises(port.ObjectMissing, match=r"beats/a"):
        store.stat("beats/a")
