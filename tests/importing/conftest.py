"""A bed whose supervisor reads another store with an old run, hours old."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.ports.objectstore import ObjectReader
from supervisor.services.migration.importing import ImportRequest, import_run
from supervisor.services.parts import Elsewhere, Parts
from tests.fakes.callers import OPS
from tests.fakes.objectstore import MemoryStore
from tests.importing.oldrunner import OLD_ID, old_run
from tests.services.bed import Bed, Client, make_bed
from tests.services.fresh import open_fresh

BUCKET = "gs://old-bucket"
URL = f"{BUCKET}/runs/{OLD_ID}"


@dataclass
class Import:
    bed: Bed
    old: MemoryStore
    parts: Parts

    def lay(self, old_id: str = OLD_ID, aged_s: float = 7200.0, **changed: bytes | None) -> None:
        for key, data in old_run(old_id, **changed).items():
            self.old.put(key, data)
        self.bed.clock.advance(aged_s)

    def __call__(self, url: str = URL, run_id: str | None = None, **more: Any) -> dict[str, Any]:
        self.status, answer = import_run(self.parts, ImportRequest(url, run_id, **more), OPS)
        return answer

    @property
    def client(self) -> Client:
        return Client(replace(self.bed.services, parts=self.parts))

    def snapshot(self) -> list[tuple[str, str, int]]:
        return [(info.key, info.generation, info.size) for page in self.old.pages("") for info in page.objects]


@pytest.fixture
def imports(tmp_path: Path) -> Iterator[Import]:
    with closing(open_fresh(tmp_path / "supervisor.db")) as store:
        bed = make_bed(store, tmp_path)
        old = MemoryStore(bed.clock.now, BUCKET)

        @contextmanager
        def opened(url: str) -> Iterator[ObjectReader]:
            if url != BUCKET:
                raise ValueError("only the old bucket can be read")
            yield old

        elsewhere = Elsewhere(opened, tmp_path / "imports", lambda: "supervisor@p.iam.gserviceaccount.com")
        yield Import(bed, old, replace(bed.parts, elsewhere=elsewhere))
