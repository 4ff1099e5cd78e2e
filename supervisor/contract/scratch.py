"""The globs of a spec's `scratch`: what may be removed from a machine when its disk is full.

Shared with the agent: Python 3.8, standard library only. The API refuses a glob by these rules, and the agent, which
trusts no job, ignores such a glob. A glob is a path whose parts may have `*`, `?` and `[...]`; each stays within its
part. It names files; with `/` at its end it names folders. It is relative to the command's working folder, or absolute:
then it has two parts at least, and the first one has no wildcard and is no folder of the system.
"""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import List, Pattern

MAX_GLOBS, MAX_CHARS, MAX_PARTS = 16, 512, 32
SYSTEM_FOLDERS = frozenset({
    "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "usr", "var",
})  # fmt: skip
_MAGIC = re.compile(r"[*?\[]")


def problem_of(glob: str) -> str:
    """Why this glob is refused; "" = it is not."""
    parts = parts_of(glob)
    if not parts or "\x00" in glob:
        return "names nothing"
    if len(glob) > MAX_CHARS or len(parts) > MAX_PARTS:
        return f"is longer than {MAX_CHARS} characters or {MAX_PARTS} folders"
    if ".." in parts:
        return "may not contain `..`"
    if any("**" in part for part in parts):
        return "may not contain `**`: name a folder with `/` at its end, it is removed with its content"
    return _absolute_problem(parts) if is_absolute(glob) else ""


def _absolute_problem(parts: List[str]) -> str:
    if is_magic(parts[0]):
        return "must have a first folder without wildcards"
    if parts[0] in SYSTEM_FOLDERS:
        return f"may not be below /{parts[0]}, which belongs to the system"
    return "" if len(parts) > 1 else f"must name something below /{parts[0]}"


def is_absolute(glob: str) -> bool:
    return glob.startswith("/")


def names_folders(glob: str) -> bool:
    return glob.endswith("/")


def parts_of(glob: str) -> List[str]:
    """Without empty parts and `.`."""
    return [part for part in glob.split("/") if part not in ("", ".")]


def is_magic(part: str) -> bool:
    """Has a wildcard."""
    return _MAGIC.search(part) is not None


def matches(name: str, part: str) -> bool:
    """Hidden names match only a part that begins with a dot, as in a shell."""
    return _compiled(part).match(name) is not None and (part.startswith(".") or not name.startswith("."))


@lru_cache(maxsize=256)
def _compiled(part: str) -> Pattern[str]:
    return re.compile(fnmatch.translate(part))
