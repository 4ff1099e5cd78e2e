"""Capacity advice reorders the offers, removes none, and changes nothing where the API does not respond."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.providers.gce_subject import ZONES, GceSubject
from tests.waiting import wait_for


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[GceSubject]:
    subject = GceSubject(tmp_path)
    subject.config = replace(subject.config, capacity_advice=True)
    subject.provider = subject.make()
    yield subject
    subject.close()


def zones(subject: GceSubject, shape: str = "t4", spot: bool = True) -> list[str]:
    return [
        offer.placement.zone
        for offer in subject.provider.offers()
        if offer.placement.shape == shape and offer.placement.spot == spot
    ]


def asked(subject: GceSubject) -> int:
    return subject.compute.count("POST", "/advice/capacity$")


def test_zones_come_in_three_classes_and_keep_their_order_within_one(subject: GceSubject) -> None:
    subject.compute.advice.obtainability = {ZONES[0]: 0.1, ZONES[1]: 0.5, ZONES[2]: 0.95}
    assert zones(subject) == list(ZONES)
    subject.provider._advice.refresh()
    assert zones(subject) == [ZONES[2], ZONES[1], ZONES[0]]
    assert zones(subject, spot=False) == list(ZONES)  # the advice is about spot machines
    assert len(subject.provider.offers()) == 15  # three of them flex-start
    subject.compute.advice.obtainability = {ZONES[0]: 0.75, ZONES[1]: 0.99, ZONES[2]: 0.8}
    subject.provider._advice.refresh()
    assert zones(subject) == list(ZONES)  # all good: no dance between them


def test_it_is_asked_while_machines_are_asked_for_and_not_more_than_every_ten_minutes(subject: GceSubject) -> None:
    subject.provider.machines()
    subject.provider.offers()
    assert asked(subject) == 0
    subject.provider.launch(subject.request())
    wait_for(lambda: asked(subject) == 6, what="the advice to be asked for")
    subject.provider.launch(subject.request(run="other"))
    subject.clock.advance(500.0)
    subject.provider.launch(subject.request(run="third"))
    assert asked(subject) == 6
    subject.clock.advance(200.0)
    subject.provider.launch(subject.request(run="fourth"))
    wait_for(lambda: asked(subject) == 12, what="the advice to be asked for again")


def test_old_advice_is_none(subject: GceSubject) -> None:
    subject.compute.advice.obtainability = {ZONES[0]: 0.1}
    subject.provider._advice.refresh()
    assert zones(subject)[0] == ZONES[1]
    subject.clock.advance(3600.0)
    assert zones(subject) == list(ZONES)


def test_where_there_is_no_such_api_one_line_says_so(subject: GceSubject, caplog: pytest.LogCaptureFixture) -> None:
    subject.compute.advice.offered = False
    with caplog.at_level(logging.WARNING, "supervisor"):
        for _ in range(3):
            subject.provider._advice.refresh_soon()
            wait_for(lambda: caplog.records, what="a line in the log")
            subject.clock.advance(700.0)
    assert len(caplog.records) == 1
    assert "no capacity advice" in caplog.text
    assert asked(subject) == 1
    assert zones(subject) == list(ZONES)
