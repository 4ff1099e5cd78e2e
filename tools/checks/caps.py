"""Limits of size and form for each Python file.

A file has at most 400 lines, a function 60 (signature and docstring included). An `__init__.py` holds only a docstring,
imports and `__all__`. No file has a name without content. The younger rules of tools/house may be broken as often as
tools/house/limits.toml says.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tools.house.rules import beyond, hints, read_limits, violations
from tools.project_files import project_files

FOLDERS = ("supervisor", "tests", "tools")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
EMPTY_NAMES = frozenset({"util", "utils", "common", "helper", "helpers", "manager", "managers", "base", "misc"})


def check(root: Path) -> list[str]:
    """Every problem. Prints which numbers of limits.toml can be lowered."""
    limits, broken = read_limits(root), violations(root)
    for hint in hints(broken, limits):
        print(hint)
    return [*size_problems(root), *beyond(broken, limits)]


def size_problems(root: Path) -> list[str]:
    """In the order of the files; without the rules of tools/house."""
    files = (path for folder in FOLDERS for path in project_files(root / folder, ".py"))
    return [problem for path in files for problem in _problems_in(path, path.relative_to(root))]


def _problems_in(path: Path, shown_as: Path) -> Iterator[str]:
    for part in {shown_as.stem, *shown_as.parent.parts} & EMPTY_NAMES:
        yield f"{shown_as}:1: the name {part!r} says nothing about what is inside"
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{shown_as}:{MAX_FILE_LINES}: {lines} lines, at most {MAX_FILE_LINES} are allowed"
    tree = ast.parse(text, filename=str(path))
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                place = f"{shown_as}:{node.lineno}: {node.name}()"
                yield f"{place} has {length} lines, at most {MAX_FUNCTION_LINES} are allowed"
    if path.name == "__init__.py":
        for statement in tree.body:
            if not _belongs_in_init(statement):
                yield f"{shown_as}:{statement.lineno}: only a docstring, imports and __all__ belong in __init__.py"


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All of them, at any depth, without looking into expressions, which are nine of ten nodes."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        below = getattr(tree, name, ())
        for statement in below if isinstance(below, list) else ():
            yield statement
            yield from statements(statement)


def _belongs_in_init(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() | ast.Tuple()):
            return True
    return False
