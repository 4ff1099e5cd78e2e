"""All real cases: `family/name` -> how it is lived."""

from __future__ import annotations

from collections.abc import Iterator

from tests.diagnosis.makers.lives import Live
from tests.diagnosis.makers.real import code, disks, gone, hangs, memory, results

_FAMILIES = {
    "memory": memory.CASES,
    "disks": disks.CASES,
    "gone": gone.CASES,
    "code": code.CASES,
    "hangs": hangs.CASES,
    "results": results.CASES,
}
# Lived once more under an agent whose part of the evidence has version 2: its hits, times and process trees.
_SECOND = (
    "main-process", "pool-worker", "forked-worker", "child-of-a-shell", "killed-by-hand", "worker-killed-by-hand",
    "own-stop-with-kill", "python-write", "numpy-save", "sqlite", "logged-with-prefix", "inodes-files", "dev-full",
    "caught-then-key-error", "full-but-another-error", "kill", "term", "hang-up", "cpu-time", "segfault", "notice",
    "module-missing", "crlf-option", "crlf-command", "key-error", "caught-oom", "quoted-xid", "chained", "child", "torn-pickle",
    "exit-127-later", "two-locks", "loader-process", "barrier", "silent-peer", "stopped", "plot-after-the-last-step",
    "exit-1-before-the-last-step", "finished",
)  # fmt: skip


def _named() -> Iterator[tuple[str, Live]]:
    for family, cases in _FAMILIES.items():
        for live in cases:
            yield f"{family}/{live.name}", live
            if live.name in _SECOND:
                yield f"{family}/{live.name}.v2", live


REAL_CASES: dict[str, Live] = dict(_named())
