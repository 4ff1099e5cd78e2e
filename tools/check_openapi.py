"""The OpenAPI document is valid, and breaks no client of the released one: `make check-openapi`.

openapi/released.json is what clients may rely on, without its words and examples. It is compared instead of an older
commit, so that a clone without history says the same. A change on purpose is made by `make release-openapi`; it counts
only with a line in the changelog that carries the new file's mark, because that is where clients look.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from openapi_spec_validator import OpenAPIV31SpecValidator

from tools.openapi_changes import breaking
from tools.project_files import ROOT, report

Json = dict[str, Any]
WORDS = frozenset({"description", "summary", "examples", "example", "tags", "info", "servers"})
MARK_DIGITS = 12


def contract(document: Json) -> Json:
    """Without what is said to people: what is left is what programs rely on."""
    return {key: _without_words(value) for key, value in document.items() if key not in WORDS}


def _without_words(part: Any, names: bool = False) -> Any:
    """`names`: the keys of this object are names that we chose (fields, headers), not words of OpenAPI."""
    if isinstance(part, list):
        return [_without_words(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        key: _without_words(value, key in ("properties", "headers", "schemas") and not names)
        for key, value in part.items()
        if names or key not in WORDS
    }


def mark(released: str) -> str:
    """By which the changelog names one content of openapi/released.json."""
    return f"API {hashlib.sha256(released.encode()).hexdigest()[:MARK_DIGITS]}"


def check(root: Path) -> list[str]:
    """Every problem with the documents below `root`."""
    folder = root / "openapi"
    now = json.loads((folder / "openapi.json").read_text(encoding="utf-8"))
    released = (folder / "released.json").read_text(encoding="utf-8")
    problems = [
        f"openapi/openapi.json: {error.message[:300]} at {'/'.join(map(str, error.path))}"
        for error in OpenAPIV31SpecValidator(now).iter_errors()
    ]
    if mark(released) not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        problems.append(f"CHANGELOG.md: no line tells what changed in the released API ({mark(released)})")
    return problems + [f"openapi/openapi.json: {line}" for line in breaking(json.loads(released), now)]


def release(root: Path) -> None:
    """The document of now is what clients may rely on from now on."""
    folder = root / "openapi"
    now = json.loads((folder / "openapi.json").read_text(encoding="utf-8"))
    text = json.dumps(contract(now), indent=1, sort_keys=True) + "\n"
    (folder / "released.json").write_text(text, encoding="utf-8")
    print(f"wrote openapi/released.json; tell in CHANGELOG.md what changed, with ({mark(text)})")


if __name__ == "__main__":
    if sys.argv[1:] == ["--release"]:
        release(ROOT)
    else:
        sys.exit(report(check(ROOT)))
