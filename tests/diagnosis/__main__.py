"""`make diagnose`: how often the verdicts are right, on the labeled corpus.

    python -m tests.diagnosis [--only PART]... [--list] [--write] [--quick]

`--list` shows each case that is not right, `--write` writes the table into docs/diagnosis.md and the floors of the
families, `--quick` leaves out the mutations and most random evidences. The last line is one JSON object. The exit code
is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.agent.scratch_trees import removed_outside
from tests.diagnosis import mutations, report
from tests.diagnosis.cases import load
from tests.diagnosis.floors import floors_of, write_floors
from tests.diagnosis.following import dangers, followed
from tests.diagnosis.measuring import Figures, measure

RANDOM, FEW = 10_000, 300
TREES, FEW_TREES = 2_000, 100  # of files, links and globs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.diagnosis", description="Measure the verdicts.")
    parser.add_argument("--only", action="append", default=[], metavar="PART")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    cases = [case for case in load() if not options.only or any(part in case.id for part in options.only)]
    figures = measure(cases)
    values = report.figures_of(figures)
    print("\n".join(report.matrix(figures)))
    _print("not right yet", report.distances(figures.judged, options.list))
    for name, judged in figures.dangers.items():
        _print(name, [each.case.id for each in judged])
    for name, cases in dangers(followed(figures.judged)).items():
        _print(f"{name}, by what would follow", cases)
    values |= _mutations(figures, options.quick)
    values["deleted_outside_scratch"] += _repairs(FEW_TREES if options.quick else TREES)
    missed = report.missed(values)
    _print("targets missed", missed)
    if options.write and not options.only:
        report.PAGE.write_text(report.written(report.PAGE.read_text(), report.table(figures, values)))
        write_floors(floors_of(figures.judged))
    print(json.dumps(values, sort_keys=True))
    return 1 if missed else 0


def _repairs(trees: int) -> int:
    with TemporaryDirectory() as folder:
        wrong = removed_outside(Path(folder), trees)
    _print("deleted outside scratch by a repair", wrong[:20])
    return len(wrong)


def _mutations(figures: Figures, is_quick: bool) -> dict[str, int]:
    problems = mutations.not_total(FEW if is_quick else RANDOM)
    _print("not total", problems[:20])
    counts = {"not_total": len(problems)}
    if not is_quick:
        unneeded = mutations.unneeded(figures.judged)
        unguarded = mutations.unguarded(each.case for each in figures.judged)
        _print("rules that no case needs", [f"{rule}: {why}" for rule, why in unneeded.items()])
        _print("excludes that no case needs", unguarded)
        counts |= {"rules_unneeded": len(unneeded), "excludes_unguarded": len(unguarded)}
    return counts


def _print(title: str, lines: list[str]) -> None:
    if lines:
        print(f"\n{title}: {len(lines)}")
        print("\n".join(f"  {line}" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
