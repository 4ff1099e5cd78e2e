"""A list whose readers keep what they have decoded and rendered shows what a reader that keeps nothing shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.status import TERMINAL
from supervisor.ports.store import RunFilter
from supervisor.services.reading import queries
from supervisor.services.reading.queries import Queries
from supervisor.storage.rows import rows
from tests.services.bed import COMMAND, Bed, beat, make_bed
from tests.services.fresh import open_fresh

RUNS = ("one", "two", "three")
HISTORY = st.lists(
    st.tuples(
        st.sampled_from(["resume", "train", "end", "settle", "settle", "label", "beat", "pulse", "nothing"]),
        st.sampled_from(RUNS),
        st.sampled_from([0.0, 1.0, 60.0, 3_600.0, 43_200.0, 86_400.0]),
        st.sampled_from(sorted(TERMINAL)),
    ),
    min_size=1,
    max_size=12,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder = tmp_path_factory.mktemp("bed")
    with closing(open_fresh(folder / "supervisor.db")) as store:
        yield make_bed(store, folder)


class Plain(Queries):
    """Renders each run of each list."""

    _listed = Queries._json  # type: ignore[assignment]


def _fresh(bed: Bed) -> Any:
    """The list of a reader that has seen nothing yet."""
    rows._run_again.cache_clear()
    return Plain(bed.parts, bed.inbox, lambda: bed.loop).page(RunFilter(), 100, None)


def _do(bed: Bed, what: str, run_id: str, number: int, status: Any) -> None:
    run = bed.run(run_id)
    if what == "resume" and run.terminal:
        bed.change(run_id, status="pending", settled=False, retiring=(), attempt=None, try_=None, pulse=None)
    elif what == "train" and not run.terminal and run.live_attempt is None:
        bed.train(run_id)
    elif what == "end":  # its machine is kept for a while
        if run.terminal:
            _do(bed, "resume", run_id, number, status)
        bed.train(run_id)
        bed.end(run_id, status, kept_until=bed.clock.now() + 50_000)
    elif what == "settle":
        _settle(bed, run_id, status, str(number))
    elif what == "label":
        with bed.store.begin(bed.clock.now()) as tx:
            tx.put_spec(run, COMMAND, {"number": str(number)})  # no new version of the row
    elif what == "beat" and run.live_attempt is not None:
        bed.inbox.adopt([(beat(run_id, sequence=number + 10, step=number), 0.0)])
    elif what == "pulse" and run.pulse is not None:
        bed.change(run_id, pulse=replace(run.pulse, step=number))


def _settle(bed: Bed, run_id: str, status: Any, detail: str) -> None:
    run, now = bed.run(run_id), bed.clock.now()
    attempt = None if run.attempt is None else replace(run.attempt, ended_at=run.attempt.ended_at or now, gone_at=now)
    fields = {"attempt": attempt, "kept_until": now + 90, "detail": detail, "retiring": ()}
    bed.change(run_id, status=status, status_since=now, settled=True, **fields)


@given(HISTORY)
def test_a_list_shows_the_same_as_one_that_keeps_nothing(shared: Bed, history: list[Any]) -> None:
    bed = shared
    for run_id in RUNS:
        bed.inbox.forget(run_id)
        if bed.store.find(run_id) is None:
            bed.submit(run_id)
        _settle(bed, run_id, "stopped", "")
    keeping = Queries(bed.parts, bed.inbox, lambda: bed.loop)
    for number, (what, run_id, seconds, status) in enumerate(history):
        kept = keeping.page(RunFilter(), 100, None)
        assert kept == keeping.page(RunFilter(), 100, None)
        _do(bed, what, run_id, number, status)
        bed.clock.advance(seconds)
        assert keeping.page(RunFilter(), 100, None) == _fresh(bed)


def test_an_unchanged_row_is_decoded_and_rendered_once(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.submit("one")
    bed.end("one")
    bed.change("one", settled=True, retiring=())
    page = RunFilter(), 100, None
    first = bed.services.queries.page(*page)
    monkeypatch.setattr(rows, "from_plain", lambda *_, **__: pytest.fail("a row was decoded again"))
    monkeypatch.setattr(queries, "run_json", lambda *_: pytest.fail("a run was rendered again"))
    assert bed.services.queries.page(*page) == first


def test_what_a_list_keeps_is_bounded(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "PAGE_MAX", 2)
    for run_id in RUNS:
        bed.submit(run_id)
        bed.change(run_id, settled=True, status="stopped")
        bed.services.queries.page(RunFilter(run_ids=(run_id,)), 1, None)
    assert len(bed.services.queries._settled) <= 2
    assert rows._run_again.cache_info().maxsize == rows.RUNS_KEPT
