"""Which keys lie in a store's folder, in key order, without looking where none can lie.

A folder sorts as its name and a slash, as it does inside the keys (`a.txt` before `a/b`), and code points sort as their
UTF-8 bytes do, so sorting each folder gives the byte order of the whole keys.
"""

from __future__ import annotations

import os
from typing import Iterator, Optional, Set

MARKER = ".spot-store"
TMP, META, LOCKS = ".tmp", ".meta", ".locks"
RESERVED = (TMP, META, LOCKS, MARKER)
_SCANS = 8


def check_free(key: str) -> None:
    """ValueError when the key or prefix lies where the store keeps its own things."""
    if key.partition("/")[0] in RESERVED:
        raise ValueError("reserved by the store: %r" % key)


def keys_under(root: str, prefix: str) -> Iterator[str]:
    """Keys of whatever lies under `prefix` in the folder `root`, in key order. OSError when a folder cannot be read."""
    above, slash, begins = prefix.rpartition("/")
    waiting = [(above + slash, _names(root, above, begins))]
    while waiting:
        folder, names = waiting[-1]
        name = next(names, None)
        if name is None:
            waiting.pop()
        elif name.endswith("/"):
            key = folder + name
            waiting.append((key, _names(root, key[:-1], "")))
        else:
            yield folder + name


def _names(root: str, folder: str, begins: str) -> Iterator[str]:
    """Sorted names in a folder, those of folders with a slash; none when there is no such folder.

    Some file systems can hide a name from a scan during which another file is renamed to it (tmpfs does, measured,
    in nearly every scan of 3,000 names beside two writers). So a folder is scanned until two scans agree, and a name
    seen in any of them counts.
    """
    path = os.path.join(root, folder)
    names: Set[str] = set()
    last: Optional[Set[str]] = None
    for _ in range(_SCANS):
        try:
            with os.scandir(path) as entries:
                # A link that leads to a folder is not followed: what is listed here may be deleted by a purge.
                found = {
                    e.name + "/" if e.is_dir(follow_symlinks=False) else e.name
                    for e in entries
                    if e.name.startswith(begins)
                }
        except FileNotFoundError:
            found = set()
        names |= found
        if found == last:
            break
        last = found
    if not folder:
        names -= {own for name in RESERVED for own in (name, name + "/")}
    return iter(sorted(filter(_is_text, names)))


def _is_text(name: str) -> bool:
    """False for a name that is not UTF-8: no key reads so, and we never wrote it."""
    if name.isascii():
        return True
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
