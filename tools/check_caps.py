"""Caps on size: big files and long functions are where reading stops.

A file has at most 400 lines, a function 60 (its signature and docstring included); an `__init__.py` holds a docstring,
imports and `__all__`; and no file is named after nothing in particular. The rules of tools/house are younger than
some files: each may be broken as often as tools/house/limits.toml says, and not once more.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.house.rules import beyond, hints, read_limits, violations
from tools.project_files import ROOT, project_files, report

ROOMS = ("supervisor", "tests", "tools")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
NAMES_THAT_SAY_NOTHING = frozenset(
    {"util", "utils", "common", "helper", "helpers", "manager", "managers", "base", "misc"}
)


def problems_in(path: Path, shown_as: Path) -> Iterator[str]:
    """What breaks a cap in one Python file; each problem is one line of text."""
    for part in {shown_as.stem, *shown_as.parent.parts} & NAMES_THAT_SAY_NOTHING:
        yield f"{shown_as}:1: the name {part!r} says nothing about what is inside"
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{shown_as}:{MAX_FILE_LINES}: {lines} lines, at most {MAX_FILE_LINES} are allowed"
    tree = ast.parse(text, filename=str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield (
                    f"{shown_as}:{node.lineno}: {node.name}() has {length} lines, "
                    f"at most {MAX_FUNCTION_LINES} are allowed"
                )
    if path.name == "__init__.py":
        for statement in tree.body:
            if not _belongs_in_init(statement):
                yield f"{shown_as}:{statement.lineno}: only a docstring, imports and __all__ belong in __init__.py"


def _belongs_in_init(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() | ast.Tuple()):
            return True
    return False


def check(root: Path) -> list[str]:
    """Every problem below root, in the order of the files."""
    files = (path for room in ROOMS for path in project_files(root / room, ".py"))
    return [problem for path in files for problem in problems_in(path, path.relative_to(root))]


def check_house(root: Path) -> list[str]:
    """Each rule that is broken more often than allowed. Prints which numbers can be lowered."""
    limits, broken = read_limits(root), violations(root)
    for hint in hints(broken, limits):
        print(hint)
    return beyond(broken, limits)


if __name__ == "__main__":
    sys.exit(report([*check(ROOT), *check_house(ROOT)]))
