"""A place that breaks a rule, and the rules that need one file only; `neighbors.py` has those about its neighbors."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from tools.house.exceptions import SHORT_FILES, reason_for
from tools.house.tree import Source

MIN_FILE_LINES = 60
MAX_POSITIONAL = 5
BARE_NAMES = frozenset({"told", "found", "one", "known", "asked", "meant"})
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
NAMING = (ast.Name, ast.Attribute, ast.arg, *DEFINITIONS, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.alias)


@dataclass(frozen=True, order=True)
class Violation:
    """`weight`: how often it counts, so that a folder of 30 files is worse than one of 21."""

    rule: str
    path: PurePosixPath
    line: int
    text: str
    weight: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def short_file(source: Source) -> Iterator[Violation]:
    """A file of a few lines costs its reader a jump; only a port, an entry point, a table or a route may be short."""
    if source.is_module and source.length < MIN_FILE_LINES and not reason_for(source.path, SHORT_FILES):
        yield Violation("short-files", source.path, 1, f"{source.length} lines, at least {MIN_FILE_LINES} are wanted")


def positional_arguments(source: Source) -> Iterator[Violation]:
    """A reader cannot know the meaning of the sixth value in a row."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
            count = len(names[1:] if names[:1] in (["self"], ["cls"]) else names)
            if count > MAX_POSITIONAL:
                text = f"{node.name}() takes {count} arguments by position, at most {MAX_POSITIONAL}: put a `*` in"
                yield Violation("positional-arguments", source.path, node.lineno, text)


def bare_names(source: Source) -> Iterator[Violation]:
    """Each line that defines a name without a noun. Uses of the name do not count, nor does `event_found`, nor does a
    field of a TypedDict: clients read it under this name."""
    fields = {
        field.lineno
        for node in source.nodes
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "TypedDict" for base in node.bases)
        for field in node.body
    }
    places = {
        (line, name)
        for node in source.nodes
        if isinstance(node, NAMING)
        for line, name in _names_given(node)
        if name.strip("_") in BARE_NAMES and line not in fields
    }
    for line, name in sorted(places):
        yield Violation("bare-names", source.path, line, f"the name {name!r} has no noun")


def _names_given(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield node.lineno, name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield node.lineno, name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield node.lineno, name
        case ast.alias(asname=str(name)):
            yield node.lineno, name
