"""Secrets come by standard input: one JSON object {name: value}, complete, before the agent says its name.

Not by its environment, which anybody of the same user reads in /proc for as long as it lives, and not by job.json,
which lies on the disk. An input that ends early means that whoever started the agent died meanwhile: it refuses to
begin and leaves no trace, so the same launch starts it again.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterable

MAX_BYTES = 1 << 25
STDIN = 0


class SecretsMissing(Exception):
    """The text names secrets and holds no value."""


def read_secrets(names: Iterable[str], descriptor: int = STDIN) -> Dict[str, str]:
    """name -> value, for exactly `names`. Nothing is read when there are none. Raises SecretsMissing.

    The descriptor leads to nothing afterwards: no child may read it again.
    """
    wanted = sorted(names)
    if not wanted:
        return {}
    try:
        with open(os.dup(descriptor), "rb") as source:
            data = source.read(MAX_BYTES)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)
    except OSError as error:
        text = "standard input cannot be read (%s); it should bring %s" % (error, ", ".join(wanted))
        raise SecretsMissing(text) from None
    found = _parsed(data)
    missing = [name for name in wanted if not isinstance(found.get(name), str)]
    if missing:
        raise SecretsMissing("standard input ended before it brought %s" % ", ".join(missing))
    return {name: found[name] for name in wanted}


def _parsed(data: bytes) -> Dict[str, Any]:
    """Empty for everything that is no JSON object: what was there may be a part of a value, so nothing tells of it."""
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
