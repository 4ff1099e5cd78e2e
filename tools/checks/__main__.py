"""`python -m tools.checks NAME`: run one check on this project and print its problems, one a line. `make check` runs
all of them."""

import sys
from importlib import import_module

from tools.project_files import ROOT

NAMES = ("agent", "caps", "links", "lock", "openapi")


def main(name: str) -> int:
    """The exit status: 1 where there are problems."""
    problems: list[str] = import_module(f"tools.checks.{name}").check(ROOT)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in NAMES:
        sys.exit(f"usage: python -m tools.checks {{{','.join(NAMES)}}}")
    sys.exit(main(sys.argv[1]))
