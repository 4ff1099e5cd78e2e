"""Links in the documents: every relative link points to a file of this repository, every #anchor to a heading."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tools.project_files import project_files

FENCE = re.compile(r"^\s{0,3}(```+|~~~+)")
CODE_SPAN = re.compile(r"(`+).+?\1")
INLINE_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s|$)")
HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.+?)\s*#*\s*$")
HTML_ANCHOR = re.compile(r"<a\s+(?:id|name)=[\"']([^\"']+)[\"']")
HAS_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def check(root: Path) -> list[str]:
    """Every broken link in a Markdown file."""
    return [
        f"{document.relative_to(root)}:{number}: {target} {problem}"
        for document in project_files(root, ".md")
        for number, target in _links(document.read_text(encoding="utf-8"))
        if (problem := _problem_with(target, document, root))
    ]


def prose(text: str) -> Iterator[tuple[int, str]]:
    """(line number, line) outside fenced code."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        match = FENCE.match(line)
        if match and not fence:
            fence = match[1]
        elif match and line.strip().startswith(fence):
            fence = ""
        elif not fence:
            yield number, line


def anchors(text: str) -> set[str]:
    """The anchors that the usual renderers give a document: headings as slugs (repeated: -1, -2) and <a id>."""
    names: set[str] = set()
    for _, line in prose(text):
        names.update(HTML_ANCHOR.findall(line))
        if match := HEADING.match(line):
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
            slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            repeated = 0
            while (unique := f"{slug}-{repeated}" if repeated else slug) in names:
                repeated += 1
            names.add(unique)
    return names


def _links(text: str) -> Iterator[tuple[int, str]]:
    """(line number, target) of every link and image outside code."""
    for number, line in prose(text):
        visible = CODE_SPAN.sub("", line)
        for target in [*INLINE_LINK.findall(visible), *REFERENCE.findall(visible)]:
            yield number, target


def _problem_with(target: str, document: Path, root: Path) -> str | None:
    """Why this link is broken; None for a good link, and for a URL."""
    if HAS_SCHEME.match(target) or target.startswith("//"):
        return None
    path_text, _, anchor = unquote(target).partition("#")
    if path_text.startswith("/"):
        goal = (root / path_text.lstrip("/")).resolve()
    else:
        goal = (document.parent / path_text).resolve() if path_text else document.resolve()
    if not goal.is_relative_to(root.resolve()):
        return "points out of the repository"
    if not goal.exists():
        return "points to no file"
    if anchor and goal.suffix == ".md" and anchor.lower() not in anchors(goal.read_text(encoding="utf-8")):
        return "points to no heading"
    return None
