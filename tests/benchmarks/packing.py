"""How fast a folder of code becomes a bundle: half text, half bytes that do not shrink, in large files and in small."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

from supervisor.cli.files.pack import packed
from supervisor.contract.bundle import Opened
from tests.benchmarks import scene
from tests.benchmarks.row import AT_LEAST, Bench, Figure, Row, Size

LARGE_BYTES, SMALL_BYTES, SMALL_FILES = 1_000_000, 4_000, 2_000
PIECE_BYTES = 1 << 18


def pack(size: Size) -> Mapping[str, Figure]:
    """Walked, read, hashed, compressed and written; what is read lies in the page cache."""
    with scene.folder() as folder:
        _fill(folder, 40 if size.seconds >= 10 else 4)
        speeds = [_packed(folder) for _ in range(size.times)]
        with packed(folder) as bundle:
            began = time.perf_counter()
            opened = Opened(iter(lambda: bundle.file.read(PIECE_BYTES), b""))
            for _, content in opened.files():
                for _ in content:
                    pass
            open_mb_per_s = bundle.index.size / 1e6 / (time.perf_counter() - began)
            if opened.sha256 != bundle.index.sha256:
                raise AssertionError("the bundle that was packed is not the one that was opened")
            known = {
                "files": len(bundle.index.members),
                "mb": round(bundle.index.size / 1e6, 1),
                "packed_mb": round(bundle.index.stored_bytes / 1e6, 1),
                "open_mb_per_s": round(open_mb_per_s),
            }
    return {"pack_mb_per_s": Figure(statistics.median(speeds), note=known)}


def _packed(folder: Path) -> float:
    began = time.perf_counter()
    with packed(folder) as bundle:
        return bundle.index.size / 1e6 / (time.perf_counter() - began)


def _fill(folder: Path, large: int) -> None:
    ours = Path(__file__).parents[2] / "supervisor"
    text = b"".join(path.read_bytes() for path in sorted(ours.rglob("*.py")))
    text *= 1 + LARGE_BYTES // len(text)
    for number in range(large):
        (folder / f"large-{number}.txt").write_bytes(text[number * 10 : number * 10 + LARGE_BYTES])
        (folder / f"large-{number}.bin").write_bytes(os.urandom(LARGE_BYTES))
    for number in range(SMALL_FILES):
        place = folder / f"package-{number % 20}"
        place.mkdir(exist_ok=True)
        (place / f"module-{number}.py").write_bytes(text[number * 100 : number * 100 + SMALL_BYTES])


BENCHES = (Bench(pack, (Row("pack_mb_per_s", "MB/s", AT_LEAST, 100.0),)),)
