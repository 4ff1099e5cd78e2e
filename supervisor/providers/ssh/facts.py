"""What the gates learn of a host: from its last probe, and from the connection to it.

A reading is kept until the next one of the same host. The object store in a folder is the supervisor's own where its
mark has the same time on both sides. It outlives the host where it lies on a disk of the supervisor's computer, or on a
file system of the network; on a disk of the host, which the supervisor has mounted, it ends with the host.

After the first launch of the same code and command on a host the connection is ended once on purpose: what beats after
that lives without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from supervisor.contract.cards import card_of
from supervisor.contract.stores.durable import MARKER
from supervisor.domain.gates.checks import MEASURED_S, PROVEN_S
from supervisor.domain.machines import HostFacts
from supervisor.domain.profile import Fact, Profile, Source, Survival, Tier, day_of, merge
from supervisor.host.operations import file_system
from supervisor.lifecycle.gates.access import LOGIN_MAX_S
from supervisor.ports.provider import LaunchRequest
from supervisor.providers.ssh.traits import TRAITS
from supervisor.remote.connections import KEEPALIVE_S, KEEPALIVES, Access, Connections
from supervisor.remote.hosts import Answer

FOLDER_STORE = "file://"
KEY_KNOWN, KEY_DIFFERS = "known", "not the known one"
NOTHING = ("read", "write", "precondition")  # what a host without the store cannot do in it
SAME_MARK_S = 2  # some file systems of the network round the time of a file
READ_AT, TOOK_S = "read_at", "took_s"  # of a probe, by our clock
NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "glusterfs", "afs", "virtiofs")
)
OWN_DISK = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "overlay", "tmpfs"))
SPEC = ("command", "env", "workdir", "code", "conda_env", "venv")  # of a job: what decides how it lives


class Readings:
    """Of all hosts of one provider. `cards_of`: shape -> GPUs of each machine."""

    def __init__(self, connections: Connections, store_url: str, cards_of: Mapping[str, int]) -> None:
        self._connections, self._cards_of = connections, cards_of
        self._store = store_url.removeprefix(FOLDER_STORE) if store_url.startswith(FOLDER_STORE) else ""
        self._mark: int | None = None
        self._cuda: dict[tuple[str, str], str | None] = {}  # host, boot id -> the newest CUDA of its driver
        self._dropped: dict[tuple[str, str, str], float] = {}  # host, run, spec -> when, monotonic
        self._asked_at = 0.0

    def questions(self, probes: Mapping[str, Answer]) -> dict[str, object]:
        """Values of the next probe of all hosts. `probes`: the last ones."""
        self._asked_at = time.monotonic()
        self._mark = _mark(self._store)
        all_known = all((alias, probe["boot_id"]) in self._cuda for alias, probe in probes.items())
        with_cuda = any(self._cards_of.values()) and not (probes and all_known)
        return {"store": self._store, "with_cuda": with_cuda}

    def kept(self, answers: Mapping[str, Answer]) -> dict[str, Answer]:
        """The probes with their time by our clock."""
        read_at, took_s = time.time(), time.monotonic() - self._asked_at
        for alias, answer in answers.items():
            if answer.get("cuda"):
                self._cuda[alias, answer["boot_id"]] = answer["cuda"]
            elif answer.get("cards") is not None:
                self._cuda.setdefault((alias, answer["boot_id"]), None)
        return {alias: {**answer, READ_AT: read_at, TOOK_S: took_s} for alias, answer in answers.items()}

    def with_host(self, profile: Profile, alias: str, probe: Answer | None) -> Profile:
        """The profile with what was read of this host. `probe` None: it was never read."""
        host = host_facts(alias, probe, self._connections.access(alias), self._cards_of, self._refused(probe))
        cuda = None if probe is None else self._cuda.get((alias, probe["boot_id"]))
        facts: dict[str, Any] = {}
        if cuda is not None:
            facts["driver_cuda_max"] = _measured(cuda, host.at, "the head of nvidia-smi")
        if probe is not None and host.store_refused is not None and "read" not in host.store_refused:
            facts["shared_fs"] = _measured(self._store, host.at, "the supervisor has the same store there")
            facts["tiers"] = _store_tiers(self._store, probe, host.at)
        return merge(profile, Profile(TRAITS.kind, "", host=host, **facts))

    def _refused(self, probe: Answer | None) -> tuple[str, ...] | None:
        """None: the store is no folder, or one side could not be read."""
        store = None if probe is None else probe.get("store")
        if store is None or self._mark is None:
            return None
        if store["marked_at"] is None or abs(store["marked_at"] - self._mark) > SAME_MARK_S:
            return NOTHING
        return () if store["writable"] else NOTHING[1:]

    def prove_detached(self, request: LaunchRequest) -> None:
        """Called after a launch that started a machine, or found it."""
        text = json.dumps({name: request.job.get(name) for name in SPEC}, sort_keys=True, default=str)
        key = request.placement.zone, request.run_id, hashlib.sha256(text.encode()).hexdigest()
        now = time.monotonic()
        self._dropped = {each: at for each, at in self._dropped.items() if now - at < PROVEN_S}
        if key not in self._dropped:
            self._dropped[key] = now
            self._connections.end_idle(request.placement.zone)


def host_facts(
    alias: str,
    probe: Answer | None,
    access: Access,
    cards_of: Mapping[str, int],
    store_refused: tuple[str, ...] | None = None,
) -> HostFacts:
    key = None if access.key_known is None else KEY_KNOWN if access.key_known else KEY_DIFFERS
    facts: dict[str, Any] = {
        "host": alias,
        "host_key": key,
        "login_accepted": access.key_accepted,
        "login_s": _login_s(access),
        "keepalive": (KEEPALIVE_S, KEEPALIVES),
        "dropped_at": access.ended_at,
        "cards_of": cards_of,
    }
    if probe is None:
        return HostFacts(at=time.time(), **facts)
    limits = (probe["memory_max_bytes"], probe["memory_bytes"])
    used = 1 - probe["inodes_free"] / probe["inodes"] if probe["inodes"] else None
    cards = probe.get("cards")
    return HostFacts(
        at=probe[READ_AT],
        took_s=probe[TOOK_S],
        free_bytes=int(probe["disk_free_bytes"]),
        inodes_used_pct=None if used is None else 100 * used,
        memory_bytes=min(int(limit) for limit in limits if limit),
        cards=None if cards is None else tuple(map(card_of, cards)),
        store_refused=store_refused,
        **facts,
    )


def _login_s(access: Access) -> float | None:
    """A kept connection logs in once: what was slow then, such as a supervisor that had just started, is not known to
    be slow for ever."""
    is_slow = access.login_s is not None and access.login_s > LOGIN_MAX_S
    return None if is_slow and time.time() - access.login_at > MEASURED_S else access.login_s


def _mark(folder: str) -> int | None:
    """The time of the mark of our own store; None = the store is no folder, or cannot be read now."""
    try:
        return int(os.stat(os.path.join(folder, MARKER)).st_mtime) if folder else None
    except OSError:
        return None


def _store_tiers(folder: str, probe: Answer, at: float) -> tuple[Tier, ...]:
    """Empty: it lies on a disk of the host, whose own tier says what survives."""
    ours, theirs = file_system(os.path.realpath(folder)), str(probe["store"]["system"])
    if ours not in OWN_DISK and theirs in OWN_DISK:
        return ()
    outlives = ours in OWN_DISK or theirs in NETWORK or theirs.startswith("fuse.")
    note = f"its file system is {ours or 'not known'} here, and {theirs or 'not known'} on the host"
    stays = _measured(Survival.YES if outlives else Survival.VERIFY, at, note)
    always = _measured(Survival.YES, at, "a file of the object store")
    return (Tier("object store", (folder,), always, stays, stays, stays),)


def _measured(value: Any, at: float, note: str) -> Fact[Any]:
    return Fact(value, Source.MEASURED, day_of(at), note)
