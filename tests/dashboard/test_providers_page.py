"""The providers page, and the same parts on a run's page of its spec: words of the API, each with source and day."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.profile import Fact, Source
from supervisor.providers.ssh.presets import preset
from tests.dashboard.document import Element
from tests.dashboard.looking import Looking
from tests.services.bed import Bed

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def rented(bed: Bed) -> Looking:
    bed.provider.shown_profile = preset("runpod")
    return Looking(bed.services, now=bed.clock.now)


def cells(row: Element) -> list[str]:
    return [" ".join(cell.text.split()) for cell in row.all("td")]


def row_of(page: Element, name: str) -> Element:
    (row,) = [row for row in page.all("tr") if row.all("th") and row.all("th")[0].text.startswith(name)]
    return row


def test_the_pages_of_zones_and_machines_lead_there(rented: Looking) -> None:
    for path in ("/ui/zones", "/ui/machines"):
        links = [link for link in rented.page(path).all("a") if link.attributes.get("href") == "/ui/providers"]
        assert len(links) == 1, path


def test_the_dangers_come_first(rented: Looking) -> None:
    page = rented.page("/ui/providers")
    (notice,) = page.all("div", class_="notice")
    assert "Dangers, at the price of cpu spot in local-a" in notice.text
    texts = [item.text for item in notice.all("li")]
    assert texts[0] == "Bills $0.10/h until you end it (terminate); nothing stops it by itself."
    assert len(texts) == 6


def test_the_matrix_says_in_words_what_survives_with_source_and_day(rented: Looking) -> None:
    page = rented.page("/ui/providers")
    volume = row_of(page, "volume")
    assert "/workspace" in volume.all("th")[0].text
    assert cells(volume)[:4] == [
        "✔ yes documented 2026-11-26",
        "! verify first documented 2026-11-26",
        "✔ yes documented 2026-11-26",
        "! verify first documented 2026-11-26",
    ]
    assert cells(volume)[5] == "unknown measure it: df -i /workspace"


def test_each_verb_says_what_it_leaves_and_what_that_costs(rented: Looking) -> None:
    page = rented.page("/ui/providers")
    by, stops, undo, price, left = cells(row_of(page, "stop"))
    assert by == "a command"
    assert stops.startswith("partly documented")
    assert undo.startswith("yes")
    assert price.startswith("$0.20 per GB and month")
    assert left == "volume"


def test_every_fact_is_there_and_an_unknown_one_says_how_to_measure_it(rented: Looking) -> None:
    (facts,) = [part for part in rented.page("/ui/providers").all("details") if "Every fact" in part.text]
    text = " ".join(facts.text.split())
    assert "from the signal to the kill 5 s documented 2026-06-20" in text
    assert "newest CUDA of the driver unknown measure it: nvidia-smi" in text


def test_a_zone_that_differs_has_a_part_of_its_own(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    general = bed.provider.profile()
    relayed = replace(general, store_reach=Fact("relay", Source.MEASURED, "2026-11-25", "tried"))
    monkeypatch.setattr(bed.provider, "profile", lambda zone="": relayed if zone == "local-b" else general)
    page = Looking(bed.services, now=bed.clock.now).page("/ui/providers")
    assert [" ".join(part.text.split()) for part in page.one("main").all("h2")] == [
        "local local: This computer",
        "local in local-b local: This computer",
    ]
    assert page.text.count("Nothing is billed, and nothing is deleted by itself.") == 2


def test_a_run_shows_what_survives_before_it_has_a_machine(bed: Bed, rented: Looking) -> None:
    bed.submit("digits-7", {"command": "x", "limits": {"machine_max_s": 3600}})
    page = rented.page("/ui/runs/digits-7/spec")
    assert page.one(id="profile-title").text.endswith("RunPod, cpu spot in local-a")
    assert "Bills $0.10/h until you end it (terminate)" in page.text
    assert cells(row_of(page, "container disk"))[3].startswith("✗ no")


def test_a_run_without_an_offer_shows_no_machine(bed: Bed, rented: Looking) -> None:
    bed.submit("digits-7")
    bed.provider.offered = ()
    page = rented.page("/ui/runs/digits-7/spec")
    assert "Its machine" not in page.text


def test_texts_from_outside_are_only_text(bed: Bed, rented: Looking) -> None:
    shown = preset("runpod")
    tiers = tuple(replace(tier, name=EVIL, paths=(EVIL,)) for tier in shown.tiers)
    verbs = tuple(replace(verb, command=EVIL) for verb in shown.verbs)
    unpaid = Fact(EVIL, Source.USER, "2026-11-25", f'" {EVIL}')
    bed.provider.shown_profile = replace(shown, title=EVIL, tiers=tiers, verbs=verbs, unpaid=unpaid)
    bed.submit("digits-7")
    for path in ("/ui/providers", "/ui/runs/digits-7/spec"):
        page = rented.page(path)
        assert not page.all("img")
        assert EVIL in page.text
