"""Which cards a machine on this computer gets, so that no card ever serves two of them.

A card is taken while the machine that has it in its job.json may still live; it is held when somebody else has memory
on it, or a process of ours that is not that machine's; it is set aside when its driver said that it is broken. What is
taken, held or set aside is not given out, and nobody's process is ended for it but our own leftovers: those that carry
the mark of a machine whose folder is gone. Choosing and starting happen under the folders' lock. Cards of a launch
that was cut off before its start are chosen again.

Cards of this computer that are given to no run, because their driver said that they are broken.

The agent that sees it writes a paper into its machine's folder: a card that is lost, that cannot be brought up, or that
had an Xid of the hardware. The paper counts at once, for all runs. Before the folder is put away its word goes into
a paper of our own, which outlives the machine, the run and the supervisor. Only a person brings a card back. What could
not be read is no word: it never sets a card aside, and it never gives one out.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from supervisor.domain.machines import Aside, Card, MachineState
from supervisor.machinefolder import processes
from supervisor.machinefolder.folders import NAME, Folder, Folders
from supervisor.machinefolder.lookout import Seen
from supervisor.machinefolder.papers import Unreadable, read_json, write_json
from supervisor.machinefolder.sighting import end
from supervisor.ports.provider import CapacityInUse, LaunchRejected, NoCapacity
from supervisor.providers.local.nvidia_smi import CardsUnread, Holder, NoNvidiaSmi, NvidiaSmi, Reading
from supervisor.telemetry import logs as telemetry

WHY_KEPT = 200  # characters


class Quarantine:
    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._path = folders.own / "gpus_set_aside.json"

    def all(self) -> dict[str, Aside]:
        """UUID -> why. Raises Unreadable, OSError."""
        cards = self._kept()
        for folder in self._folders.all():
            for uuid, aside in _of(folder).items():
                cards.setdefault(uuid, aside)
        return cards

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
            return {uuid: _aside(row) for uuid, row in data.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Unreadable(f"{self._path} is not what was written there: {error!r}") from None

    def _write(self, cards: Mapping[str, Aside]) -> None:
        write_json(
            self._path,
            {
                uuid: {"why": aside.why, "machine": aside.machine, "run_id": aside.run_id, "at": aside.at}
                for uuid, aside in cards.items()
            },
        )


def _aside(row: Mapping[str, Any]) -> Aside:
    return Aside(str(row["why"]), str(row["machine"]), str(row["run_id"]), float(row["at"]))


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
    return {uuid: Aside(_plain(why), folder.name, job.run_id, at) for uuid, (why, at) in paper.items() if uuid in own}


def _plain(why: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in why[:WHY_KEPT])


LOG = logging.getLogger(__name__)
GIB = 2**30
HELD_BYTES, HELD_SHARE = GIB, 0.05  # less than the larger of the two may be a driver's own
STRANGERS_S = 10.0  # where others hold cards beside our machines, the driver's tools are asked again after so long


class Cards:
    """`promised`: shape -> cards of each of its machines; empty = this supervisor leaves cards alone. `started`: an
    agent that was started in this folder a moment ago may not be known by /proc yet."""

    def __init__(
        self, promised: Mapping[str, int], folders: Folders, started: Callable[[Folder], bool], smi: NvidiaSmi
    ) -> None:
        self.promised = promised
        self.quarantine = Quarantine(folders)
        self._indexes: dict[str, int | None] | None = None  # by UUID: cards of this computer, by the last reading
        self._strangers: tuple[Card, ...] = ()  # held by others, by the last reading
        self._look_again_at = 0.0  # monotonic
        self._folders, self._started, self._smi = folders, started, smi

    def choose(self, shape: str, look: Callable[[], Seen], kept: Iterable[str] = ()) -> tuple[str, ...] | None:
        """The UUIDs for one more machine, those in `kept` first; None where cards are left alone. Call it under the
        folders' lock; `look` sees all machines. Raises NoCapacity, CapacityInUse, LaunchRejected,
        OSError."""
        if not self.promised:
            return None
        wanted = self.promised.get(shape, 0)
        if not wanted:
            return ()
        try:
            readings = self._smi.read()
            if self._end_leftovers(readings):
                readings = self._smi.read()
            cards = self._cards(readings, look())
        except NoNvidiaSmi as error:
            raise LaunchRejected(
                f"{shape} has GPUs, but {error}: install the driver's tools, or take {shape} out of local_gpus"
            ) from None
        except CardsUnread as error:
            # A definite no: nothing was started, and on a card of which nothing is known nothing may be.
            raise NoCapacity(f"no GPU is given out now: {error}") from None
        self._note(cards)
        if len(cards) < wanted:
            raise LaunchRejected(
                f"{shape} promises {_gpus(wanted)}, and this computer has {len(cards)}; set local_gpus to what is there"
            )
        free = [card for card in cards if card.free]
        if len(free) < wanted:
            text = f"{shape} needs {_gpus(wanted)}, free: {len(free)}. {_busy(cards)}"
            if len(free) + sum(card.ours and card.aside is None for card in cards) < wanted:
                raise NoCapacity(text)
            raise CapacityInUse(text)
        first = frozenset(kept)
        free.sort(key=lambda card: (card.uuid not in first, card.index))
        return tuple(card.uuid for card in free[:wanted])

    def room(self, seen: Seen) -> tuple[int | None, int | None, str]:
        """(cards for more machines, cards there are, who else has some), as a rule without asking the driver's tools.
        None, None: cards are left alone. Before the first reading there is room for one machine, whose launch reads.
        Where no machine of ours has a card, those of others and those set aside are not counted: a launch is told so,
        and the zone rests. Raises OSError."""
        if not any(self.promised.values()):
            return None, None, ""
        try:
            taken = self._taken(seen)
            if taken and self._strangers and time.monotonic() >= self._look_again_at:
                self._note(self._cards(self._smi.read(), seen))
            aside = self._aside() if taken else {}
        except CardsUnread as error:
            return 0, None if self._indexes is None else len(self._indexes), str(error)
        if self._indexes is None:
            return max(self.promised.values()), None, ""
        others = {card.uuid: card.holder for card in self._strangers} if taken else {}
        for uuid, why in aside.items():
            if uuid in self._indexes and uuid not in taken:
                others.setdefault(uuid, why.text)
        text = "; ".join(f"GPU {self._indexes[uuid]} is {words}" for uuid, words in others.items())
        return len(self._indexes) - len(taken) - len(others), len(self._indexes), text

    def _note(self, cards: Sequence[Card]) -> None:
        self._indexes = {card.uuid: card.index for card in cards}
        self._strangers = tuple(card for card in cards if card.holder and not card.ours)
        self._look_again_at = time.monotonic() + STRANGERS_S

    def states(self, seen: Seen) -> tuple[Card, ...]:
        """Every card with its holder, and those set aside that the driver does not show. Raises CardsUnread,
        OSError."""
        cards = self._cards(self._smi.read(), seen)
        shown = {card.uuid for card in cards}
        lost = [Card(None, uuid, "", aside=why) for uuid, why in self._aside().items() if uuid not in shown]
        return (*cards, *lost)

    def _aside(self) -> dict[str, Aside]:
        try:
            return self.quarantine.all()
        except Unreadable as error:
            raise CardsUnread(f"which GPUs are set aside is not known: {error}") from None

    def _cards(self, readings: Sequence[Reading], seen: Seen) -> tuple[Card, ...]:
        taken, aside = self._taken(seen), self._aside()
        owners = self._owners() if any(reading.holders for reading in readings) else {}
        return tuple(
            Card(
                reading.index,
                reading.uuid,
                reading.name,
                f"with machine {taken[reading.uuid]}" if reading.uuid in taken else _held(reading, owners),
                ours=reading.uuid in taken,
                aside=aside.get(reading.uuid),
            )
            for reading in readings
        )

    def _taken(self, seen: Seen) -> dict[str, str]:
        """UUID -> the machine that has it. CardsUnread when a machine may have any of them."""
        living = [m.name for m in seen.listing.machines if m.state is not MachineState.ENDED]
        living += [folder.name for folder in seen.over if self._started(folder)]
        taken = {}
        for name in (*living, *seen.unreadable):
            try:
                job = self._folders.folder(name).job()
            except Unreadable as error:
                raise CardsUnread(f"the cards of machine {name} are not known: {error}") from None
            if job is None and name in seen.unreadable:
                raise CardsUnread(f"the cards of machine {name} are not known: {seen.unreadable[name]}")
            taken.update(dict.fromkeys((job.gpu_ids if job is not None else None) or (), name))
        return taken

    def _owners(self) -> dict[int, str]:
        """pid -> the machine of ours that it belongs to."""
        table = processes.Table()
        return {p.pid: folder.name for folder in self._folders.all() for p in _members(table, folder)}

    def _end_leftovers(self, readings: Sequence[Reading]) -> bool:
        """End what holds a card and carries the mark of a machine of ours that is not there any more. True = some."""
        holders = {holder.pid for card in readings for holder in card.holders}
        there = {folder.name for folder in self._folders.all()} if holders else set()
        ended = False
        for pid in holders:
            parent, name = os.path.split(processes.folder_of(pid))
            if parent != str(self._folders.machines) or name in there or not NAME.match(name):
                continue
            extra = {telemetry.ACTION: "leftover_ended", telemetry.MACHINE: name}
            LOG.warning("Process %d holds a GPU, but its machine %s is gone: ended.", pid, name, extra=extra)
            end(self._folders.folder(name), None)
            ended = True
        return ended


def _members(table: processes.Table, folder: Folder) -> list[processes.Process]:
    try:
        return table.members(folder.path, folder.agent())
    except Unreadable:
        return table.members(folder.path, None)


def _held(reading: Reading, owners: Mapping[int, str]) -> str:
    """By whom, though no machine was given it; empty = by nobody."""
    if reading.holders:
        largest = max(reading.holders, key=lambda holder: holder.used_bytes or 0)
        owner = owners.get(largest.pid)
        whose = f"of machine {owner}, which was not given it" if owner else "which is not ours"
        return f"held by {_said(largest)}, {whose}"
    used, total = reading.used_bytes, reading.total_bytes
    if used is None or used <= max(HELD_BYTES, HELD_SHARE * (total or 0)):
        return ""
    return f"held: {used / GIB:.1f} GiB of it are in use, by no process that can be seen from here"


def _busy(cards: Iterable[Card]) -> str:
    """What keeps each card that is not free, and how those set aside come back."""
    busy = sorted((card for card in cards if not card.free), key=lambda card: card.ours)
    aside = [card.uuid for card in busy if card.aside is not None]
    text = "; ".join(f"{card.label} is {card.state}" for card in busy)
    return f"{text}. When it works again: spot gpus --back {aside[0]}" if aside else text


def _said(holder: Holder) -> str:
    size = "" if holder.used_bytes is None else f", {holder.used_bytes / GIB:.1f} GiB"
    return f"pid {holder.pid} ({holder.name}{size})"


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"
