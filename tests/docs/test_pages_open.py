"""There are few pages, each says in its first lines what it is for, and a long one lists its sections."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.checks.links import prose

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for folder in ("docs", "docs/providers") for path in (ROOT / folder).glob("*.md"))
MOST_PAGES, MOST_OF_README, LONG = 31, 120, 150


def faults(page: str) -> list[str]:
    """What is wrong with the beginning of a page."""
    title, _, opening, *_ = [*page.splitlines(), "", "", ""]
    found = [] if re.match(r"# \w", title) else ["no title"]
    found += [] if re.match(r"[A-Z`\[]", opening) and len(opening) > 100 else ["does not say what it is for"]
    headings = [line[3:].strip() for _, line in prose(page) if line.startswith("## ")]
    listed = re.search(r"^Sections: (.+)$", page.partition("\n## ")[0], re.MULTILINE)
    names = re.findall(r"\[([^\]]+)\]\(#", listed[1]) if listed else []
    if len(page.splitlines()) > LONG or listed:
        found += [] if names == headings else ["its list of sections is another"]
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_says_what_it_is_for_and_lists_its_sections(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


def test_a_page_without_an_opening_or_with_an_old_list_would_be_seen() -> None:
    opening = "Words of use. " * 10
    assert faults(f"# A\n\n{opening}\n\nSections: [B](#b)\n\n## B\n") == []
    assert faults(f"# A\n\n{opening}\n\nSections: [B](#b)\n\n## C\n") == ["its list of sections is another"]
    assert faults(f"# A\n\n{opening}\n\n## C\n" + "x\n" * LONG) == ["its list of sections is another"]
    assert faults("# A\n\n## B\n") == ["does not say what it is for"]


def test_there_are_few_pages_and_the_first_one_is_short() -> None:
    assert len(PAGES) <= MOST_PAGES
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_OF_README


def test_the_first_page_leads_to_every_other() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in PAGES if f"({path.relative_to(ROOT)})" not in readme] == []


def test_each_design_has_a_number_of_its_own_and_says_it() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "designs").glob("[0-9]*.md"))
    assert [name[:4] for name in names] == [f"{number:04}" for number in range(1, len(names) + 1)]
    index = (ROOT / "docs" / "designs" / "README.md").read_text(encoding="utf-8")
    assert [name for name in names if index.count(f"({name})") != 1] == []
    for name in names:
        title = (ROOT / "docs" / "designs" / name).read_text(encoding="utf-8").partition("\n")[0]
        assert title.startswith(f"# {name[:4]} \u2013 "), name
