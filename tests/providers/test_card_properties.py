"""Whatever happens in whatever order: no card ever serves two living machines, and none is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from supervisor.host import cards as cards_module
from supervisor.host.cards import Cards
from supervisor.host.inspector import STARTING, Survey
from supervisor.providers.local.provider import CardAdmission
from tests.properties import is_campaign
from tests.providers.cards_world import World, cards_world

NUMBERS = st.integers(0, 3)
STEPS = st.one_of(
    st.tuples(st.just("launch"), NUMBERS, st.sampled_from(["", "", "before start", "after start"])),
    st.tuples(st.sampled_from(["speak", "speak", "die", "release"]), NUMBERS),
    st.tuples(st.sampled_from(["restart", "appear"])),
    st.tuples(st.just("stranger"), st.integers(0, 1)),
)
Break = Callable[[pytest.MonkeyPatch], None]


def play(story: list[tuple[object, ...]]) -> None:
    with cards_world() as world:
        for name, *details in story:
            getattr(world, str(name))(*details)
            world.check()


def property_of(examples: int, *phases: Phase) -> Callable[[], None]:
    @settings(max_examples=examples, database=None, derandomize=True, report_multiple_bugs=False, phases=phases)
    @given(st.lists(STEPS, max_size=14))
    def holds(story: list[tuple[object, ...]]) -> None:
        play(story)

    return holds


def test_no_card_serves_two_living_machines() -> None:
    property_of(150, Phase.generate, Phase.shrink)()


def a_machine_that_starts_has_no_card(patch: pytest.MonkeyPatch) -> None:
    real = Cards._taken

    def taken(self: Cards, survey: Survey) -> dict[str, str]:
        starting = {m.job.name for m in survey.machines if m.state == STARTING}
        return {card: name for card, name in real(self, survey).items() if name not in starting}

    patch.setattr(Cards, "_taken", taken)


def what_was_just_started_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    real = Cards._taken

    def taken(self: Cards, survey: Survey) -> dict[str, str]:
        self._started = lambda folder: False
        return real(self, survey)

    patch.setattr(Cards, "_taken", taken)


def a_launch_that_was_cut_off_keeps_its_cards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CardAdmission, "renew", lambda *_: None)


def strangers_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cards_module, "_held", lambda reading, owners: "")


def every_folder_keeps_its_cards(patch: pytest.MonkeyPatch) -> None:
    real = Cards._taken

    def taken(self: Cards, survey: Survey) -> dict[str, str]:
        jobs = [folder.job() for folder in self._folders.all()]
        return {card: job.name for job in jobs if job for card in job.gpu_ids or ()} | real(self, survey)

    patch.setattr(Cards, "_taken", taken)


# Each broken rule with the shortest story that catches it. `make campaign` looks for one by chance, too.
CAUGHT: dict[Break, list[tuple[object, ...]]] = {
    a_machine_that_starts_has_no_card: [("launch", 0, ""), ("restart",), ("launch", 1, "")],
    what_was_just_started_is_not_counted: [("launch", 0, ""), ("launch", 1, "")],
    a_launch_that_was_cut_off_keeps_its_cards: [("launch", 0, "before start"), ("stranger", 0), ("launch", 0, "")],
    strangers_do_not_matter: [("stranger", 0), ("launch", 0, "")],
    every_folder_keeps_its_cards: [("launch", 0, "before start"), ("launch", 1, "")],
}


@pytest.mark.parametrize("broken", CAUGHT)
def test_a_broken_rule_is_caught(monkeypatch: pytest.MonkeyPatch, broken: Break) -> None:
    play(CAUGHT[broken])
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        play(CAUGHT[broken])
    if is_campaign():
        with pytest.raises(AssertionError):
            property_of(400, Phase.generate)()  # no need to shrink the story that caught it


def test_stories_reach_machines_with_cards() -> None:
    """Else the property would hold of nothing."""
    with cards_world() as world:
        _two_machines(world)
        assert len(world.owned()) == 2


def _two_machines(world: World) -> None:
    for number in (0, 2):
        world.launch(number, "")
        world.appear()
        world.speak(number)
        world.check()
