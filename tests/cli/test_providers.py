"""spot provider list and show: names, what each can do, and whether its machines can be read."""

from __future__ import annotations

from typing import Any

import pytest

LOCAL: dict[str, Any] = {
    "name": "local", "kind": "local", "title": "This computer", "meter": "nothing is billed", "images": False,
    "stores": {"file": "a folder"}, "secrets": "env:NAME", "irreplaceable": False,
    "places": [{"region": "local", "zone": "local-a", "shapes": ["cpu", "l4"]}],
    "listing_age_s": 4.0, "listing_read": True, "breaker": "closed",
}  # fmt: skip
CLOUD = {**LOCAL, "name": "cloud", "kind": "gce", "title": "Google Cloud", "images": True, "irreplaceable": True}


@pytest.fixture(autouse=True)
def _two_providers(api) -> None:
    api.respond("GET", "/v1/providers", {"providers": [LOCAL, CLOUD]})


def test_the_list_keeps_the_order(spot) -> None:
    title, first, second = spot("provider", "list").lines
    assert title.split()[:2] == ["NAME", "KIND"]
    assert first.split()[:2] == ["local", "local"]
    assert "4 s ago" in first
    assert second.split()[:2] == ["cloud", "gce"]
    assert spot("provider", "list", "-o", "name").lines == ["local", "cloud"]


def test_one_is_shown_whole(spot) -> None:
    text = spot("provider", "show", "cloud").out
    assert "cloud (gce): Google Cloud" in text
    assert "commands run in a container image" in text
    assert "irreplaceable: you approve each release" in text
    assert "local-a in local: cpu, l4" in text
    assert "file: a folder" in text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"listing_read": False}, "unreadable; 4 s ago"),
        ({"listing_read": False, "listing_age_s": None}, "unreadable; none yet"),
        ({"breaker": "open"}, "breaker open; 4 s ago"),
        ({"breaker": None, "listing_read": None, "listing_age_s": None}, "another supervisor leads"),
    ],
)
def test_what_is_wrong_comes_first(api, spot, change: dict[str, Any], text: str) -> None:
    api.respond("GET", "/v1/providers", {"providers": [{**LOCAL, **change}]})
    assert text in spot("provider", "list").lines[1]


def test_an_unknown_name_is_refused_with_the_names_that_there_are(spot) -> None:
    ended = spot("provider", "show", "moon")
    assert ended.code == 5
    assert "There is no provider moon. This supervisor has local, cloud." in ended.err
