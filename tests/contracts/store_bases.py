"""The store's contract for bases: a name is given once, a change is guarded, and a deleted one keeps only its name."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.bases import Base, BaseStatus, DiskImage
from supervisor.domain.events import Event, EventKind
from supervisor.ports.store import Store
from tests.contracts.store_values import NOW

DRAFT = Base(0, "", "alice", "local", ("pip install timm",), BaseStatus.READY, NOW, NOW, ready_at=NOW)
EVENT = Event(EventKind.BASE, "A base was created.", "alice")
IMAGE = DiskImage("spot-base-1-torch-v1", "id", "us-east1-b", "spot-1", NOW, 4_000, 100)


def created(store: Store, family: str = "torch") -> Base:
    return store.bases.create(family, DRAFT, EVENT, NOW)


def deleted(store: Store, base: Base) -> Base | None:
    return store.bases.change(replace(base, status=BaseStatus.DELETED, commands=()), None, NOW)


class BasesSuite:
    def test_each_base_of_a_family_gets_the_next_name(self, store: Store, reopened: Store) -> None:
        first, second, other = created(store), created(reopened), created(store, "jax")
        assert [base.name for base in (first, second, other)] == ["torch-v1", "torch-v2", "jax-v1"]
        assert reopened.bases.find("torch-v1") == first
        assert [base.name for base in store.bases.all()] == ["jax-v1", "torch-v2", "torch-v1"]
        assert {base.name for base in store.bases.family("torch")} == {"torch-v1", "torch-v2"}
        told = [each for each in store.events(None, 0, 99) if each.event.kind == EventKind.BASE]
        assert (told[0].owner, told[0].event.data["base"]) == ("alice", "torch-v1")

    def test_of_two_changes_one_wins_and_everything_is_kept(self, store: Store, reopened: Store) -> None:
        base = created(store)
        imaging = store.bases.change(replace(base, status=BaseStatus.IMAGING, image=IMAGE, run_id="r"), EVENT, NOW)
        assert imaging is not None
        assert reopened.bases.change(replace(base, detail="late"), EVENT, NOW) is None
        assert reopened.bases.find("torch-v1") == imaging
        assert len([each for each in store.events(None, 0, 99) if each.event.kind == EventKind.BASE]) == 2

    def test_a_name_is_never_given_twice_and_only_the_newest_deleted_one_is_kept(self, store: Store) -> None:
        bases = [created(store) for _ in range(3)]
        for base in reversed(bases):
            assert deleted(store, base) is not None
        assert store.bases.all() == store.bases.family("torch") == []
        kept = [store.bases.find(base.name) for base in bases]
        assert [base is not None for base in kept] == [False, False, True]
        assert created(store).name == "torch-v4"
