"""Object stores on a host over a real sshd: a transfer that is cut or stalls goes on at its byte."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract.baton import FileEntry
from supervisor.contract.stores.folder import FolderStore
from supervisor.objectstores.copying import carry
from supervisor.ports.objectstore import ABSENT, ObjectMissing, PreconditionFailed, StayStore, StoreUnavailable
from supervisor.remote import stays
from supervisor.remote.connections import Connections
from supervisor.remote.stays import HostRelay
from tests.providers.ssh_machines import SshSubject
from tests.waiting import wait_for

STAY, RUN = "digits-1.1.1", "digits"
KEY = f"runs/{RUN}/checkpoints/10-a1/model.bin"
SIZE = 24 << 20


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[SshSubject]:
    subject = SshSubject(tmp_path)
    yield subject
    subject.end_all()


@pytest.fixture
def relay(subject: SshSubject) -> Iterator[HostRelay]:
    transfers = Connections(subject.config, subject.known_hosts, waits=False)
    yield subject.provider.relay("sup-1", transfers)
    transfers.close()


def made(relay: HostRelay) -> tuple[StayStore, FolderStore]:
    """(the store from here, the same as its agents open it)"""
    store = relay.make("gpu1", STAY, RUN)
    return store, FolderStore.at(store.url)


def test_an_object_is_written_compared_and_read_over_the_connection(relay: HostRelay) -> None:
    store, there = made(relay)
    info = store.put("runs/digits/baton.json", b"one", ABSENT, {"beat": "x"})
    assert there.get("runs/digits/baton.json") == (b"one", info)
    with pytest.raises(PreconditionFailed):
        store.put("runs/digits/baton.json", b"two", ABSENT)
    second = store.put("runs/digits/baton.json", b"two", info.generation)
    assert store.get("runs/digits/baton.json") == (b"two", second)
    assert b"".join(store.read("runs/digits/baton.json", 1)) == b"wo"
    assert [each.key for page in store.pages("runs/") for each in page.objects] == ["runs/digits/baton.json"]
    assert store.delete("runs/digits/baton.json")
    for call in (store.get, store.stat):
        with pytest.raises(ObjectMissing):
            call("runs/digits/baton.json")
    assert [stay.run_id for stay in relay.stays("gpu1")] == [RUN]
    relay.forget("gpu1", STAY)
    assert relay.stays("gpu1") == ()
    with pytest.raises(StoreUnavailable):  # a store that is gone is not an object that is gone
        store.get("runs/digits/baton.json")


def in_the_middle(parts: Path, act: Callable[[], None]) -> threading.Thread:
    """Acts once a part of the file is there."""

    def wait_and_act() -> None:
        wait_for(lambda: any(path.stat().st_size >= SIZE // 8 for path in parts.glob("*")), 60)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


@pytest.mark.parametrize("how", ["cut", "stalled"])
def test_a_checkpoint_that_is_interrupted_goes_on_at_its_byte(
    how: str, subject: SshSubject, relay: HostRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stays, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(stays, "PIECE_S", 3.0)
    store, there = made(relay)
    content = os.urandom(SIZE)
    there.put(KEY, content)
    own, parts = FolderStore.create(tmp_path / "own"), tmp_path / "parts"
    entry = FileEntry(KEY, SIZE, hashlib.sha256(content).hexdigest())
    host = subject.hosts[0]
    thread = in_the_middle(parts, host.stop if how == "cut" else lambda: host.signal(signal.SIGSTOP))
    with pytest.raises(StoreUnavailable):
        carry(store, own, entry, parts)
    thread.join()
    host.start() if how == "cut" else host.signal(signal.SIGCONT)
    (part,) = parts.iterdir()
    kept, offsets = part.stat().st_size, []
    piece = relay.piece

    def noted(zone: str, method: str, within_s: float, **values: Any) -> Any:
        offsets.append(values["offset"])
        return piece(zone, method, within_s, **values)

    monkeypatch.setattr(relay, "piece", noted)
    wait_for(lambda: carried(store, own, entry, parts), 60, "the rest of the checkpoint")
    assert kept >= SIZE // 8
    assert min(offsets) == kept
    assert own.get(KEY)[0] == content
    assert not parts.exists()
    wait_for(lambda: not subject.provider.machines().unreachable, 60, "the probes to be there too")


def test_a_shutdown_ends_a_transfer_at_once(subject: SshSubject, relay: HostRelay, tmp_path: Path) -> None:
    """A piece has most of a minute: the stop of a supervisor does not wait for it."""
    store, there = made(relay)
    content = os.urandom(SIZE)
    there.put(KEY, content)
    own, parts = FolderStore.create(tmp_path / "own"), tmp_path / "parts"
    host, ended_at = subject.hosts[0], [0.0]

    def stop() -> None:
        host.signal(signal.SIGSTOP)
        ended_at[0] = time.monotonic()
        relay.end()

    thread = in_the_middle(parts, stop)
    with pytest.raises(StoreUnavailable, match="the supervisor stops"):
        carry(store, own, FileEntry(KEY, SIZE, hashlib.sha256(content).hexdigest()), parts)
    assert time.monotonic() - ended_at[0] < stays.PIECE_S / 3
    thread.join()
    host.signal(signal.SIGCONT)
    with pytest.raises(StoreUnavailable, match="the supervisor stops"):
        store.get(KEY)


def carried(store: StayStore, own: FolderStore, entry: FileEntry, parts: Path) -> bool:
    """False while the host is being connected again."""
    try:
        carry(store, own, entry, parts)
    except StoreUnavailable:
        return False
    return True
