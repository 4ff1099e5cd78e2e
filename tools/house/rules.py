"""All rules applied to one project, and the ratchet that only lets the numbers go down.

`limits.toml` holds for each rule how often it is broken today. A higher number fails `make check`; after a lower one
`make house-ratchet` writes the new number.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tools.house.neighbors import crowded_folders, one_importer, prefix_families
from tools.house.tree import Source, Tree, read_tree
from tools.house.vendors import vendor_names
from tools.house.violations import Violation, bare_names, positional_arguments, short_file

FOLDERS = ("supervisor", "tools")
LIMITS = Path("tools/house/limits.toml")

OF_A_FILE: dict[str, Callable[[Source], Iterator[Violation]]] = {
    "short-files": short_file,
    "positional-arguments": positional_arguments,
    "bare-names": bare_names,
}
OF_A_TREE: dict[str, Callable[[Tree], Iterator[Violation]]] = {
    "one-importer": one_importer,
    "crowded-folders": crowded_folders,
    "prefix-families": prefix_families,
}
OF_A_PROJECT: dict[str, Callable[[Path], Iterator[Violation]]] = {"vendor-names": vendor_names}
RULES = (*OF_A_FILE, *OF_A_TREE, *OF_A_PROJECT)


def violations(root: Path) -> list[Violation]:
    """Each place that breaks a rule, sorted by rule and place."""
    of_trees = (violation for folder in FOLDERS for violation in _broken_in(read_tree(root, folder)))
    of_project = (violation for rule in OF_A_PROJECT.values() for violation in rule(root))
    return sorted([*of_trees, *of_project])


def _broken_in(tree: Tree) -> Iterator[Violation]:
    for of_a_tree in OF_A_TREE.values():
        yield from of_a_tree(tree)
    for of_a_file in OF_A_FILE.values():
        for source in tree.sources:
            yield from of_a_file(source)


def counts(broken: Iterable[Violation]) -> dict[str, int]:
    """Rule -> how often it is broken; with every rule."""
    sums = Counter(dict.fromkeys(RULES, 0))
    for violation in broken:
        sums[violation.rule] += violation.weight
    return dict(sums)


def read_limits(root: Path) -> dict[str, int]:
    """A rule without a line may not be broken."""
    text = (root / LIMITS).read_text(encoding="utf-8")
    return dict.fromkeys(RULES, 0) | tomllib.loads(text)


def write_limits(root: Path, limits: dict[str, int]) -> None:
    lines = ["# How often each rule is broken today; `make house ARGS=--list` shows where. Lower is better.\n"]
    lines += [f"{rule} = {limits[rule]}\n" for rule in RULES]
    (root / LIMITS).write_text("".join(lines), encoding="utf-8")


def beyond(broken: list[Violation], limits: dict[str, int]) -> list[str]:
    """A sentence for each rule that is broken more often than allowed."""
    return [
        f"{LIMITS}: {rule}: {count}, at most {limits[rule]} are allowed; `make house ARGS=--list` shows them"
        for rule, count in counts(broken).items()
        if count > limits[rule]
    ]


def hints(broken: list[Violation], limits: dict[str, int]) -> list[str]:
    """A sentence for each rule whose number can go down."""
    return [
        f"{rule}: {count}, and {LIMITS} allows {limits[rule]}: `make house-ratchet` lowers the number"
        for rule, count in counts(broken).items()
        if count < limits[rule]
    ]
