"""Reading what the command may have replaced by anything: a pipe would block for ever, a device has no end, and a link
may lead to what is nobody's business (the log would carry it into the store)."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO, Optional

# What lies there is no file that we could read, and waiting would not make it one.
_NONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EACCES, errno.EPERM)


def open_plain(path: str) -> Optional[BinaryIO]:
    """The file; None when there is none that can be read as a plain file. OSError: the disk does not answer."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NONE:
            return None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")
