"""The figures of supervisor/, each with its goal. The text beside a figure says what it counts."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.house.neighbors import beside
from tools.house.repeats import repeated_pairs
from tools.house.tree import Source, Tree, import_statements, lines_of
from tools.house.vendors import vendor_names


@dataclass(frozen=True)
class Figure:
    """`value` None = it could not be measured, and `note` says why."""

    name: str
    value: float | None
    goal: float
    unit: str = ""
    note: str = ""

    @property
    def reached(self) -> bool:
        return self.value is not None and self.value <= self.goal


def figures(root: Path, tree: Tree) -> Iterator[Figure]:
    """The figures that come from the files; `tree`: of supervisor/."""
    modules = tree.modules
    rooms = {room for source in modules if (room := room_of(source))}
    loose = [source for source in modules if len(source.path.parts) == 2]
    yield Figure("top-level rooms, loose modules included", len(rooms), 24)
    yield Figure("loose modules", len(loose), 2)
    yield Figure("arrows between rooms", len(arrows(tree)), 90)
    yield Figure("modules", len(modules), 545)
    with_one_importer = sum(len(tree.importers[source.path]) == 1 for source in modules)
    yield Figure("modules that one other module alone imports", _percent(with_one_importer, len(modules)), 25, "%")
    lines = sum(source.length for source in tree.sources)
    imports = sum(lines_of(import_statements(source)) for source in tree.sources)
    yield Figure("lines of import statements", _percent(imports, lines), 6, "%")
    folder, names = max(beside(tree).items(), key=lambda item: len(item[1]))
    yield Figure("most files beside each other", len(names), 20, note=f"in {folder}")
    yield Figure("files that name a provider outside its folder", len(list(vendor_names(root))), 1)
    yield Figure("lines of Python", lines, 60_000)
    yield Figure("pairs of places that share six lines", len(repeated_pairs(tree)), 40)


def stops(root: Path) -> dict[str, list[str]]:
    """ "submit" and "beat" -> the functions on its way, each as `file: name`, measured by a test program. Raises
    RuntimeError with the last line of its error."""
    command = [sys.executable, "-m", "tests.architecture.stops"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    ways = json.loads(done.stdout)
    return {way: [f"{path}: {name}()" for path, name in places] for way, places in ways.items()}


def stop_figures(root: Path) -> Iterator[Figure]:
    goals = {"submit": ("stops of a submit", 15), "beat": ("stops of a beat to its stall count", 12)}
    try:
        ways = stops(root)
    except RuntimeError as error:
        yield from (Figure(name, None, goal, note=str(error)) for name, goal in goals.values())
        return
    for way, (name, goal) in goals.items():
        files = {stop.partition(":")[0] for stop in ways[way]}
        yield Figure(name, len(ways[way]), goal, note=f"in {len(files)} files")


def arrows(tree: Tree) -> set[tuple[str, str]]:
    """(room, imported room), each once."""
    pairs = {
        (room_of(importer), room_of(source)) for source in tree.sources for importer in tree.importers[source.path]
    }
    return {(left, right) for left, right in pairs if left and right and left != right}


def room_of(source: Source) -> str:
    """The folder or the loose module directly below supervisor/; "" for supervisor/__init__.py."""
    return source.name.partition(".")[2].partition(".")[0]


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0
