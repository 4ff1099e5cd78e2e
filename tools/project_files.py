"""The files of the project that people wrote, without built, cached and installed ones.

A plain walk instead of git, so that the checks give the same result in an unpacked archive and for new files.
"""

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_OURS = frozenset({"build", "dist", "node_modules", "__pycache__"})
HIDDEN_BUT_OURS = frozenset({".ci", ".github"})


def project_files(root: Path, *suffixes: str) -> Iterator[Path]:
    """All files below root, sorted; with suffixes (".py", ".md") only those."""
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if _is_ours(name))
        for name in sorted(files):
            if not suffixes or name.endswith(suffixes):
                yield Path(folder, name)


def _is_ours(folder: str) -> bool:
    if folder in NOT_OURS or folder.endswith(".egg-info"):
        return False
    return not folder.startswith(".") or folder in HIDDEN_BUT_OURS
