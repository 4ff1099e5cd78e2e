"""Every file that the supervisor opens for writing in its own folders is opened without following a link: a link there
could make it overwrite a file of the system.

The test searches the source for `os.open` that may create, and for `open` for writing without an opener of ours. A new
file (O_EXCL, mkstemp) follows no link.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import supervisor

ROOT = Path(supervisor.__file__).parent
# The user's own folders, as the user; not folders of ours.
ELSEWHERE = ("cli/", "images/")
# module -> why this one may: the path is the training's own, or the descriptor was opened before.
ALLOWED = {
    "agent/spot_progress.py": "the progress file is named by the environment of the training",
    "contract/stores/durable.py": "it wraps a descriptor",
}


def writes(source: str) -> Iterator[int]:
    """Lines that open a file for writing and may follow a link."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called == "os.open":
            text = ast.unparse(node)
            if "O_CREAT" in text and not any(word in text for word in ("O_EXCL", "O_NOFOLLOW")):
                yield node.lineno
        elif called == "open" or called.endswith((".open", ".write_text", ".write_bytes")):
            modes = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            for_writing = any(word and set(word) <= set("wabx+t") and set(word) & set("wax") for word in modes)
            if for_writing or "write_" in called:
                text = ast.unparse(node)
                if "opener=" not in text and "os.open(" not in text:
                    yield node.lineno


def test_the_search_finds_such_calls() -> None:
    assert list(writes("os.open(p, os.O_RDWR | os.O_CREAT)\nos.open(p, os.O_CREAT | os.O_NOFOLLOW)")) == [1]
    assert list(writes('p.open("ab")\nopen(p, "w", encoding="utf-8")\np.write_text(t)\nopen(p, "rb")')) == [1, 2, 3]
    assert list(writes('open(p, "wb", opener=ours)\nopen(os.open(p, os.O_EXCL | os.O_CREAT), "w")')) == []


def test_no_file_of_ours_is_written_through_a_link() -> None:
    lines_of = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(ELSEWHERE) and name not in ALLOWED:
            lines_of[name] = list(writes(path.read_text(encoding="utf-8")))
    assert {name: lines for name, lines in lines_of.items() if lines} == {}
