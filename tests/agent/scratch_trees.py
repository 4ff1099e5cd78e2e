"""Random trees of files, folders and links, and what a repair may remove of them: for its tests and `make diagnose`."""

from __future__ import annotations

import fnmatch
import os
import random
import stat
from pathlib import Path
from typing import Any

from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.repairs import Repair, Repaired
from tests.agent.bench import job

NAMES = ("a.bin", "b.bin", ".hidden.bin", "best.pt", "step-1.pt", "cache", "cafe", "keep.txt")
PARTS = ("*", "ca*", "cache", "?afe", "*.bin", "[ab].bin", ".h*", "best*", "step-1.pt", "link")


class Place:
    """A machine and the working folder of its command, beside folders that belong to others."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.machine = MachineFolder(str(top / "machine"))
        self.machine.prepare()
        self.base = top / "work"
        self.outside = top / "outside"
        self.base.mkdir()
        self.outside.mkdir()

    def repair(self, *globs: str, seconds: float = 10.0, names: tuple[str, ...] = (), **more: Any) -> Repaired:
        paper = job(scratch=globs, **more)
        return Repair(paper, self.machine, os.path.realpath(self.base), names).run(seconds)

    def paths(self) -> dict[str, str]:
        """Path below the top -> what it is."""
        rows = {}
        for folder, folders, files in os.walk(self.top):
            for name in [*folders, *files]:
                path = os.path.join(folder, name)
                kind = stat.S_IFMT(os.lstat(path).st_mode)
                shown = {stat.S_IFLNK: "link", stat.S_IFDIR: "folder"}.get(kind, "file")
                rows[os.path.relpath(path, self.top)] = shown
        return rows


def write(path: Path, size: int = 4096) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def grow(place: Place, chance: random.Random) -> None:
    """Files, folders and links in the working folder: to each other, to its parent, and out of it."""
    folders = [place.base]
    for name in NAMES[:4]:
        write(place.outside / name, 10)
    for top in (place.machine.checkpoints, place.machine.results):
        write(Path(top) / "saved.bin", 10)
    for _ in range(chance.randint(4, 18)):
        path = chance.choice(folders) / chance.choice((*NAMES, "link"))
        if os.path.lexists(path):
            continue
        kind = chance.randint(0, 5)
        if kind <= 2:
            write(path, chance.choice((0, 10)))
        elif kind <= 4 and "." not in path.name[1:]:
            path.mkdir()
            folders.append(path)
        else:
            targets = [place.outside, place.outside / "a.bin", place.base, *folders, Path(place.machine.root)]
            path.symlink_to(chance.choice(targets))


def may_go(path: str, kind: str, before: dict[str, str], globs: list[str]) -> bool:
    """By another matcher than the repair's: each part by itself, and no link on the way."""
    if not path.startswith("work/"):
        return False
    parts = path.split("/")[1:]
    ways = ["/".join(["work", *parts[:depth]]) for depth in range(1, len(parts))]
    if any(before[way] == "link" for way in ways) or any(part.startswith("best") for part in parts):
        return False
    for glob in globs:
        words = [word for word in glob.split("/") if word]
        fits = len(parts) >= len(words) and all(
            fnmatch.fnmatchcase(part, word) and (word[0] == "." or part[0] != ".")
            for part, word in zip(parts, words, strict=False)
        )
        if not fits:
            continue
        if not glob.endswith("/"):
            if len(parts) == len(words) and kind == "file":
                return True
        elif before["/".join(["work", *parts[: len(words)]])] == "folder":
            return True
    return False


def play(folder: Path, seed: int) -> str:
    """What is wrong with the repair of a random tree; "" = nothing."""
    chance, place = random.Random(seed), Place(folder / str(seed))
    grow(place, chance)
    globs = [
        "/".join(chance.choice(PARTS) for _ in range(chance.randint(1, 3))) + chance.choice(("", "/"))
        for _ in range(chance.randint(1, 3))
    ]
    before = place.paths()
    result = place.repair(*globs)
    after = place.paths()
    for path, kind in before.items():
        allowed = may_go(path, kind, before, globs)
        if path not in after and not allowed:
            return f"{globs} removed {kind} {path}"
        if path in after and allowed and kind == "file":
            return f"{globs} left {path}"
    return "" if result.complete else "it did not end"


def removed_outside(folder: Path, trees: int) -> list[str]:
    """What the repairs of so many random trees removed besides what their globs name."""
    wrong = (play(folder, seed) for seed in range(trees))
    return [text for text in wrong if " removed " in text]
