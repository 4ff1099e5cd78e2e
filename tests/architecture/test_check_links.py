"""tools/checks/links.py: links that lead nowhere."""

from pathlib import Path

import pytest

from tools.checks.links import anchors, check

OTHER = '# First part\n\n## What `spot serve` does, and why\n\n# First part\n\n<a id="by-hand"></a>\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text(OTHER)
    (tmp_path / "code.py").touch()
    return tmp_path


def test_anchors_are_those_of_the_usual_renderers() -> None:
    assert anchors(OTHER) == {"first-part", "what-spot-serve-does-and-why", "first-part-1", "by-hand"}


@pytest.mark.parametrize(
    "text",
    [
        "[a](other.md), [b](../code.py#L10) and ![c](../code.py 'a title')",
        "[a](other.md#first-part-1) [b](other.md#by-hand) [c](/docs/other.md)",
        "# Here\n[up](#here)",
        "[out](https://example.invalid/x) [mail](mailto:a@example.invalid)",
        "[a]: other.md",
        "`[not a link](nowhere.md)`",
        "```\n[not a link](nowhere.md)\n# not a heading\n```",
    ],
)
def test_good_links_pass(root: Path, text: str) -> None:
    (root / "docs" / "page.md").write_text(text)
    assert check(root) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("\n[a](nowhere.md)", "docs/page.md:2: nowhere.md points to no file"),
        ("![a](nowhere.png)", "points to no file"),
        ("[a]: nowhere.md", "points to no file"),
        ("[a](other.md#second-part)", "points to no heading"),
        ("```\n# here\n```\n[a](#here)", "points to no heading"),
        ("[a](../../secrets.md)", "points out of the repository"),
    ],
)
def test_links_that_lead_nowhere_are_found(root: Path, text: str, complaint: str) -> None:
    (root / "docs" / "page.md").write_text(text)
    complaints = check(root)
    assert len(complaints) == 1
    assert complaint in complaints[0]
