"""A card that its driver called broken is given to no run before a person says that it is back, whatever restarts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from supervisor.agent.machine.folder import MachineFolder
from supervisor.domain.machines import Machine
from supervisor.ports.provider import CapacityInUse, LaunchRequest, NoCapacity, ProviderUnavailable
from tests.contracts.provider_subject import ref
from tests.providers.gpu_house import given, wants
from tests.providers.local_machines import LocalSubject
from tests.providers.stub_cards import StubCards, uuid

LOST = "its driver says that it is lost"
PAPER = "gpus_set_aside.json"


def sees_bad(house: LocalSubject, request: LaunchRequest, *cards: int) -> Machine:
    """Its agent has seen that these cards are lost."""
    machine = house.up(request)
    MachineFolder(str(house.folder(request))).write_bad_gpus({uuid(card): LOST for card in cards})
    return machine


def release(house: LocalSubject, request: LaunchRequest, machine: Machine) -> None:
    house.provider.release(ref(request, machine.machine_id))


def test_no_later_run_gets_it_and_a_restart_changes_nothing(house: LocalSubject, cards: StubCards) -> None:
    first, second, third = (wants(house, run) for run in ("first", "second", "third"))
    machine = sees_bad(house, first, 0)
    [shown, good] = house.provider.cards()
    assert shown.ours
    assert shown.state.startswith(f"with machine {first.name}, and set aside: {LOST} (seen by machine {first.name}")
    assert good.state == "free"
    release(house, first, machine)
    house.provider = house.fresh()
    house.up(second)
    assert given(house, second) == [uuid(1)]
    with pytest.raises(CapacityInUse, match=rf"GPU 0 is set aside: {LOST}.*spot gpus --back {uuid(0)}"):
        house.provider.launch(third)
    capacity = house.provider.machines().capacity
    assert (capacity.cards, capacity.all_cards) == (0, 2), "a queue asks for no machine that it cannot have"
    assert f"GPU 0 is set aside: {LOST}" in capacity.why_full(third.placement.zone, "l4")


def test_where_no_other_card_is_left_the_run_waits_and_is_told_what_to_do(
    house: LocalSubject, cards: StubCards
) -> None:
    first = wants(house, "first", "l4x2")
    release(house, first, sees_bad(house, first, 0, 1))
    with pytest.raises(NoCapacity) as told:
        house.provider.launch(wants(house, "second"))
    assert "l4 needs 1 GPU, free: 0. GPU 0 is set aside: " in str(told.value)
    assert str(told.value).endswith(f"When it works again: spot gpus --back {uuid(0)}")


def test_a_person_brings_it_back_and_what_was_seen_before_does_not_count_any_more(
    house: LocalSubject, cards: StubCards
) -> None:
    first, second = wants(house, "first"), wants(house, "second")
    machine = sees_bad(house, first, 0)
    assert not house.provider.bring_back(uuid(1)), "nothing is wrong with it"
    assert house.provider.bring_back(uuid(0))
    assert not house.provider.bring_back(uuid(0)), "it is back"
    release(house, first, machine)
    house.up(second)
    assert given(house, second) == [uuid(0)]


def test_while_its_machine_lives_a_bad_card_is_no_place_to_wait_for(house: LocalSubject, cards: StubCards) -> None:
    both = wants(house, "both", "l4x2")
    sees_bad(house, both, 0, 1)
    with pytest.raises(NoCapacity, match="and set aside"):
        house.provider.launch(wants(house, "second"))


def test_a_card_that_the_driver_shows_no_more_is_listed_all_the_same(house: LocalSubject, cards: StubCards) -> None:
    first = wants(house, "first")
    release(house, first, sees_bad(house, first, 0))
    cards.vanish(0)
    lost = house.provider.cards()[-1]
    assert (lost.index, lost.uuid) == (None, uuid(0))
    assert lost.state.endswith("and not shown by the driver")


@pytest.mark.parametrize("text", ["{", "[]", '{"GPU-x": 3}', '{"GPU-x": {"why": "it is lost"}}'])
def test_what_a_machine_wrote_and_cannot_be_read_sets_no_card_aside(
    house: LocalSubject, cards: StubCards, text: str
) -> None:
    first = wants(house, "first")
    machine = house.up(first)
    (house.folder(first) / "bad_gpus.json").write_text(text)
    assert [card.aside for card in house.provider.cards()] == [None, None]
    release(house, first, machine)
    assert [card.state for card in house.provider.cards()] == ["free", "free"]


def test_a_machine_speaks_of_its_own_cards_only(house: LocalSubject, cards: StubCards) -> None:
    sees_bad(house, wants(house, "first"), 1)  # it has card 0
    assert [card.aside for card in house.provider.cards()] == [None, None]


def test_cards_that_cannot_be_read_are_not_set_aside(house: LocalSubject, cards: StubCards) -> None:
    cards.answers(fail=9)
    with pytest.raises(NoCapacity, match="no GPU can be assigned now"):
        house.provider.launch(wants(house, "first"))
    cards.answers()
    house.up(wants(house, "first"))
    assert given(house, wants(house, "first")) == [uuid(0)]


def test_where_it_is_not_known_which_are_set_aside_none_is_given_out(house: LocalSubject, cards: StubCards) -> None:
    paper = house.data_dir / "local" / PAPER
    paper.write_text("{}, or not")
    with pytest.raises(NoCapacity, match="the GPUs that are set aside are unknown"):
        house.provider.launch(wants(house, "first"))
    with pytest.raises(ProviderUnavailable):
        house.provider.bring_back(uuid(0))
    assert paper.read_text() == "{}, or not"


def test_a_machine_goes_also_where_nothing_can_be_written_down(
    house: LocalSubject, cards: StubCards, caplog: pytest.LogCaptureFixture
) -> None:
    first = wants(house, "first")
    machine = sees_bad(house, first, 0)
    (house.data_dir / "local" / PAPER).write_text("{}, or not")
    release(house, first, machine)
    assert not house.folder(first).exists()
    assert f"Machine {first.name} reported a bad GPU, and this was not saved" in caplog.text


def test_the_word_is_kept_where_only_we_can_read_it(house: LocalSubject, cards: StubCards) -> None:
    first = wants(house, "first")
    release(house, first, sees_bad(house, first, 0))
    paper = house.data_dir / "local" / PAPER
    assert os.stat(paper).st_mode & 0o077 == 0
    told = json.loads(paper.read_text())[uuid(0)]
    assert (told["why"], told["machine"], told["run_id"]) == (LOST, first.name, "first")
    assert not Path(house.folder(first)).exists()
