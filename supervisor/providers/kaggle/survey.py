"""All sessions at one instant: one list of the account's notebooks, then the state of each that may still be alive.

Kaggle has no list of sessions, so each living one costs a request; an end is final, and read once. Whose notebook it
is stands in its own source, which is read when it is seen first. A state that could not be read leaves its zone
unread; a notebook whose source could not be read may be of any zone, and leaves all of them unread. What is kept here
between two readings decides nothing but when a session ended, and whether a notebook was deleted while it was alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from supervisor.domain.machines import Machine
from supervisor.ports.claims import Claim, ClaimKey, Claims
from supervisor.ports.provider import ProviderUnavailable, Responded
from supervisor.providers.kaggle.api import Api, KaggleError
from supervisor.providers.kaggle.fetching import Outputs
from supervisor.providers.kaggle.kernels import MARK, Label, is_from_us, label_in, slug_of
from supervisor.providers.kaggle.states import (
    ASKED,
    CANCELED,
    QUEUED,
    Session,
    Standing,
    Stands,
    UnknownState,
    deleted,
    machine_of,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One notebook of ours. `machine` None: its state is unknown, and `problem` says why."""

    session: Session
    machine: Machine | None
    problem: str = ""

    @property
    def is_alive(self) -> bool:
        """Unknown counts as alive."""
        return not self.session.is_over

    @property
    def is_kept(self) -> bool:
        """Only its notebook is left, for the next session."""
        return self.session.standing is not None and self.session.standing.word is Stands.KEPT


