"""Which names appeared in a folder by rename: the kernel's own word (inotify), because times cannot tell.

A rename leaves no trace in a file's times on a fast disk, where it happens in the clock tick of the last write. Where
there is no inotify every name counts as written in place, and is taken after its rest time.
"""

from __future__ import annotations

import ctypes
import logging
import os
import struct
from typing import List, Optional

_IN_MOVED_TO = 0x00000080
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_log = logging.getLogger("agent")


class Renames:
    """Watches one folder from its construction on. `descriptor`: readable when there is news; None: it cannot tell."""

    def __init__(self, folder: str) -> None:
        self.descriptor: Optional[int] = None
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            descriptor = libc.inotify_init1(_FLAGS)
            if descriptor < 0:
                raise OSError(ctypes.get_errno(), "inotify_init1")
            self.descriptor = descriptor
            if libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_MOVED_TO) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch")
        except (OSError, AttributeError) as error:
            _log.warning(
                "renames cannot be seen (%s): checkpoints are taken when they have been at rest", error
            )
            self.close()

    def poll(self) -> List[str]:
        """Names that were moved into the folder since the last call, in order. Never blocks; empty when it cannot
        tell."""
        found: List[str] = []
        while self.descriptor is not None:
            try:
                raw = os.read(self.descriptor, 65536)
            except BlockingIOError:
                break
            offset = 0
            while offset < len(raw):
                _, _, _, length = _EVENT.unpack_from(raw, offset)
                offset += _EVENT.size
                name = raw[offset : offset + length].rstrip(b"\0")
                offset += length
                if name:  # else an event of the queue itself
                    found.append(os.fsdecode(name))
        return found

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
