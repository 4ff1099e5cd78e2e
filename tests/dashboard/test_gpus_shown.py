"""Every page shows a placement as zone and GPU, with the machine type beside it."""

from __future__ import annotations

import pytest

from tests.dashboard.looking import Looking
from tests.services.bed import Bed
from tests.services.test_machines import put

RUN = "/ui/runs/digits-7"


@pytest.fixture
def house(bed: Bed) -> Looking:
    """digits-7 trains on a machine with a card."""
    bed.submit("digits-7")
    bed.train("digits-7")
    put(bed, "m-a1", "digits-7", machine_id="id-1")
    bed.provider.gpu_words = {"cpu": "8 × A100 80GB"}
    return Looking(bed.services, now=bed.clock.now)


def test_a_row_names_the_gpu_and_keeps_the_machine_type_at_hand(house: Looking, bed: Bed) -> None:
    where = house.page("/ui/runs").one("td", class_="where")
    assert where.text == "Where local-a 8 × A100 80GB"
    assert where.one("span", class_="gpu").attributes["title"] == "cpu"
    bed.provider.gpu_words.clear()
    assert house.page("/ui/runs").one("td", class_="where").text == "Where local-a cpu"


def test_the_page_of_a_run_names_both(house: Looking, bed: Bed) -> None:
    page = house.page(RUN)
    assert "local-a · 8 × A100 80GB (cpu) · spot" in page.one(id="run-facts").text
    (attempt,) = page.one(id="attempts-table").one("tbody").all("tr")
    assert attempt.all("td")[0].text == "local-a · 8 × A100 80GB cpu"
    assert "#1 local-a · 8 × A100 80GB" in page.text
    bed.provider.gpu_words.clear()
    bare = house.page(RUN)
    assert "local-a · cpu · spot" in bare.one(id="run-facts").text
    assert bare.one(id="attempts-table").one("tbody").all("td")[0].text == "local-a cpu"


def test_zones_and_machines_name_both(house: Looking, bed: Bed) -> None:
    def told(path: str, column: int) -> str:
        return house.page(path).all("table")[0].one("tbody").all("tr")[0].all("td")[column].text

    assert told("/ui/zones", 1) == "8 × A100 80GB cpu · spot"
    assert told("/ui/machines", 3) == "8 × A100 80GB cpu · spot"
    bed.provider.gpu_words.clear()
    assert told("/ui/zones", 1) == "cpu spot"
    assert told("/ui/machines", 3) == "cpu spot"


def test_the_words_are_text_and_nothing_else(house: Looking, bed: Bed) -> None:
    bed.provider.gpu_words = {"cpu": "<b>L4</b>"}
    for path in ("/ui/runs", RUN, "/ui/zones", "/ui/machines"):
        page = house.page(path)
        assert "<b>L4</b>" in page.text
        assert not [one for one in page.all("b") if one.text == "L4"]
