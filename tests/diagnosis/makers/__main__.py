"""`make corpus`: make the cases that are missing. What exists is never replaced.

    python -m tests.diagnosis.makers [--only PART]... [--again]

PART is a part of `family/name`. `--again` makes those cases new. Real faults need root, control groups and mounts; a
case that cannot be made here is skipped with its reason.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.diagnosis.cases import CORPUS
from tests.diagnosis.makers.composed.table import COMPOSED_CASES
from tests.diagnosis.makers.lives import archive, make
from tests.diagnosis.makers.real.table import REAL_CASES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.diagnosis.makers", description="Make missing cases.")
    parser.add_argument("--only", action="append", default=[], metavar="PART")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()

    def due(case_id: str) -> Path | None:
        folder = CORPUS / case_id
        if options.only and not any(part in case_id for part in options.only):
            return None
        if folder.exists() and not options.again:
            return None
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    skipped = 0
    with TemporaryDirectory(prefix="corpus-agent-") as scratch:
        agent: Path | None = None
        for case_id, live in REAL_CASES.items():
            folder = due(case_id)
            if folder is None:
                continue
            agent = agent or archive(Path(scratch))
            try:
                make(live, folder, agent)
            except (OSError, AssertionError) as error:
                shutil.rmtree(folder, ignore_errors=True)
                skipped += 1
                print(f"{case_id}: not made: {str(error)[:300]}", file=sys.stderr)
            else:
                print(case_id)
    for case_id, composed in COMPOSED_CASES.items():
        folder = due(case_id)
        if folder is not None:
            composed(folder)
            print(case_id)
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
