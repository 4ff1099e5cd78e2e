"""Which cards a machine on this computer gets, so that no card ever serves two machines.

A card is taken while the machine that has it in its job.json may still live. It is held while another user's process,
or a process of ours that does not belong to that machine, uses its memory. It is set aside after its driver reported a
fault. Only other cards are assigned. To free a card only our own leftovers are ended: processes with the marker of a
machine whose folder is gone. Choosing and starting happen under the lock of the folders. The cards of a launch that was
cut off before its start are chosen again.

The agent that sees a fault (a card that is lost, that cannot be initialized, or an Xid of the hardware) writes it into
its machine's folder. It counts at once, for all runs. Before the folder is archived the fault is copied into a file of
the provider, which exists longer than the machine, the run and the supervisor. Only a user can bring the card back. An
unreadable file never sets a card aside, and never allows to assign one.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from supervisor.contract.cards import Aside, Card
from supervisor.host import processes
from supervisor.host.files import Unreadable, read_json, warn, write_json
from supervisor.host.folders import NAME, Folder, Folders
from supervisor.host.inspector import ENDED, Survey, end_processes
from supervisor.host.nvidia_smi import CardsUnread, Holder, NoNvidiaSmi, NvidiaSmi, Reading
from supervisor.host.refusals import InUse, NoCapacity, Refused

GIB = 2**30
HELD_BYTES, HELD_SHARE = GIB, 0.05  # a driver itself may use less than the larger of the two
OTHERS_S = 10.0  # while others hold cards beside our machines, the driver's tools are called again after this time
REASON_MAX = 200  # characters


class Quarantine:
    """The cards that are set aside."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._path = folders.own / "gpus_set_aside.json"

    def all(self) -> Dict[str, Aside]:
        """By UUID. Raises Unreadable, OSError."""
        cards = self._kept()
        for folder in self._folders.all():
            for uuid, aside in _faults(folder).items():
                cards.setdefault(uuid, aside)
        return cards

    def keep(self, folder: Folder) -> None:
        """Save the faults in this machine's folder. Call it under the lock of the folders. Raises Unreadable,
        OSError."""
        faults = _faults(folder)
        if not faults:
            return
        kept = self._kept()
        for uuid in faults.keys() - kept.keys():
            warn("gpu_set_aside", "%s is %s. No run gets it.", uuid, faults[uuid].text, machine=folder.name)
        self._write({**faults, **kept})
        folder.forget_bad_gpus()

    def bring_back(self, uuid: str) -> bool:
        """A user says that this card works; False = it was not set aside. Raises Unreadable, OSError."""
        with self._folders.locked():
            for folder in self._folders.all():
                self.keep(folder)
            kept = self._kept()
            if kept.pop(uuid, None) is None:
                return False
            self._write(kept)
        return True

    def _kept(self) -> Dict[str, Aside]:
        data = read_json(self._path) or {}
        try:
            return {
                uuid: Aside(str(row["why"]), str(row["machine"]), str(row["run_id"]), float(row["at"]))
                for uuid, row in data.items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Unreadable(f"{self._path} does not have its expected content: {error!r}") from None

    def _write(self, cards: Mapping[str, Aside]) -> None:
        write_json(self._path, {uuid: aside._asdict() for uuid, aside in cards.items()})


class Cards:
    """`promised`: shape -> cards of each of its machines; empty = this supervisor does not assign cards. `started`:
    whether an agent was started in this folder a moment ago, which /proc may not show yet. `setting`: the name of the
    setting with `promised`."""

    def __init__(
        self,
        promised: Mapping[str, int],
        folders: Folders,
        *,
        started: Callable[[Folder], bool],
        smi: NvidiaSmi,
        setting: str,
    ) -> None:
        self.promised = promised
        self.quarantine = Quarantine(folders)
        # Of the last reading: index of each card by UUID, and the cards that others hold.
        self._indexes: Optional[Dict[str, Optional[int]]] = None
        self._held_by_others: Tuple[Card, ...] = ()
        self._read_again_at = 0.0  # monotonic
        self._folders, self._started, self._smi, self._setting = folders, started, smi, setting

    def choose(self, shape: str, survey: Callable[[], Survey], first: Iterable[str] = ()) -> Optional[Tuple[str, ...]]:
        """The UUIDs for one more machine, those in `first` first; None: cards are not assigned. Call it under the lock
        of the folders. Raises NoCapacity, InUse, Refused, OSError."""
        if not self.promised:
            return None
        needed = self.promised.get(shape, 0)
        if not needed:
            return ()
        try:
            readings = self._smi.read()
            if self._end_leftovers(readings):
                readings = self._smi.read()
            cards = self._cards(readings, survey())
        except NoNvidiaSmi as error:
            raise Refused(
                f"{shape} has GPUs, but {error}: install the driver's tools, or remove {shape} from {self._setting}"
            ) from None
        except CardsUnread as error:
            # A definite no: nothing was started, and nothing may start on a card whose state is unknown.
            raise NoCapacity(f"no GPU can be assigned now: {error}") from None
        self._remember(cards)
        if len(cards) < needed:
            raise Refused(
                f"{shape} promises {_gpus(needed)}, and this computer has {len(cards)}; set {self._setting} to match"
            )
        free = [card for card in cards if card.free]
        if len(free) < needed:
            text = f"{shape} needs {_gpus(needed)}, free: {len(free)}. {_busy(cards)}"
            if len(free) + sum(card.ours and card.aside is None for card in cards) < needed:
                raise NoCapacity(text)
            raise InUse(text)
        preferred = frozenset(first)
        free.sort(key=lambda card: (card.uuid not in preferred, card.index))
        return tuple(card.uuid for card in free[:needed])

    def refresh(self, survey: Survey) -> Optional[Tuple[Card, ...]]:
        """Every card, read from the driver's tools now, so that `left` knows all of them; None: cards are not assigned.
        Raises CardsUnread, OSError."""
        if not any(self.promised.values()):
            return None
        cards = self._cards(self._smi.read(), survey)
        self._remember(cards)
        return cards

    def left(self, survey: Survey) -> Tuple[Optional[int], Optional[int], str]:
        """(cards for more machines, all cards, who else has some), usually without the driver's tools. None, None:
        cards are not assigned. Before the first reading there is capacity for one machine, whose launch reads. While no
        machine of ours has a card, those of others and those set aside are not counted: a launch fails on them, and
        the zone cools down. Raises OSError."""
        if not any(self.promised.values()):
            return None, None, ""
        try:
            taken = self._taken(survey)
            if taken and self._held_by_others and time.monotonic() >= self._read_again_at:
                self._remember(self._cards(self._smi.read(), survey))
            aside = self._aside() if taken else {}
        except CardsUnread as error:
            return 0, None if self._indexes is None else len(self._indexes), str(error)
        if self._indexes is None:
            return max(self.promised.values()), None, ""
        others = {card.uuid: card.holder for card in self._held_by_others} if taken else {}
        for uuid, reason in aside.items():
            if uuid in self._indexes and uuid not in taken:
                others.setdefault(uuid, reason.text)
        text = "; ".join(f"GPU {self._indexes[uuid]} is {words}" for uuid, words in others.items())
        return len(self._indexes) - len(taken) - len(others), len(self._indexes), text

    def states(self, survey: Survey) -> Tuple[Card, ...]:
        """Every card with its holder, and those set aside that the driver does not show. Raises CardsUnread,
        OSError."""
        cards = self._cards(self._smi.read(), survey)
        shown = {card.uuid for card in cards}
        lost = [Card(None, uuid, "", aside=reason) for uuid, reason in self._aside().items() if uuid not in shown]
        return (*cards, *lost)

    def _remember(self, cards: Sequence[Card]) -> None:
        self._indexes = {card.uuid: card.index for card in cards}
        self._held_by_others = tuple(card for card in cards if card.holder and not card.ours)
        self._read_again_at = time.monotonic() + OTHERS_S

    def _aside(self) -> Dict[str, Aside]:
        try:
            return self.quarantine.all()
        except Unreadable as error:
            raise CardsUnread(f"the GPUs that are set aside are unknown: {error}") from None

    def _cards(self, readings: Sequence[Reading], survey: Survey) -> Tuple[Card, ...]:
        taken, aside = self._taken(survey), self._aside()
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

    def _taken(self, survey: Survey) -> Dict[str, str]:
        """UUID -> the machine that has it. CardsUnread when a machine may have any of them."""
        living = [m.job.name for m in survey.machines if m.state != ENDED]
        living += [folder.name for folder in survey.over if self._started(folder)]
        taken = {}
        for name in (*living, *survey.unreadable):
            try:
                job = self._folders.folder(name).job()
            except Unreadable as error:
                raise CardsUnread(f"the cards of machine {name} are unknown: {error}") from None
            if job is None and name in survey.unreadable:
                raise CardsUnread(f"the cards of machine {name} are unknown: {survey.unreadable[name]}")
            taken.update(dict.fromkeys((job.gpu_ids if job is not None else None) or (), name))
        return taken

    def _owners(self) -> Dict[int, str]:
        """pid -> the machine of ours that it belongs to."""
        table = processes.Table()
        return {p.pid: folder.name for folder in self._folders.all() for p in _members(table, folder)}

    def _end_leftovers(self, readings: Sequence[Reading]) -> bool:
        """End processes that hold a card and carry the marker of a machine whose folder is gone. True = there were
        some."""
        holders = {holder.pid for card in readings for holder in card.holders}
        existing = {folder.name for folder in self._folders.all()} if holders else set()
        ended = False
        for pid in holders:
            parent, name = os.path.split(processes.folder_of(pid))
            if parent != str(self._folders.machines) or name in existing or not NAME.match(name):
                continue
            text = "Process %d holds a GPU, but its machine %s is gone: ended."
            warn("leftover_ended", text, pid, name, machine=name)
            end_processes(self._folders.folder(name), None)
            ended = True
        return ended


def _faults(folder: Folder) -> Dict[str, Aside]:
    """What this machine reported about its own cards, by UUID; empty where it cannot be read."""
    try:
        faults = folder.bad_gpus()
        job = folder.job() if faults else None
    except (OSError, Unreadable):
        return {}
    if faults is None or job is None:
        return {}
    own = job.gpu_ids or ()
    return {uuid: Aside(_plain(why), folder.name, job.run_id, at) for uuid, (why, at) in faults.items() if uuid in own}


def _plain(reason: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in reason[:REASON_MAX])


def _members(table: processes.Table, folder: Folder) -> List[processes.Process]:
    try:
        return table.members(folder.path, folder.agent())
    except Unreadable:
        return table.members(folder.path, None)


def _held(reading: Reading, owners: Mapping[int, str]) -> str:
    """The holder of a card that no machine was given; empty = nobody."""
    if reading.holders:
        largest = max(reading.holders, key=lambda holder: holder.used_bytes or 0)
        owner = owners.get(largest.pid)
        whose = f"of machine {owner}, which was not given it" if owner else "which is not ours"
        return f"held by {_process_text(largest)}, {whose}"
    used, total = reading.used_bytes, reading.total_bytes
    if used is None or used <= max(HELD_BYTES, HELD_SHARE * (total or 0)):
        return ""
    return f"held: {used / GIB:.1f} GiB of it are in use, by no process that is visible here"


def _busy(cards: Iterable[Card]) -> str:
    """The state of each card that is not free, and the command that brings back one that is set aside."""
    busy = sorted((card for card in cards if not card.free), key=lambda card: card.ours)
    aside = [card.uuid for card in busy if card.aside is not None]
    text = "; ".join(f"{card.label} is {card.state}" for card in busy)
    return f"{text}. When it works again: spot gpus --back {aside[0]}" if aside else text


def _process_text(holder: Holder) -> str:
    size = "" if holder.used_bytes is None else f", {holder.used_bytes / GIB:.1f} GiB"
    return f"pid {holder.pid} ({holder.name}{size})"


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"
