"""What a living run shows that is worth a hint: the `notes` of its signs (contract/signs.py). Nothing acts on them.

- Saving is expensive: checkpoints took more than SHARE of the command's time, their uploads included, and 1 MB from the
  middle of the largest file shrinks. The sample is taken once per attempt, of a copy that is uploaded anyway.
- It saves much too rarely, or too often, for this machine (watch/saving.py).
- Metrics are not kept: the log shows losses, and no metric was reported in the first SILENT_S.
- The restore: a checkpoint was rejected, because it is damaged or not there; or the command began so far before the
  restored step that it cannot have loaded it. Where it did not even open it, the command has started over
  (agent/watch/resumecheck.py).
"""

from __future__ import annotations

import os
import zlib
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from supervisor.agent.machine.folder import open_plain
from supervisor.contract.baton import FileEntry

SAMPLE_BYTES, LEAST_BYTES = 1 << 20, 1 << 16
SHARE, SHARE_AFTER_S = 0.1, 600.0  # the rule wants more; a share of a short time says nothing
SILENT_S = 1200.0
NOTHING: Mapping[str, float] = {}
MISSING = "is not in the store"  # words of store/access.py


class Seen(NamedTuple):
    """What other parts of the agent see. `keeps_metrics`: one was reported, or the run has a page of a tracker.
    `ignored`: the command has started over, with the step that was restored and the one where it began. `saving`:
    notes of watch/saving.py."""

    first_step: Optional[int]
    shows_losses: bool
    keeps_metrics: bool
    ignored: Optional[Tuple[int, int]] = None
    saving: Mapping[str, float] = NOTHING


class Notes:
    """`ran_s`: of the command. Safe to use from every thread: each note is written by one of them."""

    def __init__(self, ran_s: Callable[[], float], seen: Callable[[], Seen]) -> None:
        self._ran_s, self._seen = ran_s, seen
        self._restored: Optional[int] = None
        self._rejected: Dict[str, float] = {}
        self._saving_s = 0.0
        self._shrinks: Optional[float] = None
        self._sampled = False
        self._saving: Dict[str, float] = {}

    def rejected(self, step: int, text: str) -> None:
        """This checkpoint was not restored; `text` says why."""
        self._rejected["checkpoint.missing" if MISSING in text else "checkpoint.torn"] = step

    def restored(self, step: Optional[int]) -> None:
        self._restored = step

    def staged(self, folder: str, entries: Sequence[FileEntry]) -> None:
        """The copies of a checkpoint, before their upload."""
        if self._sampled or not entries:
            return
        self._sampled = True
        largest = max(entries, key=lambda entry: entry.size)
        self._shrinks = shrinks(os.path.join(folder, largest.name), largest.size)

    def saved(self, seconds: float) -> None:
        """A checkpoint took so long, from its first byte to its pointer."""
        self._saving_s += seconds
        ran_s = self._ran_s()
        share = self._saving_s / ran_s if ran_s >= SHARE_AFTER_S else 0.0
        self._saving = {}
        if share >= SHARE and self._shrinks is not None:
            self._saving = {"checkpoint.shrinks": self._shrinks, "window.save_share": round(min(1.0, share), 2)}

    def signs(self) -> Mapping[str, Any]:
        """Fields of contract/signs.py."""
        seen = self._seen()
        notes = {**self._rejected, **self._saving, **seen.saving}
        if seen.shows_losses and not seen.keeps_metrics and self._ran_s() >= SILENT_S:
            notes["metric.reported"] = 0
        # A checkpoint's name may count something else than steps: only a fall to less than half says that it began
        # anew.
        if self._restored is not None and seen.first_step is not None and 2 * seen.first_step < self._restored:
            notes.update({"step.from": self._restored, "step.first_after_restore": seen.first_step})
        if seen.ignored is not None:
            restored, first_step = seen.ignored
            notes.update({"step.from": restored, "step.first_after_restore": first_step, "checkpoint.opened": 0})
        return {"notes": tuple(sorted(notes.items()))}


def shrinks(path: str, size: int) -> Optional[float]:
    """To which share of its size a sample of this file shrinks; None where it is too small or cannot be read."""
    if size < LEAST_BYTES:
        return None
    try:
        source = open_plain(path)
        if source is None:
            return None
        with source:
            source.seek(max(0, (size - SAMPLE_BYTES) // 2))
            data = source.read(SAMPLE_BYTES)
    except OSError:
        return None
    return round(len(zlib.compress(data, 1)) / len(data), 2) if data else None
