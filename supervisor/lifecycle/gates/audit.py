"""G0, the audit: does the machine have what the run needs, and does its storage survive the machine's end?

The sizes are measured on the machine. `kept`: how many checkpoints the run keeps. The profile of the platform gives the
words of its storage: "yes", "no" or "verify first".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from supervisor.domain.gates.verdicts import State
from supervisor.lifecycle.gates.rules import Judged, Known, Rule, Rules, judged, listed
from supervisor.wording.figures import age_text, size_text

SPACE_FACTOR = 3  # a save, its upload and the one before may be on the disk together
INODES_MAX_PCT = 90.0
NOTICE_MARGIN_S = 60.0
CHECKPOINTS_MIN = 3  # a session must hold a restore and so many saves, else it makes no progress
SURVIVES, VERIFY_FIRST = "yes", "verify first"


class Card(NamedTuple):
    """A GPU on the machine. `holder`: the process that uses it, in words; "" = free."""

    name: str
    holder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """None = not read. `clocks`: danger clocks, in words; `clocks_shown`: before the launch. `durable_*`: where the
    kept checkpoints lie. `survives`: checkpoints and results, after the `ending` that stops the bill. `measured`,
    `documented`: names of figures. `mount_named`, `mount_real`: of the data, before and after links are followed.
    `limit_s`: of a session or job, inf = none. `checkpoint_s`, `upload_s`: how long a save and its upload take.
    `notice_s`: 0 = no notice. `builds`: the words of the command that build an environment, "" = none.
    `known_failure`: of the code or the image, `quarantine`: of the machine; in words, "" = none."""

    clocks: Known[tuple[str, ...]] = None
    clocks_shown: Known[bool] = None
    durable_path: Known[str] = None
    durable_free_bytes: Known[int] = None
    reserve_bytes: Known[int] = None
    image: Known[str] = None
    checkpoints_path: Known[str] = None
    results_path: Known[str] = None
    survives: Known[tuple[str, str]] = None
    ending: Known[str] = None
    volume_region: Known[str] = None
    machine_region: Known[str] = None
    measured: Known[tuple[str, ...]] = None
    documented: Known[tuple[str, ...]] = None
    memory_limit_bytes: Known[int] = None
    memory_needed_bytes: Known[int] = None
    mount_named: Known[str] = None
    mount_real: Known[str] = None
    hog: Known[str] = None
    hog_bytes: Known[int] = None
    data_path: Known[str] = None
    free_bytes: Known[int] = None
    checkpoint_bytes: Known[int] = None
    kept: Known[int] = None
    scratch_bytes: Known[int] = None
    inodes_used_pct: Known[float] = None
    gpus_expected: Known[tuple[str, ...]] = None
    gpus: Known[tuple[Card, ...]] = None
    driver_cuda: Known[str] = None
    image_cuda: Known[str] = None
    limit_s: Known[float] = None
    restore_s: Known[float] = None
    checkpoint_every_s: Known[float] = None
    checkpoint_s: Known[float] = None
    upload_s: Known[float] = None
    notice_s: Known[float] = None
    builds: Known[str] = None
    known_failure: Known[str] = None
    quarantine: Known[str] = None


def _danger_clocks(clocks: tuple[str, ...], shown: bool) -> Judged:
    where = "; shown before the launch" if shown else "; not shown before the launch"
    return judged(
        shown or not clocks, State.WARN, clocks="; ".join(clocks) or "nothing bills or deletes by itself",
        shown=where if clocks else "",
    )  # fmt: skip


def _durable_room(path: str, free: int, checkpoint: int, kept: int, reserve: int) -> Judged:
    needed = checkpoint * kept + reserve
    return judged(
        free >= needed, path=path, free=size_text(free), kept=str(kept), checkpoint=size_text(checkpoint),
        needed=size_text(needed),
    )  # fmt: skip


def _prepared_image(image: str) -> Judged:
    return judged(bool(image), State.WARN, image=image or "no image: every machine builds its environment again")


def _checkpoint_tier(checkpoints: str, results: str, survives: tuple[str, str], ending: str) -> Judged:
    words = survives[0] if survives[0] == survives[1] else f"checkpoints {survives[0]}, results {survives[1]}"
    texts = {"checkpoints": checkpoints, "results": results, "survives": words, "ending": ending}
    worse = State.WARN if set(survives) <= {SURVIVES, VERIFY_FIRST} else State.FAIL
    return judged(set(survives) == {SURVIVES}, worse, **texts)


def _region(volume: str, machine: str) -> Judged:
    return judged(volume == machine, volume_region=volume, machine_region=machine)


def _measured_live(measured: tuple[str, ...], documented: tuple[str, ...]) -> Judged:
    return judged(not documented, State.WARN, measured=listed(measured), documented=listed(documented))


def _memory_limit(limit: int, needed: int) -> Judged:
    return judged(limit >= needed, State.WARN, limit=size_text(limit), needed=size_text(needed))


def _space_hogs(named: str, real: str, hog: str, size: int, free: int) -> Judged:
    """A link leads the eye to another disk; a cache larger than what is left is the first thing to clear."""
    mount, good = real if named == real else f"{real}, not on {named}", named == real and size <= free
    return judged(good, State.WARN, mount=mount, hog=hog, size=size_text(size), free=size_text(free))


def _disk_bytes(path: str, free: int, checkpoint: int, kept: int, scratch: int) -> Judged:
    needed = SPACE_FACTOR * checkpoint * kept + scratch
    return judged(
        free >= needed, path=path, free=size_text(free), kept=str(kept), checkpoint=size_text(checkpoint),
        scratch=size_text(scratch), needed=size_text(needed),
    )  # fmt: skip


def _inodes(path: str, used_pct: float) -> Judged:
    return judged(used_pct < INODES_MAX_PCT, path=path, used=f"{used_pct:.0f} %", limit=f"{INODES_MAX_PCT:.0f} %")


def _gpus(expected: tuple[str, ...], cards: tuple[Card, ...]) -> Judged:
    """A card serves an expected one whose name is a part of its own ("H100" of "NVIDIA H100 80GB HBM3")."""
    free, matched = [card for card in cards if not card.holder], 0
    for name in sorted(expected, key=len, reverse=True):
        card = next((card for card in free if name.lower() in card.name.lower()), None)
        if card is not None:
            free.remove(card)
            matched += 1
    holders = tuple(f"{card.name}: {card.holder}" for card in cards if card.holder)
    taken = f"; {'; '.join(holders)}" if holders and matched < len(expected) else ""
    return judged(matched == len(expected), free=str(matched), expected=str(len(expected)), taken=taken)


def _driver(driver: str, image: str) -> Judged:
    return judged(_version(driver) >= _version(image), driver=driver, image=image)


def _version(text: str) -> tuple[int, ...]:
    """'12.4' -> (12, 4)."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def least_session_s(restore_s: float, every_s: float) -> float:
    """The shortest session that is worth its start."""
    return restore_s + CHECKPOINTS_MIN * every_s


