"""The code bundle in a fresh folder of this machine, byte for byte what its name says.

The bundle is hashed while it is unpacked. One that differs from its hash is fetched again, a few times, because the
copy on the way may be at fault; after that the command is not started at all. A store that does not answer is waited
for. Nothing in the archive is trusted: its names by the rules of domain/bundle, and each file is made new, through no
link.
"""

from __future__ import annotations

import logging
import os
import shutil
from typing import Iterator, Optional

from supervisor.agent.machine.preparing import Unfit
from supervisor.agent.store.patience import Patience
from supervisor.agent.store.reach import Store
from supervisor.agent.store.transfer import TRIES
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.bundle import BundleRefused, Member, Opened
from supervisor.contract.stores.errors import ObjectMissing

_WHAT = "fetching the code bundle"
_log = logging.getLogger("agent")


def bring(store: Store, sha256: str, folder: str, patience: Patience) -> None:
    """Unpack the bundle into `folder`; nothing else is in it then. Raises Unfit, GaveUp, OSError."""
    for number in range(1, TRIES + 1):
        problem = patience.insist(_WHAT, lambda: _try(store, sha256, folder, patience))
        if problem is None:
            _log.info("code %s unpacked into %s", sha256[:12], folder)
            return
        _log.warning("code %s: %s (try %d of %d)", sha256[:12], problem, number, TRIES)
        if number < TRIES:
            patience.pause(_WHAT, float(number))
    shutil.rmtree(folder, ignore_errors=True)
    text = "%s%s %s (fetched %d times)" % (heartbeat.BAD_CODE, sha256[:12], problem, TRIES)
    raise Unfit(heartbeat.NO_CODE, text)


def _try(store: Store, sha256: str, folder: str, patience: Patience) -> Optional[str]:
    """What is wrong with the bundle, None when it is unpacked. Raises StoreUnavailable and what `bring` raises."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    opened = Opened(_pieces(store, runfiles.code(sha256), patience))
    try:
        for member, content in opened.files():
            _write(folder, member, content)
    except BundleRefused as error:
        return "is damaged: %s" % error
    except ObjectMissing:
        return "is not in the object store"
    return None if opened.sha256 == sha256 else "differs from its checksum"


def _pieces(store: Store, key: str, patience: Patience) -> Iterator[bytes]:
    for piece in store.read(key):
        patience.check(_WHAT)
        yield piece


def _write(folder: str, member: Member, content: Iterator[bytes]) -> None:
    path = os.path.join(folder, member.path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if member.link is not None:
        os.symlink(member.link, path)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o755 if member.executable else 0o644), "wb") as target:
        for piece in content:
            target.write(piece)
