"""spot provider list and show: names, what each can do, and whether its machines can be read."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from supervisor.cli import output
from supervisor.cli.views.profile import danger_lines, profile_lines
from supervisor.domain.machines import Offer, Placement
from supervisor.providers.ssh.presets import names, preset
from supervisor.services.reading.profiles import profile_json

OFFER = Offer(Placement("cloud", "r", "zone-a", "4090", True), 0.4, 0.7)


def profile(name: str) -> dict[str, Any]:
    """As the API sends it."""
    return dict(json.loads(json.dumps(profile_json(preset(name), OFFER))))


LOCAL: dict[str, Any] = {
    "name": "local", "kind": "local", "title": "This computer", "meter": "nothing is billed", "images": False,
    "stores": {"file": "a folder"}, "secrets": "env:NAME", "irreplaceable": False,
    "places": [{"region": "local", "zone": "local-a", "shapes": ["cpu", "l4"]}],
    "listing_age_s": 4.0, "listing_read": True, "breaker": "closed", "profile": profile("generic"),
}  # fmt: skip
CLOUD = {**LOCAL, "name": "cloud", "kind": "gce", "title": "Google Cloud", "images": True, "irreplaceable": True,
         "profile": profile("runpod")}  # fmt: skip


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


def test_a_zone_shows_only_what_differs(api, spot) -> None:
    general = profile("runpod")
    facts = [fact if fact["name"] != "detach" else {**fact, "text": "a scope"} for fact in general["facts"]]
    places = [
        {**LOCAL["places"][0], "zone": "gpu1", "profile": {**general, "facts": facts}},
        {**LOCAL["places"][0], "zone": "gpu2", "profile": general},
    ]
    api.respond("GET", "/v1/providers", {"providers": [{**CLOUD, "places": places}]})
    lines = spot("provider", "show", "cloud").lines
    at = lines.index("In gpu1, where that differs:")
    assert lines[at + 1] == "Facts:"
    assert lines[at + 2].endswith("a scope")
    assert len(lines) == at + 3
    assert lines.count("What survives which end:") == 1


def test_its_profile_says_what_survives_what_is_billed_and_where_that_was_read(spot) -> None:
    lines = spot("provider", "show", "cloud").lines
    assert "Dangers, at the price of 4090 spot in zone-a:" in lines
    assert "! Bills $0.40/h until you end it (terminate); nothing stops it by itself." in lines
    matrix = next(line for line in lines if line.startswith("volume "))
    assert " ".join(matrix.split()) == (
        "volume yes verify first yes verify first unknown unknown documented 2026-11-26"
    )
    assert "  volume: /workspace" in lines
    stop = next(line for line in lines if line.startswith("stop  "))
    assert "partly" in stop
    assert "$0.20 per GB and month" in stop
    assert "  terminate leaves volume?" in lines
    assert "  terminate by hand: runpodctl remove pod {name}" in lines
    facts = [line for line in lines if line.startswith("from the signal to the kill")]
    assert [fact.split()[-4:] for fact in facts] == [["documented", "2026-06-20", "5", "s"]]
    assert any(line.endswith("unknown; measure it: nvidia-smi; it differs between the hosts") for line in lines)


def test_a_zone_with_a_profile_of_its_own_gets_its_own_part(api, spot) -> None:
    (place,) = LOCAL["places"]
    local = {**LOCAL, "places": [{**place, "profile": profile("vast")}, {**place, "profile": None}]}
    api.respond("GET", "/v1/providers", {"providers": [local]})
    text = spot("provider", "show", "local").out
    assert text.count("What survives which end:") == 2
    assert "\nIn local-a, where that differs:\n" in text
    assert "vastai destroy instance" in text


def test_programs_get_every_note(spot) -> None:
    shown = json.loads(spot("provider", "show", "cloud", "-o", "json").out)
    assert shown["profile"] == profile("runpod")
    assert all(fact["note"] for fact in shown["profile"]["facts"])


@pytest.mark.parametrize("name", names())
def test_nothing_is_cut_in_a_terminal_of_a_hundred_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "terminal_columns", lambda: 100)
    lines = list(map(click.unstyle, profile_lines(profile(name))))
    assert max(map(len, lines)) <= 100
    assert not [line for line in lines if "…" in line]
    text = "\n".join(lines)
    shown = profile(name)
    assert all(tier["name"] in text for tier in shown["tiers"])
    assert all(verb["verb"] in text for verb in shown["verbs"])
    assert all(fact["label"] in text for fact in shown["facts"])


def test_a_text_from_outside_moves_no_cursor() -> None:
    evil = profile("runpod")
    for clock in evil["clocks"]:
        clock["text"] = "\x1b[2J\x1b]0;title\x07bills\nnothing"
    for fact in evil["facts"]:
        fact["text"] = "\x1b[2Jfree"
    lines = danger_lines(evil) + profile_lines(evil)
    assert not [line for line in map(click.unstyle, lines) if "\x1b" in line or "\n" in line]


def test_a_supervisor_without_profiles_is_shown_as_before(api, spot) -> None:
    old = {key: value for key, value in LOCAL.items() if key != "profile"}
    api.respond("GET", "/v1/providers", {"providers": [old]})
    text = spot("provider", "show", "local").out
    assert "nothing is billed" in text
    assert "survives" not in text


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
