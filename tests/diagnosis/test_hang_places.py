"""The dumps of real hangs in the corpus: where each one waits, by its threads alone and by its stored document."""

from dataclasses import replace
from typing import Any

from supervisor.contract.thread_places import PLACES, place_of
from supervisor.lifecycle.diagnosis.diagnose import diagnose
from supervisor.lifecycle.diagnosis.reading import of_document
from tests.diagnosis.cases import load


def dumped() -> dict[str, tuple[str, dict[str, Any]]]:
    """Case -> (its place, its document)."""
    cases = {}
    for case in load("hangs"):
        stall = (case.document["agent"] or {}).get("stall") or {}
        if stall.get("threads") and case.expected.rule.startswith("HANG."):
            cases[case.name] = (case.expected.rule.partition(".")[2], case.document)
    return cases


def test_the_threads_of_each_real_hang_show_its_place() -> None:
    cases = dumped()
    assert {place for place, _ in cases.values()} >= {*PLACES} - {"gpu_kernel", "disk"}
    wrong = {
        name for name, (place, document) in cases.items() if place_of(document["agent"]["stall"]["threads"]) != place
    }
    assert not wrong


def test_a_document_without_signs_still_names_the_place_unless_something_moved() -> None:
    for name, (place, document) in dumped().items():
        agent = {name: value for name, value in document["agent"].items() if name != "signs"}
        stall = {**agent["stall"], "without_progress_s": 200.0}
        read = of_document({**document, "agent": {**agent, "stall": stall}, "cause": "stalled", "exit": None})
        assert diagnose(replace(read, exit=None)).rule == f"HANG.{place}", name
        moved = {**agent, "stall": {**stall, "moves": ["cpu"]}}
        assert of_document({**document, "agent": moved, "cause": "stalled"}).last("hang.place") is None, name
