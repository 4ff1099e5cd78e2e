"""A scenario with an unknown word, or an expectation that is not met, fails and says where and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.expectations import CHANGE_BY_TIME, FACTS, WORLD
from tests.scenarios.play import play
from tests.scenarios.script import ScenarioError

STORY = "# A story.\n"


def played(folder: Path, *lines: str, story: str = STORY) -> str:
    """The text of the failure."""
    path = folder / "story.txt"
    path.write_text(story + "\n".join(lines), encoding="utf-8")
    with pytest.raises((AssertionError, ScenarioError)) as failure:
        play(path, folder)
    return str(failure.value)


def test_an_expectation_that_does_not_come_shows_the_line_and_the_history(folder: Path) -> None:
    text = played(folder, "submit digits zones=a", "wait 2min", "expect digits status=completed attempts=1")
    assert "story.txt:4: expect digits status=completed attempts=1" in text
    assert "status is" in text
    assert "expected = completed" in text
    assert "attempts is" not in text
    assert "Training in a." in text


def test_a_wait_that_is_over_says_what_is_missing(folder: Path) -> None:
    text = played(folder, "submit digits zones=a", "wait until digits status=completed within=1min")
    assert "not within 60 s: status is" in text


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("dance digits", "there is no verb 'dance'"),
        ("cloud rains digits", "'rains' is none of"),
        ("submit digits zones=a colour=red", "a submit has no option 'colour'"),
        ("wait soon", "'soon' is not a time"),
        ("expect nobody status=running", "there is no run nobody"),
        ("expect world colour=red", "there is no fact 'colour'"),
        ("expect events runs_started=1", "there is no fact 'runs_started'"),
        ("agent digits silent", "digits has no machine yet"),
        ("supervisor dies laughing", "the supervisor cannot die 'laughing'"),
        ("refused CONFLICT wait 1s", "was not refused with CONFLICT"),
        ("faults in the stars", "no error contains"),
    ],
)
def test_what_does_not_exist_is_an_error(line: str, complaint: str, folder: Path) -> None:
    assert complaint in played(folder, line)


def test_a_file_without_a_story_is_an_error(folder: Path) -> None:
    assert "comment that describes its story" in played(folder, "wait 1s", story="")


def test_an_error_that_the_loop_survives_fails_the_scenario(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a rule's bug")

    monkeypatch.setattr("supervisor.reconciler.tick.decide", broken)
    assert "a rule's bug" in played(folder, "submit digits zones=a", "wait 2min")


def test_two_machines_of_one_run_for_too_long_fail_the_scenario(folder: Path) -> None:
    lines = ("submit digits zones=a,b steps=9000", "wait 3min", "agent digits silent", "cloud immortal digits")
    assert "digits has had 2 machines" in played(folder, *lines, "wait 1h")


def test_a_wait_looks_each_second_for_every_fact_that_reads_the_clock() -> None:
    """Broken variant: a new fact about time, for which a wait rests too long."""
    by_time = {name for name, fact in (FACTS | WORLD).items() if {"now", "clock"} & set(fact.__code__.co_names)}
    assert by_time == set(CHANGE_BY_TIME)
