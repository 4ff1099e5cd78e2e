"""Machines that are Jobs of a Kubernetes cluster, in one namespace, with the rights of that namespace only.

A launch creates the Job, whose name is the machine's, then the Secret that belongs to it: the pod waits until the
Secret is there, and the Job takes it along. A lost answer is no problem: the same launch finds its Job by name and
labels, and makes the Secret that is missing. A pod that waits is not obtained yet, and while the last listing shows it,
the repeated launch sends no request. A wait that does not end by itself ends the try, after the Job was deleted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from supervisor.domain.machines import (
    LAUNCH_LABEL,
    RUN_LABEL,
    SUPERVISOR_LABEL,
    Machine,
    MachineListing,
    MachineRef,
    MachineState,
    Offer,
)
from supervisor.domain.profile import Profile
from supervisor.images.registry import Registries
from supervisor.machinefolder import secrets
from supervisor.ports.provider import (
    ImageHidden,
    LaunchFailed,
    LaunchRejected,
    LaunchRequest,
    Meters,
    NotSupported,
    ProviderUnavailable,
)
from supervisor.ports.traits import Traits
from supervisor.providers.kubernetes import objects
from supervisor.providers.kubernetes.api import Api, ApiError, own
from supervisor.providers.kubernetes.machines import Sighting
from supervisor.providers.kubernetes.profile import profile
from supervisor.providers.kubernetes.settings import KubernetesSettings, labels_of, offers
from supervisor.providers.kubernetes.survey import Entry, Surveyor
from supervisor.providers.kubernetes.traits import TRAITS
from supervisor.providers.kubernetes.waiting import NOT_CREATED, creation_refused, refusal

LISTED_S = 90.0  # a listing that is older does not answer a repeated launch
AGENT_AGAIN_S = 3600.0  # somebody may have deleted the agent's ConfigMap since
UNCLEAR_KEPT_S = 3600.0  # then a repeated launch that is refused waits for SETTLED_S once more
SETTLED_S = 90.0  # how long a create without a clear response may still make its Job: the API ends a request after 60 s
TAIL_LINES = 5000
MOST_LOG_BYTES = 32 * 1024 * 1024  # kubelets keep 10 MiB of a log, unless the cluster says otherwise
GPU_LABELS = ("gpu.product", "accelerator", "gpu-name", "instance-gpu-name")


class KubernetesProvider:
    """Provider of ports/provider.py. `name`: of its section in the settings. `agent()`: the archive. `on`: the day of
    the settings, YYYY-MM-DD. `public_url`: where machines reach the supervisor, "" = they do not. `prefix`: of the
    names of machines."""

    traits: Traits = TRAITS
    meters: Meters | None = None

    def __init__(
        self,
        name: str,
        s: KubernetesSettings,
        api: Api,
        *,
        agent: Callable[[], Path],
        on: str,
        public_url: str = "",
        prefix: str = "spot",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.api, self._settings, self._agent = name, api, s, agent
        self._public_url, self._prefix, self._monotonic = public_url, prefix, monotonic
        self._surveyor = Surveyor(api, s, monotonic)
        self._profile, self._offers = profile(s, on), offers(name, s)
        self._registries = Registries(_no_account)
        self._lock = threading.Lock()
        self._listed: tuple[float, Mapping[str, Entry]] = (float("-inf"), {})  # monotonic time, machines by name
        self._complete: set[str] = set()  # UIDs of Jobs whose Secret was created by this process
        self._unclear: dict[str, float] = {}  # name -> until when an earlier create may still make its Job
        self._agent_due: dict[str, float] = {}  # name of a ConfigMap -> when it is created again

    def close(self) -> None:
        self.api.close()

    def profile(self, zone: str = "") -> Profile:
        return self._profile

    def pin(self, image: str) -> str:
        return self._registries.pin(image)

    def offers(self) -> tuple[Offer, ...]:
        return self._offers

    def gpus(self, shape: str) -> str:
        count = self._settings.kubernetes_gpus.get(shape, 0)
        if not count:
            return ""
        labels = labels_of(self._settings.kubernetes_nodes.get(shape, ""))
        kinds = [value for key, value in labels.items() if key.endswith(GPU_LABELS)]
        kind = (kinds[0] if kinds else "GPU")[:30]
        return kind if count == 1 else f"{count} × {kind}"

    # --- launching ----------------------------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest) -> Machine:
        waiting = self._waiting(request) if request.repeated else None
        if waiting is not None:
            return self._judged(waiting)
        try:
            body, values = self._prepared(request)
        except LaunchFailed as refused:
            return self._unless_present(request, refused)
        self.api.keep_place()
        try:
            self._create_agent()
            created = self.api.create(self.api.jobs(), body)
        except ApiError as error:
            if error.name_taken:
                return self._adopted(request, self._existing(request))
            refused_job = _refused(error)
            if refused_job is None:
                self._note_unclear(request)
                raise
            return self._unless_present(request, refused_job)
        except ProviderUnavailable:
            self._note_unclear(request)
            raise
        uid = str(own(created, "metadata", "uid") or "")
        if not uid:
            self._note_unclear(request)
            raise ProviderUnavailable(f"the cluster has created {request.name} and does not say its UID")
        self._create_secret(request, uid, values)
        return self._machine(self._surveyor.created(created))

    def _waiting(self, request: LaunchRequest) -> Entry | None:
        """This launch's machine in the last listing, where that says all: it waits, and its Secret is there. The Secret
        that has its name may be of an earlier Job, and goes with that: then the pod says that there is none."""
        read_at, entries = self._listed
        entry = entries.get(request.name) if self._monotonic() - read_at < LISTED_S else None
        if entry is None or entry.wait is None or not self._is_own(entry, request):
            return None
        is_complete = entry.sighting.uid in self._complete and entry.wait.text != NOT_CREATED
        return entry if entry.wait.cause is not None or is_complete else None

    def _prepared(self, request: LaunchRequest) -> tuple[objects.Json, Mapping[str, str]]:
        """The Job, and the values of its secrets. Raises LaunchRejected, SecretRefused, ProviderUnavailable."""
        place = request.placement
        if place not in {offer.placement for offer in self._offers}:
            raise LaunchRejected(f"the settings do not offer {place.shape} in {place.zone}")
        body = self.job(request, self.api.namespace)
        objects.check_secrets(request)
        read_here = {name: ref for name, ref in request.secrets.items() if objects.is_read_here(ref)}
        values = secrets.read_all(read_here)
        self._secret(request, "", values)  # raises where it is too large
        return body, values

    def job(self, request: LaunchRequest, namespace: str) -> objects.Json:
        """Raises LaunchRejected."""
        return objects.job(self._settings, request, namespace, objects.agent_of(self._agent()), self._prefix)

    def content(self, request: LaunchRequest) -> dict[str, object]:
        """What the agent reads."""
        return objects.job_json(self._settings, request, self._public_url)

    def _secret(self, request: LaunchRequest, uid: str, values: Mapping[str, str]) -> objects.Json:
        content = self.content(request)
        return objects.secret(request, self.api.namespace, owner_uid=uid, content=content, values=values)

    def _create_agent(self) -> None:
        """The agent's ConfigMap, where it is not known to be there. Raises ApiError, ProviderUnavailable."""
        agent = objects.agent_of(self._agent())
        with self._lock:
            if self._monotonic() < self._agent_due.get(agent.name, float("-inf")):
                return
        try:
            self.api.create(self.api.path("configmaps"), objects.config_map(agent, self.api.namespace))
        except ApiError as error:
            if not error.name_taken:
                raise
        with self._lock:
            self._agent_due[agent.name] = self._monotonic() + AGENT_AGAIN_S

    def _create_secret(self, request: LaunchRequest, uid: str, values: Mapping[str, str]) -> None:
        """A refusal ends the try: without it the pod never starts. Raises LaunchFailed, ProviderUnavailable."""
        try:
            self.api.create(self.api.path("secrets"), self._secret(request, uid, values))
        except ApiError as error:
            refused = None if error.name_taken else _refused(error)
            if refused is not None:
                self._delete(request.name, uid)
                raise refused from None
            if not error.name_taken:
                raise
        with self._lock:
            self._complete.add(uid)

    def _note_unclear(self, request: LaunchRequest) -> None:
        with self._lock:
            self._unclear[request.name] = self._monotonic() + SETTLED_S

    def _is_unclear(self, request: LaunchRequest) -> bool:
        """An earlier call may still make this Job. Of a call of another process nobody knows when it was."""
        now = self._monotonic()
        with self._lock:
            if request.repeated:
                self._unclear.setdefault(request.name, now + SETTLED_S)
            return now < self._unclear.get(request.name, float("-inf"))

    def _unless_present(self, request: LaunchRequest, refused: LaunchFailed) -> Machine:
        """The machine of this launch, if an earlier call created it. Otherwise raises `refused`, or ProviderUnavailable
        while an earlier call may still create one."""
        unclear = self._is_unclear(request)
        try:
            entry = self._surveyor.read_one(request.name)
        except ProviderUnavailable:
            if unclear:
                raise
            raise refused from None
        if entry is not None and self._is_own(entry, request) and not entry.sighting.is_deleted:
            return self._adopted(request, entry)
        if unclear:
            text = f"{request.name} was requested before and may still appear. The repeat was refused: {refused}"
            raise ProviderUnavailable(text) from refused
        raise refused

    def _existing(self, request: LaunchRequest) -> Entry:
        """Of a name that the cluster has. Raises ProviderUnavailable; LaunchRejected for another launch's."""
        entry = self._surveyor.read_one(request.name)
        if entry is None:
            raise ProviderUnavailable(f"the cluster says both that {request.name} exists and that it does not")
        if not self._is_own(entry, request):
            labels = entry.sighting.labels
            owner = f"launch {labels.get(LAUNCH_LABEL, 'unknown')} of run {labels.get(RUN_LABEL, 'unknown')}"
            text = f"Job {request.name} already exists, of {owner}, with the UID {entry.sighting.uid}"
            raise LaunchRejected(text)
        if entry.sighting.is_deleted:
            raise ProviderUnavailable(f"Job {request.name} of this launch is still being deleted")
        return entry

    def _is_own(self, entry: Entry, request: LaunchRequest) -> bool:
        return entry.sighting.is_of(objects.labels(request, self._prefix))

    def _adopted(self, request: LaunchRequest, entry: Entry) -> Machine:
        """Of an earlier call, with the Secret that this call may not have made."""
        is_asked = entry.machine is not None and entry.machine.state is MachineState.ASKED
        if is_asked and entry.sighting.uid not in self._complete:
            uid = entry.sighting.uid
            try:
                values = self._prepared(request)[1]
            except LaunchFailed:
                self._delete(request.name, uid)
                raise
            self._create_secret(request, uid, values)
        return self._judged(entry)

    def _judged(self, entry: Entry) -> Machine:
        """Raises a refusal for a wait that does not end by itself, after the Job was deleted."""
        if entry.wait is not None and entry.wait.cause is not None:
            self._delete(entry.sighting.name, entry.sighting.uid)
            raise refusal(entry.wait)
        return self._machine(entry)

    @staticmethod
    def _machine(entry: Entry) -> Machine:
        if entry.seen is None:
            raise ProviderUnavailable(entry.problem)
        if entry.machine is not None:
            return entry.machine
        job = entry.sighting
        return Machine(
            job.uid,
            job.name,
            job.zone,
            MachineState.ENDED,
            job.labels.get(SUPERVISOR_LABEL, ""),
            job.labels.get(RUN_LABEL, ""),
            job.labels.get(LAUNCH_LABEL, ""),
            detail="started and already ended",
        )

    # --- reading ------------------------------------------------------------------------------------------------------

    def machines(self) -> MachineListing:
        with self._lock:
            complete_before = set(self._complete)
        entries = self._surveyor.survey()
        uids = {entry.sighting.uid for entry in entries}
        with self._lock:
            self._listed = (self._monotonic(), {entry.sighting.name: entry for entry in entries})
            self._complete -= complete_before - uids  # not those of Jobs that were created meanwhile
            now = self._monotonic()
            self._unclear = {name: until for name, until in self._unclear.items() if until + UNCLEAR_KEPT_S > now}
        unknown = {entry.sighting.zone: entry.problem for entry in entries if entry.seen is None}
        listed = tuple(entry.machine for entry in entries if entry.machine is not None)
        return MachineListing(listed, frozenset(unknown), reasons=unknown)

    def find(self, ref: MachineRef) -> Machine | None:
        entry = self._surveyor.read_one(ref.name)
        if entry is None or not entry.sighting.has_id(ref.machine_id):
            return None
        if entry.seen is None:
            raise ProviderUnavailable(entry.problem)
        return entry.machine

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        if max_bytes <= 0:
            return b""
        entry = self._surveyor.read_one(ref.name)
        if entry is None or not entry.sighting.has_id(ref.machine_id):
            return b""
        return self.log(entry, TAIL_LINES)[-max_bytes:]

    def entry(self, ref: MachineRef) -> Entry | None:
        """None = there is no such machine. Raises ProviderUnavailable."""
        entry = self._surveyor.read_one(ref.name)
        return entry if entry is not None and entry.sighting.has_id(ref.machine_id) else None

    def listed(self, ref: MachineRef) -> Sighting | None:
        """As the last listing shows it; None = it is not there. Sends no request."""
        entry = self._listed[1].get(ref.name)
        return entry.sighting if entry is not None and entry.sighting.has_id(ref.machine_id) else None

    def log(self, entry: Entry, lines: int | None = None, most_bytes: int = MOST_LOG_BYTES) -> bytes:
        """Of its pod, as far as its node keeps it: its last lines, or its first bytes. Empty where the container has
        not begun. Raises ProviderUnavailable."""
        if not entry.sighting.pods:
            return b""
        name = str(own(entry.sighting.pods[0], "metadata", "name"))
        params: dict[str, str | int] = {
            "container": objects.CONTAINER,
            "limitBytes": max(1, min(most_bytes, MOST_LOG_BYTES)),
        }
        try:
            return self.api.content(
                self.api.path("pods", name, more="log"), params | ({} if lines is None else {"tailLines": lines})
            )
        except ApiError as error:
            if error.status in (400, 404):  # it waits to start, or its node has removed it
                return b""
            raise

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        return {
            reference: secrets.problem(reference)
            if objects.is_read_here(reference)
            else objects.secret_problem(reference)
            for reference in references
        }

    # --- ending -------------------------------------------------------------------------------------------------------

    def release(self, ref: MachineRef) -> None:
        """Delete the Job, in the foreground: it is gone when its pod is."""
        job = self.api.find(self.api.jobs(ref.name))
        if job is None:
            return
        uid = str(own(job, "metadata", "uid") or "")
        is_machine = own(job, "metadata", "labels", objects.MACHINE_LABEL) == ref.name
        if is_machine and (not ref.machine_id or ref.machine_id == uid or ref.machine_id.startswith(f"{uid}.")):
            self._delete(ref.name, uid)

    def ask_to_stop(self, ref: MachineRef) -> None:
        raise NotSupported("a pod gets TERM only when it is deleted: its agent reads the .stop marker")

    def _delete(self, name: str, uid: str) -> None:
        self._surveyor.note_release(uid)
        self.api.delete(self.api.jobs(name), uid)


def _refused(error: ApiError) -> LaunchFailed | None:
    """What the refusal of a create says for certain; None = the object may exist, or a repeat may succeed."""
    if error.status in (400, 422):
        return LaunchRejected(f"the cluster refuses the object: {error.message}")
    if error.status == 404 and error.missing:
        return LaunchRejected(f"the cluster refuses the object: {error.message}: change kubernetes_namespace")
    if error.status == 403:
        wait = creation_refused(error.message)
        if wait.cause is None:
            return None
        if "cannot create resource" in error.message:
            return LaunchRejected(f"{error.message}: `spot doctor` shows the rights that are missing")
        return refusal(wait)
    return None


def _no_account() -> str:
    raise ImageHidden("the supervisor has no account of its own for this registry")
