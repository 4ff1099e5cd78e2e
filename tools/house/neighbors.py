"""Rules about files and their neighbors: which files import a file, and how many lie beside each other."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from tools.house.exceptions import FAMILIES, OWN_FILES, reason_for
from tools.house.tree import Tree
from tools.house.violations import Violation

MAX_TOGETHER = 350
MAX_BESIDE = 20
MIN_FAMILY = 3
ENTRIES = frozenset({"__init__", "__main__"})


def one_importer(tree: Tree) -> Iterator[Violation]:
    """A file that only one neighbor imports, and that fits into it, belongs there.

    Not into an `__init__.py` or a `__main__.py`: the first holds no logic, a test cannot import the second."""
    for source in tree.modules:
        importers = tree.importers[source.path]
        if len(importers) != 1 or importers[0].path.stem in ENTRIES or reason_for(source.path, OWN_FILES):
            continue
        importer = importers[0]
        together = source.length + importer.length
        if importer.path.parent == source.path.parent and together <= MAX_TOGETHER:
            text = f"{importer.path.name} alone imports it; together they have {together} lines: move it in"
            yield Violation("one-importer", source.path, 1, text)


def crowded_folders(tree: Tree) -> Iterator[Violation]:
    for folder, names in beside(tree).items():
        if len(names) > MAX_BESIDE:
            text = f"{len(names)} files beside each other, at most {MAX_BESIDE}"
            yield Violation("crowded-folders", folder, 1, text, len(names) - MAX_BESIDE)


def prefix_families(tree: Tree) -> Iterator[Violation]:
    """Files `x_a`, `x_b`, `x_c` beside each other should be a folder `x`."""
    for folder, names in beside(tree).items():
        families: dict[str, list[str]] = defaultdict(list)
        for name in names:
            prefix, underscore, rest = name.partition("_")
            if prefix and underscore and rest and reason_for(folder / f"{name}.py", FAMILIES) is None:
                families[prefix].append(name)
        for prefix, members in families.items():
            if len(members) >= MIN_FAMILY:
                text = f"{len(members)} files {prefix}_*: make it a folder ({', '.join(members)})"
                yield Violation("prefix-families", folder, 1, text, len(members))


def beside(tree: Tree) -> dict[PurePosixPath, list[str]]:
    """Folder -> names of its modules, without `__init__.py`."""
    folders: dict[PurePosixPath, list[str]] = defaultdict(list)
    for source in tree.modules:
        folders[source.path.parent].append(source.path.stem)
    return folders