@dataclass(frozen=True, slots=True)
class Survey:
    """`entries`: machine name -> its notebook. `gone`: deleted by somebody while they were alive. `unread`: zone ->
    why; "" = of any zone. `kept`: slug -> whose it is, of notebooks that are only kept for their output."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    gone: Mapping[str, Machine] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, Label] = field(default_factory=dict)

    def outputs_of(self, supervisor_id: str, run_id: str) -> dict[str, Label]:
        """Slug -> label, of sessions of this run that are over and had no internet."""
        over = [entry.session.label for entry in self.entries.values() if entry.session.is_over]
        return {
            slug_of(label.name): label
            for label in (*over, *self.kept.values())
            if label.apart and (label.supervisor_id, label.run_id) == (supervisor_id, run_id)
        }

    def living(self) -> Sequence[Entry]:
        return [entry for entry in self.entries.values() if entry.is_alive]


def cannot_tell(slug: str) -> str:
    """What to do about a notebook that may have a session of ours."""
    return (
        f"the first line of notebook {slug} was edited, so nobody can tell whose session it has. Put that line back on "
        "Kaggle (an earlier version has it), or delete the notebook there once its session is over"
    )


class Surveyor:
    """Safe to use from every thread. `cap_s`: of a session. `outputs` None: there is no store to write them into."""

    def __init__(
        self, api: Api, claims: Claims | None, now: Callable[[], float], cap_s: float, outputs: Outputs | None = None
    ) -> None:
        self._api, self._claims, self._now, self._cap_s, self._outputs = api, claims, now, cap_s, outputs
        self._lock = threading.Lock()
        self._labels: dict[str, tuple[int, Label | None]] = {}  # slug -> id of the notebook, whose it is
        self._over: dict[str, Session] = {}  # slug -> its end
        self._alive: dict[str, Machine] = {}  # slug -> as the last reading showed it
        self._gone: dict[str, Machine] = {}
        self._released: set[str] = set()

    def survey(self) -> Survey:
        """Of all supervisors. Raises ProviderUnavailable."""
        listed = {slug: number for slug, number in self._api.slugs().items() if slug.startswith(MARK)}
        claims = self._claimed()
        unlisted, unread = self._unlisted(listed)
        entries: dict[str, Entry] = {}
        kept: dict[str, Label] = {}
        for slug, number in (listed | unlisted).items():
            try:
                label = self._label(slug, number)
            except ProviderUnavailable as error:
                unread[""] = str(error)
                continue
            entry = None if label is None else self._entry(slug, number, label, claims)
            if entry is not None and entry.is_kept:
                kept[slug] = entry.session.label
            if entry is None or entry.is_kept or self._is_finished(slug, entry):
                continue
            entries[entry.session.label.name] = entry
            if entry.machine is None:
                unread[entry.session.label.zone] = entry.problem
        with self._lock:
            return Survey(entries, {machine.name: machine for machine in self._gone.values()}, unread, kept)

    def read_one(self, name: str) -> Entry | Machine | None:
        """A machine alone: deleted by somebody while it was alive. None = Kaggle has no notebook of it. Raises
        ProviderUnavailable."""
        slug = slug_of(name)
        try:
            source = self._api.source(slug)
        except KaggleError as error:
            if not error.may_be_missing or slug in self._api.slugs():
                raise
            with self._lock:
                return self._gone.get(slug)
        label = label_in(source.text)
        if label is None:  # nobody else's notebook has the name of a launch
            raise Responded(cannot_tell(slug))
        self._note(slug, source.kernel_id, label)
        entry = self._entry(slug, source.kernel_id, label, self._claimed())
        return None if entry.is_kept or self._is_finished(slug, entry) else entry

    def pushed(self, slug: str, kernel_id: int, label: Label) -> Entry:
        """A version that was accepted just now."""
        self._forget_output(slug)  # what was missing of an earlier notebook of this name says nothing about this one
        self._note(slug, kernel_id, label)
        with self._lock:
            self._over.pop(slug, None)
            self._released.discard(slug)
        session = Session(label, kernel_id, QUEUED)
        return self._seen(slug, session)

    def is_needed(self, session: Session) -> bool:
        """The next session begins with its output, now that it is released itself."""
        standing = self._outputs.stands(session.label, released=True) if self._outputs is not None else None
        return standing is not None and standing.word in (Stands.KEPT, Stands.WAITS)

    def note_release(self, slug: str) -> None:
        """This supervisor ends that session, or deletes that notebook."""
        with self._lock:
            self._released.add(slug)

    def finish(self, slug: str, session: Session) -> None:
        """Delete the notebook of a session that is over, and forget its claim. Raises ProviderUnavailable."""
        self.note_release(slug)
        self._api.delete_notebook(slug)
        self._forget_output(slug)
        if session.claim is not None and self._claims is not None:
            self._claims.drop(session.label.run_id, session.label.launch_id)
        self.forget(slug)

    def forget(self, slug: str) -> None:
        """It is gone, and nobody asks for it any more. Raises ProviderUnavailable."""
        with self._lock:
            gone = self._gone.get(slug)
        if gone is not None and self._claims is not None:
            self._claims.drop(gone.run_id, gone.launch_id)
        with self._lock:
            for kept in (self._labels, self._over, self._alive, self._gone):
                kept.pop(slug, None)
            self._released.discard(slug)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _forget_output(self, slug: str) -> None:
        if self._outputs is not None:
            self._outputs.forget(slug)

    def _claimed(self) -> Mapping[ClaimKey, Claim]:
        return {} if self._claims is None else self._claims.all()

    def _label(self, slug: str, kernel_id: int) -> Label | None:
        """None = it is a notebook of somebody else. Raises ProviderUnavailable: also where its first line was edited,
        because then it may be anybody's."""
        with self._lock:
            number, label = self._labels.get(slug, (0, None))
        if number != kernel_id:
            text = self._api.source(slug).text
            label = label_in(text)
            if label is None and is_from_us(text):
                raise Responded(cannot_tell(slug))
            self._note(slug, kernel_id, label)
        return label

    def _note(self, slug: str, kernel_id: int, label: Label | None) -> None:
        with self._lock:
            if self._labels.get(slug, (kernel_id, None))[0] != kernel_id:  # a new notebook under an old name
                self._over.pop(slug, None)
            self._labels[slug] = (kernel_id, label)

    def _entry(self, slug: str, kernel_id: int, label: Label, claims: Mapping[ClaimKey, Claim]) -> Entry:
        with self._lock:
            session = self._over.get(slug)
        claim = claims.get((label.run_id, label.launch_id))
        if session is not None and session.label == label:
            return self._seen(slug, self._with_output(slug, replace(session, claim=claim or session.claim)))
        try:
            word, message = self._api.status(slug, label.push)
        except ProviderUnavailable as error:
            return Entry(Session(label, kernel_id, "", claim=claim), None, f"{slug}: {error}")
        return self._seen(slug, self._with_output(slug, Session(label, kernel_id, word, message, claim=claim)))

    def _with_output(self, slug: str, session: Session) -> Session:
        """How its output stands; unlike an end, that changes."""
        if not session.label.apart or not session.is_over:
            return session
        if self._outputs is None:
            standing = Standing(Stands.WAITS, "its session is over, and from here its output is not fetched")
        else:
            with self._lock:
                released = slug in self._released
            standing = self._outputs.stands(session.label, released)
        return replace(session, standing=standing)

    def _seen(self, slug: str, session: Session) -> Entry:
        with self._lock:
            if session.is_over and slug in self._alive and session.ended_at is None:
                session = replace(session, ended_at=self._now())
            try:
                machine = machine_of(session, self._cap_s)
            except UnknownState as error:
                return Entry(session, None, f"{slug}: {error}")
            if session.is_over:
                self._over[slug] = session
                self._alive.pop(slug, None)
            else:
                self._alive[slug] = machine
            return Entry(session, machine)

    def _is_finished(self, slug: str, entry: Entry) -> bool:
        """We have cancelled its session, and it is over: only the notebook is left, which is deleted here. A failure is
        repeated with the next reading."""
        with self._lock:
            released = slug in self._released
        if not released or not entry.session.is_over or entry.session.label.apart:
            return False
        try:
            self.finish(slug, entry.session)
        except ProviderUnavailable:
            return entry.session.word == CANCELED
        return True

    def _unlisted(self, listed: Mapping[str, int]) -> tuple[dict[str, int], dict[str, str]]:
        """Notebooks that were alive and that the list does not have: (those that a direct reading has, zone -> why it
        could not be read). The list may be late; one that neither has is gone."""
        with self._lock:
            missing = {slug: machine for slug, machine in self._alive.items() if slug not in listed}
            for slug in [
                slug for slug in (*self._labels, *self._released) if slug not in listed and slug not in missing
            ]:
                self._labels.pop(slug, None)
                self._over.pop(slug, None)
                self._released.discard(slug)
                self._forget_output(slug)
        there: dict[str, int] = {}
        unread: dict[str, str] = {}
        for slug, machine in missing.items():
            try:
                there[slug] = self._api.source(slug).kernel_id
            except KaggleError as error:
                if error.may_be_missing:
                    self._settle(slug)
                else:
                    unread[machine.zone] = str(error)
            except ProviderUnavailable as error:
                unread[machine.zone] = str(error)
        return there, unread

    def _settle(self, slug: str) -> None:
        with self._lock:
            machine = self._alive.pop(slug)
            released = slug in self._released
            self._released.discard(slug)
            if not released and machine.state is not ASKED:
                self._gone[slug] = deleted(machine, self._now())
