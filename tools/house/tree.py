"""The Python files of one folder, parsed once, and the imports among them.

A module is a Python file other than `__init__.py`. Every import counts: at the top of a file, inside a function, below
TYPE_CHECKING. `from a import b` imports the module `a.b` if it exists, else `a`. A module that is named only in a
string (a command that is imported late) has no importer here.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from tools.project_files import project_files

INIT = "__init__"


@dataclass(frozen=True)
class Source:
    """One Python file. `path` is relative to the project's root."""

    path: PurePosixPath
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def length(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def name(self) -> str:
        """The dotted name; a package's for its `__init__.py`."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == INIT else parts)

    @property
    def is_module(self) -> bool:
        return self.path.stem != INIT


@dataclass(frozen=True)
class Tree:
    """`sources`: all Python files of a folder, in the order of their paths."""

    sources: tuple[Source, ...]

    @cached_property
    def modules(self) -> list[Source]:
        return [source for source in self.sources if source.is_module]

    @cached_property
    def _by_name(self) -> dict[str, Source]:
        return {source.name: source for source in self.sources}

    @cached_property
    def importers(self) -> dict[PurePosixPath, list[Source]]:
        """For each file the other files that import it, each once."""
        importers: dict[PurePosixPath, list[Source]] = {source.path: [] for source in self.sources}
        for source in self.sources:
            for imported in sorted({*self._imported_by(source)} - {source.path}):
                importers[imported].append(source)
        return importers

    def _imported_by(self, source: Source) -> Iterator[PurePosixPath]:
        for statement in import_statements(source):
            for names in _candidates(statement):
                imported = next((self._by_name[name] for name in names if name in self._by_name), None)
                if imported is not None:
                    yield imported.path


def read_tree(root: Path, folder: str) -> Tree:
    """All Python files below root/folder."""
    return Tree(
        tuple(
            Source(PurePosixPath(path.relative_to(root)), path.read_text(encoding="utf-8"))
            for path in project_files(root / folder, ".py")
        )
    )


def import_statements(source: Source) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in source.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def lines_of(statements: Iterable[ast.stmt]) -> int:
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in statements)


def _candidates(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, ...]]:
    """For each imported name the possible modules, the most exact one first."""
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            yield (alias.name,)
        elif statement.module:
            yield f"{statement.module}.{alias.name}", statement.module
