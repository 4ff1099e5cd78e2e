"""A killed purge, and two simultaneous ones: a repeat finishes them, and nothing else is deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.services.runs import purge as purging
from tests.services.bed import Bed
from tests.services.test_purge import FILES, OTHERS, RUN, keys, over, purge_it, the_baton, told


class Killed(BaseException):
    """Like kill -9: nothing after it runs."""


def test_killed_at_any_call_it_is_finished_by_repeating_it(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    over(bed)
    contents = {key: bed.objects.get(key)[0] for key in keys(bed)}
    deeds, cut_at = 0, 0

    def cut(method: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            nonlocal deeds
            deeds += 1
            if deeds == cut_at:
                raise Killed
            return method(*args, **more)

        return call

    for name in ("put", "delete"):
        monkeypatch.setattr(bed.objects, name, cut(getattr(bed.objects, name)))
    while True:
        cut_at, deeds = cut_at + 1, 0
        try:
            purge_it(bed)
        except Killed:
            assert bed.run(RUN).files.purging
        else:
            break
        deeds = 100
        if runfiles.manifest(RUN) not in keys(bed):
            assert batons.pointers(the_baton(bed)) == ()
    assert cut_at > len(FILES) // 2
    assert keys(bed) == {runfiles.baton(RUN), *OTHERS}
    assert set(contents) >= keys(bed)


def test_the_slower_of_two_never_touches_files_of_a_resume(bed: Bed) -> None:
    """While one purge reads a page, the other one finishes, the run is resumed and writes the same keys again."""
    over(bed)
    manifest, begun = runfiles.manifest(RUN), []
    pages = bed.objects.pages

    def overtaken(prefix: str, page_size: int = 1000) -> object:
        for page in pages(prefix, page_size):
            if prefix == runfiles.folder(RUN) and not begun:
                begun.append(True)
                bed.objects.pages = pages  # type: ignore[method-assign]
                purge_it(bed)
                bed.clock.advance(1)
                bed.resume(RUN)
                bed.objects.put(manifest, b"new")
                opened = batons.open_generation(the_baton(bed), 2, False, None)
                bed.objects.put(runfiles.baton(RUN), batons.encode(opened))
            yield page

    bed.objects.pages = overtaken  # type: ignore[method-assign, assignment]
    slower = purge_it(bed)
    assert slower.files == 0
    assert bed.objects.get(manifest)[0] == b"new"
    assert the_baton(bed).closed is None
    assert len(told(bed)) == 3  # two requests, one end


def test_a_page_that_is_rewritten_after_the_read_of_the_row_is_left_alone(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    over(bed)
    checked = purging._Purging._check

    def check(self: purging._Purging) -> None:
        checked(self)
        bed.objects.put(runfiles.manifest(RUN), b"new")

    monkeypatch.setattr(purging._Purging, "_check", check)
    purge_it(bed)
    assert bed.objects.get(runfiles.manifest(RUN))[0] == b"new"
