"""The files of a run as a page: sizes, checksums, downloads, pages; files that do not exist yet or no longer."""

from __future__ import annotations

import pytest

from supervisor.dashboard.pages import evidence
from supervisor.domain.run import Files
from supervisor.domain.status import Status
from tests.dashboard.looking import Looking
from tests.services.bed import Bed
from tests.services.test_files import ID, MODEL, furnished

PAGE = f"/ui/runs/{ID}/files"


def test_each_file_with_what_is_known_of_it(bed: Bed, looking: Looking) -> None:
    furnished(bed)
    page = looking.page(PAGE)
    rows = {row.one("th").text: row for row in page.one("tbody").all("tr")}
    assert list(rows) == [
        "checkpoints/100-a1/state", "checkpoints/50-a1/state", "evidence/a1.json", "logs/a1/00000000.log",
        "results/g1/model.npz", "results/g1/plots/a.png",
    ]  # fmt: skip
    model = rows["results/g1/model.npz"]
    address = model.one("a").attributes["href"]
    assert looking.get(address).content == MODEL
    assert len(model.one("span").attributes["title"]) == 64
    assert model.one("time")
    assert "The results are verified" in page.text
    only = looking.page(f"{PAGE}?kind=logs")
    assert [row.one("th").text for row in only.one("tbody").all("tr")] == ["logs/a1/00000000.log"]
    assert only.one("a", aria_current="page", class_="button").text == "Logs"


def test_many_files_come_in_pages(bed: Bed, looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    furnished(bed)
    monkeypatch.setattr(evidence, "PAGE_SIZE", 4)
    seen, address = [], PAGE
    while address:
        page = looking.page(address)
        seen += [row.one("th").text for row in page.one("tbody").all("tr")]
        address = next((one.attributes["href"] for one in page.all("a", rel="next")), "")
    assert len(seen) == len(set(seen)) == 6


def test_names_are_strangers_words(bed: Bed, looking: Looking) -> None:
    furnished(bed, finished=False)
    bed.objects.put(f"runs/{ID}/results/g1/a b?<i>#%2e.txt", b"odd")
    page = looking.page(f"{PAGE}?kind=results")
    found = next(one for one in page.all("a") if "<i>" in one.text)
    assert found.attributes["href"].endswith("/results/g1/a%20b%3F%3Ci%3E%23%252e.txt")


def test_nothing_there_and_nothing_left(bed: Bed, looking: Looking) -> None:
    bed.submit(ID)
    assert "There are no files yet." in looking.page(PAGE).text
    assert "No results yet" in looking.page(f"{PAGE}?kind=results").text
    bed.objects.fail_reads = True
    assert "cannot be listed now" in looking.page(PAGE).text
    bed.objects.fail_reads = False
    bed.train(ID)
    bed.clock.advance(60)
    bed.end(ID, Status.STOPPED, files=Files(purged_at=bed.clock.now()))
    assert "were purged" in looking.page(PAGE).text
