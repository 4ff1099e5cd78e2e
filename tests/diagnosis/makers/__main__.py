"""`make corpus`: make the cases that are missing. What exists is never replaced.

    python -m tests.diagnosis.makers [--only PART]... [--again | --answers]

PART is a part of `family/name`. `--again` makes those cases new. `--answers` makes the composed ones new, and of the
real ones the answer alone. Real faults need root, control groups and mounts; a
case that cannot be made here is skipped with its reason.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.diagnosis.cases import CORPUS, write_answer
from tests.diagnosis.makers.composed.table import COMPOSED_CASES
from tests.diagnosis.makers.lives import archive, make
from tests.diagnosis.makers.real.table import REAL_CASES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.diagnosis.makers", description="Make missing cases.")
    parser.add_argument("--only", action="append", default=[], metavar="PART")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--answers", action="store_true")
    options = parser.parse_args()
    chosen = {name for name in (*REAL_CASES, *COMPOSED_CASES) if _is_chosen(name, options.only)}
    if options.answers:
        for name in chosen & set(REAL_CASES):
            if (CORPUS / name).exists():
                write_answer(CORPUS / name, REAL_CASES[name].expected)
    again = options.again or options.answers
    due = [name for name in sorted(chosen) if again or not (CORPUS / name).exists()]
    for name in due:
        if name in COMPOSED_CASES:
            shutil.rmtree(CORPUS / name, ignore_errors=True)
            COMPOSED_CASES[name](CORPUS / name)
            print(name)
    return _live([] if options.answers else [name for name in due if name in REAL_CASES])


def _is_chosen(name: str, parts: list[str]) -> bool:
    return not parts or any(part in name for part in parts)


def _live(names: list[str]) -> int:
    """The exit code: 1 when a case cannot be made here."""
    if not names:
        return 0
    skipped = 0
    with TemporaryDirectory(prefix="corpus-agent-") as scratch:
        agent = archive(Path(scratch))
        for name in names:
            shutil.rmtree(CORPUS / name, ignore_errors=True)
            try:
                make(REAL_CASES[name], CORPUS / name, agent)
            except (OSError, AssertionError) as error:
                shutil.rmtree(CORPUS / name, ignore_errors=True)
                skipped += 1
                print(f"{name}: not made: {str(error)[:300]}", file=sys.stderr)
            else:
                print(name)
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
