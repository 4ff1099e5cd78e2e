"""What it costs to believe an upload: the file is stored, read back and hashed, beside a plain copy and its sha256.

Both lie on the same disk and both are on it at the end (the copy is synced too: an upload that is not durable proves
nothing). Measured in turns, so that a disk that is slow for a while is slow for both.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from supervisor.agent.checkpoints.snapshots import ResultsFolder
from supervisor.agent.life.results import ResultsUploader
from supervisor.agent.store.access import Retrier
from supervisor.contract.stores.folder import FolderStore
from tests.benchmarks.row import FULL, Bench, Figure, Row, Size

MEGABYTES = 256
PREFIX = "runs/digits-7/results/g1/"


def upload_and_verify(size: Size) -> dict[str, Figure]:
    megabytes = MEGABYTES if size == FULL else 16
    with tempfile.TemporaryDirectory(prefix="spot-bench-") as name:
        folder = Path(name)
        results = folder / "results"
        results.mkdir()
        file = results / "model.bin"
        _fill(file, megabytes)
        store = FolderStore.create(folder / "objects")
        uploads, copies, unsynced = [], [], []
        for _ in range(size.times):
            copies.append(_copy(file, folder / "copy", sync=True))
            uploads.append(_upload(store, results))
            unsynced.append(_copy(file, folder / "copy", sync=False))
        took_s, plain_s = statistics.median(uploads), statistics.median(copies)
    note = {
        "upload_s": round(took_s, 4),
        "unsynced_copy_s": round(statistics.median(unsynced), 4),
        "megabytes": megabytes,
    }
    return {"upload_verify_ratio": Figure(took_s / plain_s, plain_s, note=note)}


def _fill(path: Path, megabytes: int) -> None:
    with path.open("wb") as target:
        for _ in range(megabytes):
            target.write(os.urandom(1 << 20))
        target.flush()
        os.fsync(target.fileno())


def _upload(store: FolderStore, results: Path) -> float:
    began = time.perf_counter()
    uploader = ResultsUploader(store, ResultsFolder(str(results)), PREFIX, retrier=Retrier(lambda: False))
    [entry] = uploader.upload()
    took_s = time.perf_counter() - began
    store.delete(PREFIX + entry.name)
    return took_s


def _copy(source: Path, target: Path, sync: bool) -> float:
    began = time.perf_counter()
    shutil.copyfile(source, target)
    if sync:
        descriptor = os.open(target, os.O_RDWR)
        os.fsync(descriptor)
        os.close(descriptor)
    with target.open("rb") as copied:
        digest = hashlib.sha256()
        for chunk in iter(lambda: copied.read(1 << 20), b""):
            digest.update(chunk)
    took_s = time.perf_counter() - began
    target.unlink()
    return took_s


BENCHES = (Bench(upload_and_verify, (Row("upload_verify_ratio", "ratio", target=1.5),)),)