def _time_limit(limit_s: float, restore_s: float, every_s: float) -> Judged:
    needed_s = least_session_s(restore_s, every_s)
    limit = "the session has no time limit" if limit_s == inf else f"a session ends after {age_text(limit_s)}"
    return judged(limit_s >= needed_s, limit=limit, needed=age_text(needed_s))


def _notice(checkpoint_s: float, upload_s: float, notice_s: float, every_s: float) -> Judged:
    needed_s = checkpoint_s + 2 * upload_s + NOTICE_MARGIN_S
    fits = needed_s <= notice_s
    loss = "" if fits else f"; each unexpected end loses up to {age_text(every_s)} of training"
    notice = f"the notice is {age_text(notice_s)}" if notice_s else "there is no notice"
    return judged(fits, State.WARN, needed=age_text(needed_s), notice=notice, loss=loss)


def _own_environment(builds: str) -> Judged:
    return judged(not builds, State.WARN, builds=builds or "in the environment that is there")


def _known_to_fail(failure: str) -> Judged:
    return judged(not failure, known=failure or "no incident is about its code or image")


def _place_quarantined(quarantine: str) -> Judged:
    return judged(not quarantine, quarantine=quarantine or "no incident is about this machine")


_ROOM = ("checkpoint_bytes", "kept")
RULES: Rules = {
    "danger_clocks": Rule(("clocks", "clocks_shown"), _danger_clocks),
    "durable_room": Rule(("durable_path", "durable_free_bytes", *_ROOM, "reserve_bytes"), _durable_room),
    "prepared_image": Rule(("image",), _prepared_image),
    "checkpoint_tier": Rule(("checkpoints_path", "results_path", "survives", "ending"), _checkpoint_tier),
    "region": Rule(("volume_region", "machine_region"), _region),
    "measured_live": Rule(("measured", "documented"), _measured_live),
    "memory_limit": Rule(("memory_limit_bytes", "memory_needed_bytes"), _memory_limit),
    "space_hogs": Rule(("mount_named", "mount_real", "hog", "hog_bytes", "free_bytes"), _space_hogs),
    "disk_bytes": Rule(("data_path", "free_bytes", *_ROOM, "scratch_bytes"), _disk_bytes),
    "gpus": Rule(("gpus_expected", "gpus"), _gpus),
    "inodes": Rule(("data_path", "inodes_used_pct"), _inodes),
    "driver": Rule(("driver_cuda", "image_cuda"), _driver),
    "time_limit": Rule(("limit_s", "restore_s", "checkpoint_every_s"), _time_limit),
    "notice": Rule(("checkpoint_s", "upload_s", "notice_s", "checkpoint_every_s"), _notice),
    "own_environment": Rule(("builds",), _own_environment),
    "known_to_fail": Rule(("known_failure",), _known_to_fail),
    "place_quarantined": Rule(("quarantine",), _place_quarantined),
}
