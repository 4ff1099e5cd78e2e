"""Nothing is unused: style rules, tokens, templates, assets and filters.

A name is used where it stands as a word in a template, a script or the code; of a family (`tl-{{ phase }}`,
`chart-${name}`) its beginning does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from supervisor import dashboard
from supervisor.dashboard import words
from tests.dashboard.styles import VAR, rules

HERE = Path(dashboard.__file__).parent
Texts = Mapping[str, str]


@pytest.fixture(scope="module")
def texts() -> Texts:
    """path below the dashboard -> text"""
    paths = [path for path in HERE.rglob("*") if path.suffix in {".py", ".html", ".js", ".css", ".svg"}]
    return {path.relative_to(HERE).as_posix(): path.read_text() for path in paths}


def unused_style(texts: Texts) -> list[str]:
    """Classes and ids that a sheet styles, and tokens that it defines, without a use."""
    sheets = [rule for path, text in texts.items() if path.endswith(".css") for rule in rules(text)]
    told = "\n".join(text for path, text in texts.items() if not path.endswith(".css"))
    named = {name for rule in sheets for name in re.findall(r"[.#]([a-z][\w-]*)", rule.selector)}
    values = "\n".join(value for rule in sheets for value in rule.sets.values())
    tokens = {name for rule in sheets for name in rule.sets if name.startswith("--")}
    unused = {name for name in named if not _stands(name, told)}
    return sorted(unused | (tokens - set(VAR.findall(values))))


def _stands(name: str, told: str) -> bool:
    ends = [name[: at + 1] for at, letter in enumerate(name) if letter == "-"]
    family = "".join(rf"|{re.escape(end)}(?:\{{|\$\{{)" for end in ends)
    return re.search(rf"(?<![\w-])(?:{re.escape(name)}(?![\w-]){family})", told) is not None


def unused_files(texts: Texts) -> list[str]:
    """Templates and assets that nothing names; `"run_change_" ~ deed` names a family."""
    told = "\n".join(texts.values())
    families = tuple(re.findall(r'"([a-z]+_[a-z_]*_)" ~', told))
    files = [path for path in texts if path.startswith(("templates/", "static/"))]
    names = [path.rpartition("/")[2] for path in files]
    return [name for name in names if not name.startswith(families) and not re.search(f"[\"']{name}[\"']", told)]


def unused_filters(texts: Texts) -> list[str]:
    told = "\n".join(text for path, text in texts.items() if path.endswith(".html"))
    return [name for name in words.FILTERS if not re.search(rf"\|\s*{name}\b", told)]


def test_everything_is_used(texts: Texts) -> None:
    assert unused_style(texts) == []
    assert unused_files(texts) == []
    assert unused_filters(texts) == []


def test_what_is_left_over_is_found(texts: Texts) -> None:
    more = {
        **texts,
        "static/old.css": ":root { --old: #000000; } .cards > #vanished .chip {}",
        "templates/old.html": "",
    }
    assert unused_style(more) == ["--old", "cards", "vanished"]
    assert unused_files(more) == ["old.css", "old.html"]
    bare = {path: re.sub(r"\| *with_code", "", text) for path, text in texts.items()}
    assert unused_filters(bare) == ["with_code"]
