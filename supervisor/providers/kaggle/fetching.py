"""Outputs of sessions without the internet, each fetched by a thread of its own while its machine is still asked for.

What stands here is derived from the run's store with each look, so a restart loses nothing but the text of a failure.
A notebook whose output the next session needs is kept: it is the newest one that has the files of the run's newest
checkpoint. What could not be read keeps it too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from supervisor.contract.baton import Baton
from supervisor.contract.parcel import Index, waits_for
from supervisor.ports.objectstore import LeftBy, NotWaitedFor, ObjectStore, OutputLost, StoreUnavailable
from supervisor.ports.opening import Take
from supervisor.ports.provider import LaunchRejected, ProviderUnavailable
from supervisor.providers.kaggle.api import Api
from supervisor.providers.kaggle.kernels import Label, slug_of
from supervisor.providers.kaggle.outputs import is_here, newest_first, open_output, read_baton
from supervisor.providers.kaggle.states import Standing, Stands

RETRY_S = 60.0  # from one failed try to the next
LATE_S = 600.0  # how long after its end Kaggle may not list the output of a version
JOIN_S = 5.0

Begin = Callable[[str, Callable[[], None]], None]  # (slug, work): somewhere else, at once


class Outputs:
    """`objects`: the store of the runs. `take`: as in ports/opening.py. `parts`: a folder for transfers that were cut
    off. `begin` None: threads. Safe to use from every thread."""

    def __init__(
        self,
        api: Api,
        objects: ObjectStore,
        take: Take,
        *,
        parts: Path,
        now: Callable[[], float],
        begin: Begin | None = None,
    ) -> None:
        self._api, self.objects, self._take, self._parts, self._now = api, objects, take, parts, now
        self._begin = begin or self._in_thread
        self._lock = threading.Lock()
        self._running: dict[str, threading.Thread | None] = {}
        self._lost: dict[str, str] = {}
        self._missing_since: dict[str, float] = {}
        self._problem: dict[str, str] = {}
        self._again_at: dict[str, float] = {}
        self._indexes: dict[str, Index] = {}

    def stands(self, label: Label, released: bool) -> Standing:
        """Of a session that is over; begins what is missing. `released`: its machine is not needed any more."""
        slug = slug_of(label.name)
        try:
            read = read_baton(self.objects, label.run_id)
            baton = None if read is None else read[0]
            if baton is None or not waits_for(baton, label.supervisor_id, label.launch_id):
                return Standing(Stands.KEPT if self._is_needed(label, baton) else Stands.PAST)
            if is_here(self.objects, label):
                kept = released and self._is_needed(label, baton)
                return Standing(Stands.KEPT if kept else Stands.HERE)
        except StoreUnavailable as error:
            return Standing(Stands.WAITS, f"its session is over, and the object store cannot be read: {error}")
        with self._lock:
            lost, problem = self._lost.get(slug), self._problem.get(slug, "")
            is_due = self._now() >= self._again_at.get(slug, 0.0)
            begins = lost is None and slug not in self._running and is_due
            if begins:
                self._running[slug] = None
        if lost is not None:
            return Standing(Stands.LOST, f"its work is lost: {lost}")
        if begins:
            self._begin(slug, lambda: self._fetch(slug, label))
        text = f"; the last try ended with: {problem}" if problem else ""
        return Standing(Stands.WAITS, f"its session is over, and its output is being fetched{text}")

    def inputs(self, baton: Baton, labels: Mapping[str, Label]) -> tuple[str, ...]:
        """The notebook whose output the next session begins with. `labels`: slug -> of sessions that are over. Raises
        LaunchRejected, ProviderUnavailable."""
        if baton.checkpoint is None:
            return ()
        for slug in newest_first(labels):
            try:
                if self._index(labels[slug]).has(baton.checkpoint):
                    return (f"{self._api.user}/{slug}",)
            except OutputLost:
                continue
        raise LaunchRejected(
            f"its newest checkpoint (step {baton.checkpoint.step}) is in no output of a notebook here, and a session "
            "without the internet can read nothing else: set kaggle_internet = true, or let it go on where it was"
        )

    def forget(self, slug: str) -> None:
        """Its notebook is deleted, or another one has its name."""
        with self._lock:
            for kept in (self._lost, self._missing_since, self._problem, self._again_at, self._indexes):
                kept.pop(slug, None)

    def close(self) -> None:
        with self._lock:
            threads = [thread for thread in self._running.values() if thread is not None]
        for thread in threads:
            thread.join(JOIN_S)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _is_needed(self, label: Label, baton: Baton | None) -> bool:
        """The output has the newest checkpoint of a run that is not over. Unknown counts as needed."""
        if baton is None or baton.closed is not None or baton.checkpoint is None or baton.done is not None:
            return False
        if baton.supervisor_id != label.supervisor_id:
            return False
        try:
            return self._index(label).has(baton.checkpoint)
        except OutputLost:
            return False
        except ProviderUnavailable:
            return True

    def _index(self, label: Label) -> Index:
        """Raises OutputLost, ProviderUnavailable."""
        slug = slug_of(label.name)
        with self._lock:
            index = self._indexes.get(slug)
        if index is None:
            index = open_output(self._api, label).index
            with self._lock:
                self._indexes[slug] = index
        return index

    def _fetch(self, slug: str, label: Label) -> None:
        problem = "it was cut off"
        try:
            problem = self._tried(slug, label)
        finally:
            with self._lock:
                self._problem[slug], self._again_at[slug] = problem, self._now() + (RETRY_S if problem else 0.0)
                self._running.pop(slug, None)

    def _tried(self, slug: str, label: Label) -> str:
        """Why it has to be tried again; "" = it need not be."""
        try:
            output = open_output(self._api, label)
            by = LeftBy(label.supervisor_id, label.run_id, label.launch_id, slug)
            self._take(self.objects, output, by, self._parts)
            with self._lock:
                self._indexes[slug] = output.index
        except OutputLost as error:
            return self._note_lost(slug, str(error))
        except (ProviderUnavailable, StoreUnavailable) as error:
            return str(error)
        except NotWaitedFor:  # the next look sees it
            pass
        return ""

    def _note_lost(self, slug: str, why: str) -> str:
        """Kaggle may show an output later than the end of its version, so the first look proves nothing."""
        now = self._now()
        with self._lock:
            since = self._missing_since.setdefault(slug, now)
            if now - since >= LATE_S:
                self._lost[slug] = why
        return why

    def _in_thread(self, slug: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"output {slug}", daemon=True)
        with self._lock:
            self._running[slug] = thread
        thread.start()
