"""`make house`: the figures with their goals, and how often each rule is broken. --list prints each place; --ratchet
writes the present numbers into limits.toml."""

import argparse
import sys
from pathlib import Path

from tools.house.figures import Figure, figures, stop_figures, stops
from tools.house.repeats import repeated_pairs
from tools.house.rules import counts, read_limits, violations, write_limits
from tools.house.tree import read_tree
from tools.house.violations import Violation
from tools.project_files import ROOT

MET, OPEN = "ok", ""


def main(root: Path, arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make house", description=__doc__)
    parser.add_argument("--list", action="store_true", help="each place that breaks a rule")
    parser.add_argument("--ratchet", action="store_true", help="write the present numbers into limits.toml")
    options = parser.parse_args(arguments)
    broken = violations(root)
    if options.ratchet:
        write_limits(root, counts(broken))
        return 0
    if options.list:
        _list(root, broken)
        return 0
    tree = read_tree(root, "supervisor")
    _table([*figures(root, tree), *stop_figures(root)])
    print()
    limits = read_limits(root)
    for rule, count in counts(broken).items():
        print(f"{rule:<52}{count:>9,}  at most {limits[rule]:,}, goal 0")
    return 0


def _table(rows: list[Figure]) -> None:
    for row in rows:
        value = "?" if row.value is None else f"{row.value:,}{row.unit and ' ' + row.unit}"
        goal = f"{row.goal:,}{row.unit and ' ' + row.unit}"
        print(f"{row.name:<52}{value:>9}  goal {goal:<8}{MET if row.reached else OPEN:<4}{row.note}".rstrip())


def _list(root: Path, broken: list[Violation]) -> None:
    for violation in broken:
        print(f"{violation.rule}: {violation}")
    for left, right in repeated_pairs(read_tree(root, "supervisor")):
        print(f"repeats: {left}: says the same as {right}")
    for way, places in stops(root).items():
        for number, place in enumerate(places, start=1):
            print(f"stops-of-a-{way}: {number:>2} {place}")


if __name__ == "__main__":
    sys.exit(main(ROOT, sys.argv[1:]))
