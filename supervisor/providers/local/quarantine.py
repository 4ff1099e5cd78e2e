"""Cards of this computer that are given to no run, because their driver said that they are broken.

The agent that sees it writes a paper into its machine's folder: a card that is lost, that cannot be brought up, or that
had an Xid of the hardware. The paper counts at once, for all runs. Before the folder is put away its word goes into
a paper of our own, which outlives the machine, the run and the supervisor. Only a person brings a card back. What could
not be read is no word: it never sets a card aside, and it never gives one out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from supervisor.domain.machines.cards import Aside
from supervisor.providers.local.folders import Folder, Folders
from supervisor.providers.local.papers import Unreadable, read_json, write_json
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
WHY_KEPT = 200  # characters


class Quarantine:
    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._path = folders.own / "gpus_set_aside.json"

    def all(self) -> dict[str, Aside]:
        """UUID -> why. Raises Unreadable, OSError."""
        found = self._kept()
        for folder in self._folders.all():
            for uuid, aside in _of(folder).items():
                found.setdefault(uuid, aside)
        return found

    def keep(self, folder: Folder) -> None:
        """What the machine in this folder has seen outlives the folder. Call it under the folders' lock. Raises
        Unreadable, OSError."""
        seen = _of(folder)
        if not seen:
            return
        kept = self._kept()
        for uuid, aside in seen.items():
            if uuid not in kept:
                extra = {telemetry.ACTION: "gpu_set_aside", telemetry.MACHINE: folder.name}
                LOG.warning("%s is %s. No run gets it.", uuid, aside.text, extra=extra)
        self._write({**seen, **kept})
        folder.forget_bad_gpus()

    def bring_back(self, uuid: str) -> bool:
        """A person says that this card works; False = it was not set aside. Raises Unreadable, OSError."""
        with self._folders.locked():
            for folder in self._folders.all():
                self.keep(folder)
            kept = self._kept()
            if kept.pop(uuid, None) is None:
                return False
            self._write(kept)
        return True

    def _kept(self) -> dict[str, Aside]:
        data = read_json(self._path) or {}
        try:
            return {uuid: _aside(told) for uuid, told in data.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Unreadable(f"{self._path} is not what was written there: {error!r}") from None

    def _write(self, cards: Mapping[str, Aside]) -> None:
        write_json(
            self._path,
            {
                uuid: {"why": one.why, "machine": one.machine, "run_id": one.run_id, "at": one.at}
                for uuid, one in cards.items()
            },
        )


def _aside(told: Mapping[str, Any]) -> Aside:
    return Aside(str(told["why"]), str(told["machine"]), str(told["run_id"]), float(told["at"]))


def _of(folder: Folder) -> dict[str, Aside]:
    """What this machine has seen of its own cards; nothing where that cannot be read."""
    try:
        paper = folder.bad_gpus()
        job = folder.job() if paper else None
    except (OSError, Unreadable):
        return {}
    if paper is None or job is None:
        return {}
    own = job.gpu_ids or ()
    return {
        uuid: Aside(_plain(why), folder.name, job.run_id, at)
        for uuid, (why, at) in paper.items()
        if uuid in own
    }


def _plain(why: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in why[:WHY_KEPT])
