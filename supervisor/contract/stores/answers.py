"""What the system's errors mean for a store in a folder: absent, full, in the way, or no clear answer at all."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import Iterator

from supervisor.contract.stores.errors import ObjectMissing, StoreFull, StoreUnavailable

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def answering(root: str, marker: str, verb: str, key: str) -> Iterator[None]:
    """Turn errors of the system into the store's, saying what was to be done (`verb`) with which object.

    A file that is not there means ObjectMissing to the verb "read" alone, and only while the store's marker is there.
    """
    doing = "object store %s: cannot %s %r" % (root, verb, key)
    try:
        yield
    except FileNotFoundError as error:
        if not os.path.exists(marker):
            raise StoreUnavailable("%s: there is no object store (is its disk mounted?)" % doing) from error
        if verb == "read":
            raise ObjectMissing(key) from None
        raise StoreUnavailable("%s: %s" % (doing, error.strerror)) from error
    except (NotADirectoryError, IsADirectoryError) as error:
        text = "%s: a file lies in the place of a folder, or a folder in that of a file" % doing
        raise StoreUnavailable(text) from error
    except BlockingIOError as error:
        raise StoreUnavailable("%s: another writer has held its lock for too long" % doing) from error
    except OSError as error:
        if error.errno in _FULL:
            text = "%s: no space or no inodes left; the object is as it was, free some space" % doing
            raise StoreFull(text) from error
        raise StoreUnavailable("%s: %s" % (doing, error.strerror or error)) from error
