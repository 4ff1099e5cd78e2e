"""Machines that are jobs of a Slurm cluster, with Slurm's own commands on a computer of the cluster.

A launch makes the machine's folder on the shared file system, then submits a job whose name carries the launch. A lost
answer of `sbatch` is no problem: the same launch finds the job by its name. A job that waits is not obtained yet, and
while the last listing shows it, the repeated launch sends no command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor.domain.machines import Machine, MachineListing, MachineRef, MachineState, Offer
from supervisor.domain.profile import Profile
from supervisor.host.jobfolders import JOB_SCRIPT
from supervisor.machinefolder import secrets
from supervisor.machinefolder.observer import as_unavailable
from supervisor.machinefolder.platform import FolderPlatform
from supervisor.machinefolder.provider import launch_values
from supervisor.ports.platform import Account, Login, ShapePrice
from supervisor.ports.provider import (
    LaunchRejected,
    LaunchRequest,
    MachineMissing,
    Meters,
    NotSupported,
    ProviderUnavailable,
)
from supervisor.ports.traits import Traits
from supervisor.providers.slurm import profile as profiles
from supervisor.providers.slurm.cluster import ClusterReader, CommandFailed, Commands, Partition
from supervisor.providers.slurm.jobs import PART, Job, JobName
from supervisor.providers.slurm.machines import NotOver, Sighting, is_over, machine_of
from supervisor.providers.slurm.settings import SlurmSettings, gpu_words, image_of, offers
from supervisor.providers.slurm.site import Here, Site
from supervisor.providers.slurm.states import UnknownState, wait
from supervisor.providers.slurm.submitting import (
    NOTICE_FROM,
    SCRIPT,
    Submit,
    container_words,
    job_id_of,
    limit_s,
    memory_of,
    names_no_node,
    refusal,
    refused,
    walltime_min,
    warning_s,
)
from supervisor.providers.slurm.survey import Kept, Surveyor
from supervisor.providers.slurm.traits import TRAITS

SUBMIT_S = 30.0
LISTED_S = 90.0  # a listing that is older does not answer a repeated launch
CONSOLE_WORDS = 300


class SlurmProvider:
    """Provider of ports/provider.py. `name`: of its section in the settings. `agent()`: the archive. `on`: the day of
    the settings, YYYY-MM-DD. `now`: epoch seconds. `site` None: this computer is a part of the cluster."""

    meters: Meters | None = None

    def __init__(
        self,
        name: str,
        s: SlurmSettings,
        *,
        agent: Callable[[], Path],
        now: Callable[[], float],
        on: str,
        site: Site | None = None,
    ) -> None:
        self.name, self._settings, self._now = name, s, now
        self.traits: Traits = replace(TRAITS, memory_grows=s.slurm_memory_grows)
        self.site: Site = Here(Path(s.slurm_folder), agent) if site is None else site
        self.commands = Commands(self.site, s.slurm_conf)
        self.cluster = ClusterReader(self.commands, now)
        self._surveyor = Surveyor(self.commands, self.cluster, self.site, now)
        self._base = profiles.documented(s, on, profiles.mount_of(s.slurm_folder) if site is None else "")
        self._offers = offers(name, s)
        self._jobs: tuple[float, Mapping[str, Job]] = (0.0, {})  # monotonic time and jobs of the last listing

    def profile(self, zone: str = "") -> Profile:
        return profiles.profile(self._base, self.cluster.last, zone)

    def pin(self, image: str) -> str:
        return ""

    def offers(self) -> tuple[Offer, ...]:
        return self._offers

    def gpus(self, shape: str) -> str:
        count, kind = gpu_words(self._settings.slurm_gres.get(shape, ""))
        if not count:
            return ""
        return (kind.upper()[:30] or "GPU") if count == 1 else f"{count} × {kind.upper()[:30] or 'GPU'}"

    # --- launching ----------------------------------------------------------------------------------------------------

    def launch(self, request: LaunchRequest) -> Machine:
        placement = request.placement
        if placement not in {offer.placement for offer in self._offers}:
            raise LaunchRejected(f"{placement.shape} in partition {placement.zone} is not in the settings")
        name = _name(request)
        job = self._waiting(name) if request.repeated else None
        if job is not None:
            return self._as_machine(name, (job,))
        with as_unavailable(f"launch of {request.name}"), self._surveyor.locked():
            jobs = self._living(name)
            if jobs:
                return self._as_machine(name, jobs)
            kept = self._kept(request)
            ended = None if kept.job is None else self._ended(name, kept)
            return self._submit(request, name) if ended is None else ended

    def _waiting(self, name: JobName) -> Job | None:
        """The job of this launch, if the last listing shows it waiting."""
        read_at, jobs = self._jobs
        job = jobs.get(name.machine) if time.monotonic() - read_at < LISTED_S else None
        return job if job is not None and job.name == name and not is_over(job) else None

    def _living(self, name: JobName) -> tuple[Job, ...]:
        """The jobs of this launch that have not ended. Raises LaunchRejected for another launch of this name,
        ProviderUnavailable."""
        same = [job for job in self._surveyor.queue.jobs() if job.name.machine == name.machine and not is_over(job)]
        other = next((job for job in same if job.name != name), None)
        if other is not None:
            owner = f"launch {other.name.launch_id} of run {other.name.run_id}"
            raise LaunchRejected(f"job {name.machine} already exists, of {owner}")
        return tuple(sorted(same, key=lambda job: int(job.job_id)))

    def _as_machine(self, name: JobName, jobs: tuple[Job, ...]) -> Machine:
        """The oldest one; a later one is of an answer that came too late. Raises a refusal for a wait that does not
        end by itself, after the job was cancelled."""
        first, *late = jobs
        if late:
            self._cancel([job.job_id for job in late])
        try:
            machine = machine_of(Sighting(name, first), {})
        except (UnknownState, NotOver) as error:
            raise ProviderUnavailable(f"{name.machine}: {error}") from None
        assert machine is not None  # the job has not ended
        if machine.state is MachineState.ASKED:
            why = wait(first.state, first.reason)
            if why.cause is not None:
                self._cancel([first.job_id])
                raise refused(why.cause, why.text)
        return machine

    def _kept(self, request: LaunchRequest) -> Kept:
        """Of an earlier call of this launch, or nothing yet. Raises LaunchRejected, ProviderUnavailable, Unreadable."""
        kept = self._surveyor.kept(request.name)
        job = kept.job
        if job is not None and not job.is_of(launch_values(request)):
            raise LaunchRejected(f"machine {job.name} already exists, of launch {job.launch_id} of run {job.run_id}")
        return kept

    def _ended(self, name: JobName, kept: Kept) -> Machine | None:
        """The machine of an earlier call, which is over already. None = there was none."""
        survey = self._surveyor.survey(name.machine)
        sighting = survey.sightings.get(name.machine)
        if name.machine in survey.unread:
            raise ProviderUnavailable(survey.unread[name.machine][1])
        if sighting is None or not (sighting.job or sighting.job_id or sighting.first_start):
            return None
        machine = survey.machines.get(name.machine)
        if machine is not None:
            return machine
        if not kept.has_agent:
            output, _ = self._surveyor.console(name.machine, None, CONSOLE_WORDS)
            words = " ".join(output.decode(errors="replace").split()) or "it printed nothing"
            self._surveyor.mark_released(name.machine)
            raise LaunchRejected(f"job {sighting.machine_id} of {name.machine} ended before its agent began: {words}")
        return Machine(
            sighting.machine_id,
            name.machine,
            name.zone,
            MachineState.ENDED,
            name.supervisor_id,
            name.run_id,
            name.launch_id,
            detail="started and already ended",
        )

    def _submit(self, request: LaunchRequest, name: JobName) -> Machine:
        """The folder first, complete by one rename, then the job. A refusal removes the folder."""
        values = secrets.read_all(request.secrets)
        self.cluster.read()
        submit = self._sbatch(request, name)
        self._surveyor.make(self._job(request, submit), values, "" if self.site.has_script else SCRIPT.read_text())
        try:
            job_id = job_id_of(self._sent(submit))
        except CommandFailed as error:
            definite = refusal(error.stderr)
            if definite is None:
                raise
            self._surveyor.discard(request.name)
            raise definite from None
        except ValueError as error:
            raise ProviderUnavailable(str(error)) from None
        self._surveyor.mark_submitted(request.name, job_id)
        machine = machine_of(Sighting(name, Job(job_id, name, "PENDING", "None", 0, self._now())), {})
        assert machine is not None
        return machine

    def _sent(self, submit: Submit) -> str:
        """What sbatch prints. Raises CommandFailed, and what `run` raises."""
        try:
            return self.commands.run(*submit.words(), timeout_s=SUBMIT_S)
        except CommandFailed as error:
            if not (submit.avoid and names_no_node(error.stderr)):
                raise
        return self.commands.run(*replace(submit, avoid=()).words(), timeout_s=SUBMIT_S)

    def words(self, request: LaunchRequest) -> tuple[str, ...]:
        """The command that submits it, by what is known of the cluster. Sends no request. Raises LaunchRejected."""
        return self._sbatch(request, _name(request)).words()

    def _sbatch(self, request: LaunchRequest, name: JobName) -> Submit:
        s, shape, partition = self._settings, request.placement.shape, self._partition(request)
        folder = Path(s.slurm_folder) / "machines" / request.name
        most_s = None if partition is None else partition.max_s
        gres, image = s.slurm_gres.get(shape, ""), image_of(s, shape, request.placement.zone)
        minutes = walltime_min(request.machine_max_s, limit_s(s.slurm_time), most_s)
        return Submit(
            name=name.text,
            partition=request.placement.zone,
            folder=folder,
            script=SCRIPT if self.site.has_script else folder / JOB_SCRIPT,
            python=s.slurm_python,
            minutes=minutes,
            warning_s=warning_s(request.checkpoint_s, 60.0 * minutes, request.timed_out),
            modules=s.slurm_modules,
            gres=gres,
            cpus=s.slurm_cpus.get(shape, 0),
            memory=memory_of(
                s.slurm_memory.get(shape, ""),
                request.out_of_memory if s.slurm_memory_grows else 0,
                request.memory_bytes,
            ),
            account=s.slurm_account,
            qos=s.slurm_qos,
            avoid=tuple(node for node in request.avoid if PART.fullmatch(node)),
            container=container_words(
                s.slurm_apptainer,
                image,
                gpus=gpu_words(gres)[0],
                folder=s.slurm_folder,
                store_url=str(request.job.get("store_url") or ""),
            )
            if image
            else (),
        )

    def _partition(self, request: LaunchRequest) -> Partition | None:
        cluster = self.cluster.last
        return None if cluster is None else cluster.partitions.get(request.placement.zone)

    def _job(self, request: LaunchRequest, submit: Submit) -> dict[str, object]:
        """job.json. The agent ends its work before the walltime does, also where no signal comes."""
        cluster, partition = self.cluster.last, self._partition(request)
        grace_s = 0.0 if partition is None else partition.grace_s
        gpus, _ = gpu_words(submit.gres)
        digest = image_of(self._settings, request.placement.shape, request.placement.zone).partition("@")[2]
        ends_s = min(request.machine_max_s, 60.0 * submit.minutes - submit.warning_s)
        return {
            **launch_values(request),
            "own_login": True,
            "notice_from": NOTICE_FROM,
            "notice_s": grace_s + (30.0 if cluster is None else cluster.kill_wait_s),
            "machine_max_s": ends_s,
            "expiry_s": 60.0 * submit.minutes - ends_s,
            **({"gpus": gpus} if gpus else {}),
            **({"image_digest": digest} if digest else {}),
        }

    # --- reading ------------------------------------------------------------------------------------------------------

    def machines(self) -> MachineListing:
        survey = self._surveyor.survey()
        with suppress(ProviderUnavailable):  # once an hour; then the profile has fewer measured facts
            self.cluster.read()
        self._jobs = (time.monotonic(), {name: jobs[0] for name, jobs in survey.jobs.items() if len(jobs) == 1})
        return survey.listing(self._settings.slurm_partitions)

    def find(self, ref: MachineRef) -> Machine | None:
        survey = self._surveyor.survey(ref.name)
        if ref.name in survey.unread:
            raise ProviderUnavailable(survey.unread[ref.name][1])
        machine = survey.machines.get(ref.name)
        return machine if machine is not None and survey.sightings[ref.name].has_id(ref.machine_id) else None

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        return self._surveyor.console(ref.name, None, max_bytes)[0] if max_bytes > 0 else b""

    def console_after(self, ref: MachineRef, start: int, max_bytes: int) -> tuple[bytes, int]:
        """(bytes, the offset of the first); a negative start counts from the end. Raises MachineMissing,
        ProviderUnavailable."""
        with as_unavailable(f"console of {ref.name}"):
            sighting = self._surveyor.kept(ref.name).sighting()
            if sighting is None or not sighting.has_id(ref.machine_id):
                raise MachineMissing(f"there is no machine {ref.name}")
            return self._surveyor.console(ref.name, start, max_bytes)

    def follow(self, note: Callable[[Mapping[str, Any]], None]) -> None:
        """Each listing calls `note` with the `beats` of runs whose files are relayed, before it returns."""
        self._surveyor.note_beats = note

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        return {reference: secrets.problem(reference) for reference in references}

    # --- ending -------------------------------------------------------------------------------------------------------

    def release(self, ref: MachineRef) -> None:
        """Cancel the job, also one that Slurm has put back into the queue. Its folder is archived when the job is
        over."""
        with as_unavailable(f"release of {ref.name}"):
            survey = self._surveyor.survey(ref.name)
            sighting, jobs = survey.sightings.get(ref.name), survey.jobs.get(ref.name, ())
            if sighting is None and ref.name in survey.unread:
                raise ProviderUnavailable(survey.unread[ref.name][1])
            if sighting is None or not sighting.has_id(ref.machine_id):
                return
            living = [job.job_id for job in jobs if not is_over(job)]
            try:
                has_folder = self._surveyor.mark_released(ref.name)
            finally:  # also where nothing can be written: a used up quota must not keep a job alive
                if living:
                    self._cancel(living)
            if has_folder and not living:
                self._surveyor.archive(ref.name)

    def ask_to_stop(self, ref: MachineRef) -> None:
        """TERM to the agent, which is the batch shell."""
        survey = self._surveyor.survey(ref.name)
        sighting, jobs = survey.sightings.get(ref.name), survey.jobs.get(ref.name, ())
        if sighting is None or sighting.started_again or not sighting.has_id(ref.machine_id):
            return
        for job in jobs[:1]:
            if not is_over(job):
                self.commands.run("scancel", "--signal=TERM", "--batch", job.job_id)

    def _cancel(self, job_ids: Collection[str]) -> None:
        """Raises ProviderUnavailable."""
        self.commands.run("scancel", *job_ids)


class SlurmPlatform(FolderPlatform):
    """What a user can ask about jobs, beside the machines themselves."""

    place = "a Slurm cluster"

    def __init__(self, provider: SlurmProvider, s: SlurmSettings) -> None:
        super().__init__(provider, Path(s.slurm_folder))
        self._name, self._words, self._folder, self._host = provider.name, provider.words, s.slurm_folder, s.slurm_host

    def account(self) -> Account:
        return Account(self._name)

    def login(self, ref: MachineRef) -> Login:
        job_id = (ref.machine_id or "").partition(".")[0]
        shell = f"srun --jobid={job_id} --partition={ref.zone} --overlap --pty bash -l"
        command = f"ssh -t {self._host} {shell}" if self._host else shell
        return Login(command if job_id.isdigit() else "", f"{self._folder}/machines/{ref.name}")

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        return {
            "kind": "job",
            "argv": list(self._words(request)),
            "folder": f"{self._folder}/machines/{request.name}",
            "job": launch_values(request),
            "secrets": dict(request.secrets),
        }

    def prices(self) -> tuple[ShapePrice, ...]:
        spot = [offer for offer in self._provider.offers() if offer.placement.spot]
        shapes = dict.fromkeys((offer.placement.shape, offer.placement.region) for offer in spot)
        return tuple(ShapePrice(shape, region, 0.0, 0.0, "walltime, no money") for shape, region in shapes)

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        raise NotSupported("a cluster has no prices: its meter is walltime and fairshare")


def _name(request: LaunchRequest) -> JobName:
    """Raises LaunchRejected."""
    zone = request.placement.zone
    name = JobName(request.name, request.supervisor_id, request.run_id, request.launch_id, zone)
    try:
        name.text  # noqa: B018 - raises
    except ValueError as error:
        raise LaunchRejected(str(error)) from None
    return name
