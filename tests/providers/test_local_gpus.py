"""Each machine on this computer has its own cards, whatever is cut off between choosing them and starting it."""

from __future__ import annotations

import json

import pytest

from supervisor.host.starting import Agents
from supervisor.ports.provider import CapacityInUse, ProviderUnavailable
from tests.contracts.provider_subject import ref
from tests.providers.gpu_house import given, visible, wants
from tests.providers.local_machines import LocalSubject
from tests.providers.stub_cards import StubCards, uuid
from tests.providers.test_local_crashes import Killed, die


def test_each_machine_has_its_own_card_until_it_is_released(house: LocalSubject) -> None:
    first, second, third = (wants(house, run) for run in ("first", "second", "third"))
    machines = [house.up(request) for request in (first, second)]
    assert [given(house, request) for request in (first, second)] == [[uuid(0)], [uuid(1)]]
    assert [visible(house, request) for request in (first, second)] == [uuid(0), uuid(1)]
    with pytest.raises(CapacityInUse) as told:
        house.provider.launch(third)
    assert str(told.value) == (
        f"l4 needs 1 GPU, free: 0. GPU 0 is with machine {first.name}; GPU 1 is with machine {second.name}"
    )
    assert not house.folder(third).exists()
    house.provider.release(ref(first, machines[0].machine_id))
    house.up(third)
    assert given(house, third) == [uuid(0)]


def test_a_shape_may_have_several_and_gets_all_or_none(house: LocalSubject) -> None:
    both, one = wants(house, "both", "l4x2"), wants(house, "one")
    machine = house.up(one)
    with pytest.raises(CapacityInUse, match=f"l4x2 needs 2 GPUs, free: 1. GPU 0 is with machine {one.name}"):
        house.provider.launch(both)
    house.provider.release(ref(one, machine.machine_id))
    house.up(both)
    assert given(house, both) == [uuid(0), uuid(1)]
    assert visible(house, both) == f"{uuid(0)},{uuid(1)}"


def test_the_listing_tells_the_cards_that_our_machines_leave(house: LocalSubject) -> None:
    def free() -> tuple[int | None, int | None]:
        capacity = house.provider.machines().capacity
        assert capacity is not None
        return capacity.cards, capacity.all_cards

    assert free() == (2, None), "not read yet: room for one machine, whose launch reads"
    one, two = wants(house, "one"), wants(house, "two")
    machine = house.up(one)
    assert free() == (1, 2)
    house.up(two)
    assert free() == (0, 2)
    house.provider.release(ref(one, machine.machine_id))
    assert free() == (1, 2)


def test_a_stranger_beside_our_machine_is_counted_and_seen_to_go(house: LocalSubject, cards: StubCards) -> None:
    def held() -> str:
        capacity = house.provider.machines().capacity
        assert capacity is not None
        return capacity.why_full("local-a", "l4")

    cards.hold(1, 9000)
    one = wants(house, "one")
    machine = house.up(one)
    assert held().startswith("l4 needs 1 GPU, and our own machines leave 0 free. GPU 1 is held: 8.8 GiB of it")
    cards.free(1)
    assert held(), "the tool is not asked at every look"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("supervisor.host.cards.time.monotonic", lambda: float("inf"))
        assert held() == ""
    house.up(wants(house, "two"))
    assert held()
    house.provider.release(ref(one, machine.machine_id))
    assert held() == ""


def test_a_machine_without_cards_sees_none_whatever_the_service_sees(
    house: LocalSubject, monkeypatch: pytest.MonkeyPatch, cards: StubCards
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    request, with_card = wants(house, "plain", "cpu"), wants(house, "with-card")
    house.up(with_card)
    assert visible(house, with_card) == uuid(0)
    cards.answers(fail="nobody asks for the sake of a CPU")
    house.up(request)
    assert given(house, request) == []
    assert visible(house, request) == ""


def test_where_no_shape_promises_cards_nothing_is_touched(local: LocalSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    request = local.request()
    local.up(request)
    assert "gpu_ids" not in json.loads((local.folder(request) / "job.json").read_text())
    assert visible(local, request) == "7"


def test_a_repeated_launch_keeps_its_card(house: LocalSubject) -> None:
    first, second = wants(house, "first"), wants(house, "second")
    one = house.up(first)
    house.up(second)
    house.provider.release(ref(first, one.machine_id))
    house.provider = house.fresh()
    house.provider.launch(second)
    assert given(house, second) == [uuid(1)]


def test_a_launch_that_was_cut_off_gets_a_card_that_is_free_when_it_is_repeated(
    house: LocalSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon was killed between choosing and starting, and its place was not kept for ever."""
    first, second, third = (wants(house, run) for run in ("first", "second", "third"))
    with monkeypatch.context() as patch:
        patch.setattr(Agents, "start", die)
        with pytest.raises(Killed):
            house.provider.launch(first)
    assert given(house, first) == [uuid(0)]
    house.provider = house.fresh()
    house.up(second)
    assert given(house, second) == [uuid(0)]
    house.up(first)
    assert given(house, first) == [uuid(1)]
    assert visible(house, first) == uuid(1)
    with monkeypatch.context() as patch:
        patch.setattr(Agents, "start", die)
        with pytest.raises(CapacityInUse):
            house.provider.launch(third)


def test_a_launch_that_was_cut_off_and_finds_no_card_leaves_nothing(
    house: LocalSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = wants(house, "first")
    with monkeypatch.context() as patch:
        patch.setattr(Agents, "start", die)
        with pytest.raises(Killed):
            house.provider.launch(first)
    house.up(wants(house, "both", "l4x2"))
    with pytest.raises(CapacityInUse, match="l4 needs 1 GPU, free: 0"):
        house.provider.launch(first)
    assert not house.folder(first).exists()


def test_an_agent_that_was_just_started_has_its_card_though_nobody_sees_it_yet(
    house: LocalSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the moment of its exec a process carries no mark."""
    first = wants(house, "first", wait_for="go")
    # Ended before the test fixture looks for processes to end, by this very marker.
    with monkeypatch.context() as patch:
        patch.setattr("supervisor.host.machines.START_WAIT_S", 0.0)
        patch.setattr("supervisor.host.processes.MARKER", b"NOBODY_CARRIES_THIS=")
        with pytest.raises(ProviderUnavailable, match="is being started again"):
            house.provider.launch(first)
        with pytest.raises(CapacityInUse, match=f"GPU 0 is with machine {first.name}"):
            house.provider.launch(wants(house, "both", "l4x2"))
