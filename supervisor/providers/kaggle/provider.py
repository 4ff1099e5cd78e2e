"""Machines that are sessions of Kaggle notebooks: pushed as a private version, which runs without a browser.

Each launch has a notebook of its own. What Kaggle stores has a ticket, and no job and no secret: the session claims
its job from the supervisor, and is obtained when it has. A push does not end a version that runs before it, so nothing
is pushed while another notebook of the run is queued or running. A lost answer is no problem: the same launch finds
its notebook by the slug and the first line of its source. Only the running session knows the id by which it can be
cancelled, and says it with its claim.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.parcel import Parcel
from supervisor.domain.machines import Capacity, Machine, MachineListing, MachineRef, MachineState, Offer, Quota
from supervisor.domain.profile import Profile
from supervisor.machinefolder import secrets
from supervisor.machinefolder.provider import launch_values
from supervisor.ports.claims import Claims, Handover
from supervisor.ports.objectstore import ObjectMissing, StoreUnavailable
from supervisor.ports.provider import (
    CapacityInUse,
    LaunchRejected,
    LaunchRequest,
    Meters,
    NotSupported,
    ProviderUnavailable,
)
from supervisor.ports.traits import Traits
from supervisor.providers.kaggle import profile as profiles
from supervisor.providers.kaggle.api import Api, KaggleError, Push
from supervisor.providers.kaggle.fetching import Outputs
from supervisor.providers.kaggle.hours import WeeklyHours
from supervisor.providers.kaggle.kernels import reason_in, slug_of
from supervisor.providers.kaggle.outputs import read_baton
from supervisor.providers.kaggle.pushing import Apart, Origin, Pusher
from supervisor.providers.kaggle.settings import CPU, GPU, TPU, Accelerator, KaggleSettings, accelerator_of, offers
from supervisor.providers.kaggle.states import Session, Stands
from supervisor.providers.kaggle.survey import Entry, Survey, Surveyor
from supervisor.providers.kaggle.traits import TRAITS, traits_of
from supervisor.wording.figures import clock_text

LISTED_S = 90.0  # a listing that is older does not answer a repeated launch
MOST_PUSHES = 2  # of a session that ended before its notebook reported
START_S = 180.0  # from the start of a session to the start of its agent
PACKING_S = 300.0  # for its output, where it has no internet
WARNING_LEAST_S, WARNING_MOST_S = TRAITS.warning_s, 3600.0
REASON_CHARS = 300


class KaggleProvider:
    """Provider and LendsHours of ports/provider.py, and HandsOver of ports/claims.py. `name`: of its section in the
    settings. `claims` None: nothing can be claimed here, so nothing is launched. `on`: the day of the settings,
    YYYY-MM-DD. `now`: epoch seconds. `outputs`: of sessions without the internet, None = none is
    launched."""

    meters: Meters | None = None

    def __init__(
        self,
        name: str,
        s: KaggleSettings,
        api: Api,
        *,
        claims: Claims | None,
        origin: Origin,
        on: str,
        now: Callable[[], float],
        outputs: Outputs | None = None,
    ) -> None:
        self.name, self.api, self._settings = name, api, s
        self.traits: Traits = traits_of(s.kaggle_internet)
        self._outputs = outputs
        self._now, self._on = now, on
        self.hours = WeeklyHours(api, s, now)
        self._pusher = Pusher(api, s, origin, claims, now)
        self._surveyor = Surveyor(api, claims, now, s.kaggle_session_cap_s, outputs)
        self._offers = offers(name, s)
        self._pushing = threading.Lock()  # one push at a time: the next one must see it
        self._listed: tuple[float, Survey] = (-math.inf, Survey())

    def close(self) -> None:
        if self._outputs is not None:
            self._outputs.close()
        self.api.close()

    def profile(self, zone: str = "") -> Profile:
        read_at, weekly = self.hours.last
        return profiles.profile(self._settings, self._on, zone, weekly, read_at)

    def pin(self, image: str) -> str:
        return ""

    def offers(self) -> tuple[Offer, ...]:
        return self._offers

    def gpus(self, shape: str) -> str:
        accelerator = accelerator_of(self._settings, shape) if shape else None
        return "" if accelerator is None else accelerator.words

    # --- launching ----------------------------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest) -> Machine:
        self._accelerator(request)
        waiting = self._waiting(request) if request.repeated else None
        if waiting is not None:
            return waiting
        with self._pushing:
            survey = self._surveyor.survey()
            entry = survey.entries.get(request.name) or survey.gone.get(request.name)
            if entry is None and request.repeated:  # the list may be late
                entry = self._surveyor.read_one(request.name)
            if entry is not None:
                return self._existing(request, entry)
            for reason in survey.unread.values():
                raise ProviderUnavailable(f"a session may be running that could not be read: {reason}")
            self._pusher.wait_until_clear(request, is_new=True)
            self._refuse_second(request, survey)
            if self._settings.kaggle_internet:
                secrets.read_all(request.secrets)  # the claim reads them again, and nothing is kept
            self.hours.need(request.placement.zone)
            return self._push(request, 1, survey)

    def _accelerator(self, request: LaunchRequest) -> Accelerator:
        """Raises LaunchRejected."""
        place = request.placement
        accelerator = accelerator_of(self._settings, place.shape)
        if place not in {offer.placement for offer in self._offers} or accelerator is None:
            raise LaunchRejected(f"the settings do not offer {place.shape} in {place.zone}")
        return accelerator

    def _waiting(self, request: LaunchRequest) -> Machine | None:
        """This launch's machine in the last listing, where that says all."""
        read_at, survey = self._listed
        entry = survey.entries.get(request.name) if self._now() - read_at < LISTED_S else None
        if entry is None or entry.machine is None or entry.session.never_came or not _is_own(entry, request):
            return None
        return entry.machine

    def _existing(self, request: LaunchRequest, entry: Entry | Machine) -> Machine:
        """Raises LaunchRejected for another launch's; what `_never_came` raises."""
        if isinstance(entry, Machine):
            return entry
        label = entry.session.label
        if not _is_own(entry, request):
            owner = f"launch {label.launch_id} of run {label.run_id} of supervisor {label.supervisor_id}"
            raise LaunchRejected(f"notebook {slug_of(request.name)} of {request.name} already exists, of {owner}")
        if entry.machine is None:
            raise ProviderUnavailable(entry.problem)
        return self._never_came(request, entry.session) if entry.session.never_came else entry.machine

    def _never_came(self, request: LaunchRequest, session: Session) -> Machine:
        """Its session is over, and its notebook has not reported: no network, most likely. It is pushed again once,
        with the same flags, because Kaggle may have changed them. Raises LaunchRejected the second time."""
        why = self._why_it_never_came(request, session)
        self._pusher.wait_until_clear(request, is_new=False)
        if session.label.push < MOST_PUSHES:
            return self._push(request, session.label.push + 1, Survey())
        self._surveyor.finish(slug_of(request.name), session)
        raise LaunchRejected(why)

    def _push(self, request: LaunchRequest, number: int, survey: Survey) -> Machine:
        slug = slug_of(request.name)
        apart = None if self._settings.kaggle_internet else self._apart(request, survey)
        try:
            kernel_id, label = self._pusher.push(request, number, self.hours, apart)
        except ProviderUnavailable:
            self._surveyor.forget(slug)  # its source may say something else now
            raise
        machine = self._surveyor.pushed(slug, kernel_id, label).machine
        assert machine is not None  # it is queued
        return machine

    def _apart(self, request: LaunchRequest, survey: Survey) -> Apart:
        """What its session begins with, as it is now. Without the nonce: it is the run's credential, and the supervisor
        puts it in when it has verified the output. Raises LaunchRejected, ProviderUnavailable."""
        if self._outputs is None:
            raise LaunchRejected("the runs' object store is known to the supervisor's own process alone")
        if request.secrets:
            raise LaunchRejected("a session without the internet gets no secrets: set kaggle_internet = true")
        store = self._outputs.objects
        try:
            read = read_baton(store, request.run_id)
            if read is None or read[0].next is None or read[0].next.launch_id != request.launch_id:
                raise ProviderUnavailable(f"the baton of {request.run_id} does not name this launch")
            baton = read[0]._replace(next=read[0].next._replace(nonce=""))
            code = request.job.get("code")
            key = runfiles.code(str(code)) if code else ""
            objects = {key: store.get(key)[0]} if key else {}
        except (StoreUnavailable, ObjectMissing) as error:
            raise ProviderUnavailable(f"what the session begins with cannot be read: {error}") from error
        inputs = self._outputs.inputs(baton, survey.outputs_of(request.supervisor_id, request.run_id))
        job = {name: value for name, value in self._job(request, slug_of(request.name)).items() if name != "nonce"}
        return Apart(Parcel(job, batons.encode(baton), objects), inputs)

    def _why_it_never_came(self, request: LaunchRequest, session: Session) -> str:
        """Raises ProviderUnavailable."""
        slug = slug_of(request.name)
        source = self.api.source(slug)
        if source.internet is False:
            return (
                "Kaggle has switched the internet of the notebook off: verify the phone number of the account in its "
                "settings on Kaggle"
            )
        printed = self.api.log(slug, session.label.push).decode(errors="replace")
        words = (
            session.message or reason_in(printed) or " ".join(printed.split())[-REASON_CHARS:] or "it printed nothing"
        )
        return f"the session ended ({session.word}) before its notebook claimed the job: {words}"

    def _refuse_second(self, request: LaunchRequest, survey: Survey) -> None:
        """Raises CapacityInUse."""
        for entry in survey.living():
            label = entry.session.label
            if (label.supervisor_id, label.run_id) == (request.supervisor_id, request.run_id):
                state = entry.session.word.lower() or "not known"
                raise CapacityInUse(
                    f"notebook {slug_of(label.name)} of this run is {state}, and a push would not end it: the next one "
                    f"is pushed when it is over, by {self._ends_by(entry.session)} at the latest"
                )
        zone = request.placement.zone
        if self._free(survey).get(zone, 1) <= 0:
            most = self._settings.kaggle_sessions
            raise CapacityInUse(f"{most} of our sessions use all of {zone} that kaggle_sessions allows")

    def _free(self, survey: Survey) -> dict[str, int]:
        """Zone -> how many more sessions of ours it may have."""
        used = [entry.session.label.zone for entry in survey.living()]
        zones = dict.fromkeys(offer.placement.zone for offer in self._offers)
        return {zone: self._settings.kaggle_sessions - used.count(zone) for zone in zones}

    def preview_of(self, request: LaunchRequest) -> Push:
        """Raises LaunchRejected."""
        self._accelerator(request)
        return self._pusher.preview(request)

    def quotas(self) -> Mapping[str, Quota]:
        return self.hours.by_shape()

    # --- the claim ----------------------------------------------------------------------------------------------------

    def hand_over(self, request: LaunchRequest) -> Handover:
        """The agent leaves before the session's cap, and before the weekly hours are used up: nothing announces
        either. Raises SecretRefused, LaunchRejected."""
        return Handover(self._job(request, self._machine_id(request)), secrets.read_all(request.secrets))

    def _job(self, request: LaunchRequest, machine_id: str) -> dict[str, object]:
        """Raises LaunchRejected."""
        accelerator = self._accelerator(request)
        values = {
            name: value
            for name, value in launch_values(request).items()
            if name not in ("store_url", "server_url", "server_file")
        }
        most_s = min(self._settings.kaggle_session_cap_s, self.hours.left_s(request.placement.zone))
        warning_s = leaving_s(request.checkpoint_s, most_s, request.timed_out)
        before_s = START_S if self._settings.kaggle_internet else START_S + PACKING_S
        ends_s = max(most_s - min(before_s, most_s / 20) - warning_s, most_s / 4)
        values["machine_max_s"] = min(request.machine_max_s, ends_s)
        values["expiry_s"] = warning_s
        values["machine_id"] = machine_id
        if accelerator.zone == GPU:
            values["gpus"], values["gpu_model"] = max(1, accelerator.cards), accelerator.model
        return values

    def _machine_id(self, request: LaunchRequest) -> str:
        """Raises LaunchRejected, ProviderUnavailable."""
        entry = self._surveyor.read_one(request.name)
        if not isinstance(entry, Entry) or not _is_own(entry, request):
            raise LaunchRejected(f"the notebook of {request.name} is not there any more")
        return entry.session.machine_id

    # --- reading ------------------------------------------------------------------------------------------------------

    def machines(self) -> MachineListing:
        survey = self._surveyor.survey()
        self.hours.follow()
        self._listed = (self._now(), survey)
        zones = frozenset({GPU, TPU, CPU, *(entry.session.label.zone for entry in survey.entries.values())})
        every = survey.unread.get("")
        reasons = dict.fromkeys(zones, every) if every else dict(survey.unread)
        listed = [entry.machine for entry in survey.entries.values() if entry.machine is not None]
        machines = (*listed, *survey.gone.values())
        free = {zone: count for zone, count in self._free(survey).items() if zone not in reasons}
        return MachineListing(machines, frozenset(reasons), Capacity(zones=free), reasons=reasons)

    def find(self, ref: MachineRef) -> Machine | None:
        entry = self._surveyor.read_one(ref.name)
        if isinstance(entry, Machine):
            return entry if ref.machine_id in (None, entry.machine_id) else None
        if entry is None or ref.machine_id not in (None, entry.session.machine_id):
            return None
        if entry.machine is None:
            raise ProviderUnavailable(entry.problem)
        return entry.machine

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        entry = self.entry(ref) if max_bytes > 0 else None
        return b"" if entry is None else self.log(entry)[-max_bytes:]

    def entry(self, ref: MachineRef) -> Entry | None:
        """None = there is no such notebook. Raises ProviderUnavailable."""
        entry = self._surveyor.read_one(ref.name)
        if not isinstance(entry, Entry) or ref.machine_id not in (None, entry.session.machine_id):
            return None
        return entry

    def log(self, entry: Entry) -> bytes:
        """Kaggle has none before the session has printed something."""
        label = entry.session.label
        try:
            return self.api.log(slug_of(label.name), label.push)
        except KaggleError as error:
            if error.status == 404:
                return b""
            raise

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        return {reference: secrets.problem(reference) for reference in references}

    # --- ending -------------------------------------------------------------------------------------------------------

    def release(self, ref: MachineRef) -> None:
        """A session that is over: its notebook is deleted, because a run has one for each attempt, and what it has
        made is in the object store. One that runs is cancelled first, and the next reading deletes it."""
        entry = self._surveyor.read_one(ref.name)
        if not isinstance(entry, Entry):
            if entry is None or ref.machine_id in (None, entry.machine_id):
                self._surveyor.forget(slug_of(ref.name))
            return
        session = entry.session
        if ref.machine_id not in (None, session.machine_id):
            return
        if entry.machine is None:
            raise ProviderUnavailable(entry.problem)
        if session.is_over and session.standing is not None:
            self._release_apart(slug_of(ref.name), session)
        elif session.is_over:
            self._surveyor.finish(slug_of(ref.name), session)
        elif entry.machine.state is not MachineState.ENDING:
            self._cancel(session)

    def _release_apart(self, slug: str, session: Session) -> None:
        """Its notebook is deleted when its output is here or lost, and the next session does not begin with it. Raises
        ProviderUnavailable."""
        assert session.standing is not None
        if session.standing.word is Stands.WAITS:
            raise ProviderUnavailable(f"{slug} is not deleted yet: {session.standing.text}")
        self._surveyor.note_release(slug)
        if not self._surveyor.is_needed(session):
            self._surveyor.finish(slug, session)

    def _cancel(self, session: Session) -> None:
        """Raises ProviderUnavailable, which says when it ends by itself."""
        slug = slug_of(session.label.name)
        if session.label.apart:
            raise ProviderUnavailable(
                f"nothing reaches the session of {slug}, which has no internet: it goes on until its agent leaves, by "
                f"{self._ends_by(session)} at the latest, and then its work is fetched. Canceled on Kaggle, it is lost"
            )
        session_id = "" if session.claim is None else str(session.claim.session.get("id") or "")
        if not (session_id.isascii() and session_id.isdigit()):
            why = "has not reported yet" if session.claim is None else "did not say its id"
            raise ProviderUnavailable(
                f"{slug} cannot be stopped from here, because its session {why}. Its agent leaves when it sees that "
                f"the run is over or elsewhere, and the session ends by {self._ends_by(session)} at the latest"
            )
        refusal = self.api.cancel(int(session_id))
        if refusal:
            text = f"Kaggle does not cancel {slug}: {refusal}. It ends by {self._ends_by(session)} at the latest"
            raise ProviderUnavailable(text)
        self._surveyor.note_release(slug)

    def _ends_by(self, session: Session) -> str:
        """From its claim, else from now: Kaggle does not say when a session has started."""
        begun_at = self._now() if session.claim is None else session.claim.at
        return clock_text(begun_at + self._settings.kaggle_session_cap_s, self._now())

    def ask_to_stop(self, ref: MachineRef) -> None:
        raise NotSupported("nothing reaches a session: its agent reads the .stop marker")


def leaving_s(checkpoint_s: float | None, most_s: float, timed_out: int) -> float:
    """How long before the end of a session its agent leaves: five minutes, or twice the measured time of a checkpoint
    and a minute. Twice as long for each attempt (`timed_out`) that was cut off all the same. At most half of it."""
    wanted = max(WARNING_LEAST_S, 2.0 * (checkpoint_s or 0.0) + 60.0) * 2.0 ** min(timed_out, 6)
    return min(wanted, WARNING_MOST_S, most_s / 2)


def _is_own(entry: Entry, request: LaunchRequest) -> bool:
    return entry.session.label.is_launch(request.supervisor_id, request.run_id, request.launch_id)
