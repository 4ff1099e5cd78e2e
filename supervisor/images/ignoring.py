"""Patterns of git's ignore files: what does the last word of a list on a path say?

For somebody who walks a folder from its top and does not look into what is left out: so a pattern that fits a folder
above the path has said what it had to say at that folder. gcloud's lists are git's with one difference: a lone `*`
fits names of the top folder only, which is why `*` and `!src/` together send all of src.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable

from pathspec import GitIgnoreSpec

_LONE_STAR = re.compile(r"^(!?)\*(/?)\s*$")
_FOLDER = "ps_d"  # the library's name of the group


def parsed(lines: Iterable[str]) -> GitIgnoreSpec:
    """ValueError for a line that is no pattern of git's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of odd sets such as [[]
        try:
            return GitIgnoreSpec.from_lines(lines)
        except re.error as error:
            raise ValueError(str(error)) from error


def parsed_as_gcloud(lines: Iterable[str]) -> GitIgnoreSpec:
    """Of a .gcloudignore. ValueError as above."""
    return parsed(_LONE_STAR.sub(r"\1/*\2", line) for line in lines)


def last_word(path: str, spec: GitIgnoreSpec) -> bool | None:
    """`path` with a slash at its end for a folder. True: left out, False: taken back, None: not named by the list."""
    for pattern in reversed(spec.patterns):
        if pattern.include is not None and pattern.regex is not None and _names(pattern.regex, path):
            return pattern.include
    return None


def _names(regex: re.Pattern[str], path: str) -> bool:
    """Does it name the path itself? The library marks the slash at which it matched a folder; `*/` is nothing but that
    slash, so each one counts."""
    for match in regex.finditer(path):
        if match.groupdict().get(_FOLDER) is None or match.end(_FOLDER) == len(path):
            return True
    return False
