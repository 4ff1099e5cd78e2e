"""What a listing of a real cluster says, and what it leaves open where Slurm does not answer."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.host.folders import Folder, Record
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.slurm.cluster import ClusterReader, Commands
from supervisor.providers.slurm.jobs import Keeper
from supervisor.providers.slurm.site import Here
from supervisor.providers.slurm.survey import Queue
from tests.contracts.provider_subject import ref
from tests.providers.slurm_cluster import SlurmCluster, running
from tests.providers.slurm_machines import Calls, SlurmSubject, jobs_of, queue
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with running() as cluster:
        yield cluster


@pytest.fixture
def subject(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmSubject]:
    subject = SlurmSubject(cluster, tmp_path)
    yield subject
    subject.end_all()


class TestReading:
    def test_an_end_that_left_the_queue_is_in_the_history(
        self, subject: SlurmSubject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request = subject.request()
        machine = subject.up(request)
        subject.cluster.run("scancel", subject.job_id(request))
        wait_for(lambda: not queue(subject), 30, "the job to end")
        later = subject.fresh()
        monkeypatch.setattr(later._surveyor.queue, "jobs", tuple)
        monkeypatch.setattr("supervisor.providers.slurm.survey.YOUNG_S", -3600.0)
        calls = Calls(later)
        (over,) = later.machines().machines
        assert over.record is not None
        assert (over.machine_id, over.record.cause) == (machine.machine_id, Cause.MACHINE_DELETED)
        assert [words[:2] for words in calls.made if words[0] == "sacct"] == [("sacct", "--completion")]
        calls.made.clear()
        assert later.machines().machines == (over,)
        assert calls.made == [], "an end is read once"

    @pytest.mark.parametrize("remembers", [True, False])
    def test_where_accounting_is_off_the_controller_says_how_it_ended_and_then_forgets_it(
        self, subject: SlurmSubject, monkeypatch: pytest.MonkeyPatch, remembers: bool
    ) -> None:
        """What it has forgotten is gone without a cause: the baton and the last beat say how the work ended."""
        request = subject.request()
        machine = subject.up(request)
        subject.cluster.run("scancel", subject.job_id(request))
        wait_for(lambda: not queue(subject), 30, "the job to end")
        later = subject.fresh()
        off = replace(later.cluster.read(), keeper=Keeper.CONTROLLER)
        monkeypatch.setattr(later.cluster, "read", lambda: off)
        monkeypatch.setattr(later._surveyor.queue, "jobs", tuple)
        monkeypatch.setattr("supervisor.providers.slurm.survey.YOUNG_S", -3600.0)
        calls = Calls(later)
        calls.instead = lambda words: None if remembers else ""
        causes = [each.record.cause for each in later.machines().machines if each.record is not None]
        assert causes == ([Cause.MACHINE_DELETED] if remembers else [])
        assert [words[:3] for words in calls.made] == [("scontrol", "show", "job")]
        assert (later.find(ref(request, machine.machine_id)) is None) == (not remembers)
        assert (subject.folder(request) / "gone.json").exists() == (not remembers)

    def test_where_the_history_does_not_answer_the_partition_is_unknown(
        self, subject: SlurmSubject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request, other = subject.request(), subject.request(run="other", zone=1)
        subject.up(request)
        subject.up(other)
        calls = Calls(subject.provider)
        jobs = tuple(job for job in jobs_of(subject) if job.name.machine == other.name)
        monkeypatch.setattr(subject.provider._surveyor.queue, "jobs", lambda: jobs)
        monkeypatch.setattr("supervisor.providers.slurm.survey.YOUNG_S", -3600.0)

        def away(words: tuple[str, ...]) -> None:
            if words[0] == "sacct":
                raise ProviderUnavailable("slurmdbd is away")

        calls.instead = away
        listing = subject.provider.machines()
        assert listing.unreachable == {"spot"}
        assert "slurmdbd is away" in listing.reasons["spot"]
        assert [machine.name for machine in listing.machines] == [other.name]
        with pytest.raises(ProviderUnavailable, match="slurmdbd is away"):
            subject.provider.find(ref(request))
        assert not (subject.folder(request) / "gone.json").exists()

    def test_an_end_that_cannot_be_written_down_hides_no_other_and_is_written_later(
        self, subject: SlurmSubject, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        requests = [subject.request(run=f"run-{number}") for number in range(3)]
        for request in requests:
            subject.up(request)
        subject.cluster.cancel_all()
        monkeypatch.setattr("supervisor.providers.slurm.survey.SETTLED_AT_ONCE", 2)
        writes = Folder.write_record

        def full(folder: Folder, record: Record) -> None:
            if folder.name == requests[1].name:
                raise OSError(errno.EDQUOT, "Disk quota exceeded")
            writes(folder, record)

        with monkeypatch.context() as quota:
            quota.setattr(Folder, "write_record", full)
            assert len(subject.provider.machines().machines) == 3
        written = [(subject.folder(request) / "record.json").exists() for request in requests]
        assert written == [True, False, True]
        assert f"such as that of {requests[1].name}: [Errno 122] Disk quota exceeded" in caplog.text
        assert len(subject.provider.machines().machines) == 3
        assert (subject.folder(requests[1]) / "record.json").exists()

    def test_a_job_that_was_submitted_after_the_queue_was_read_is_not_gone(
        self, subject: SlurmSubject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The broken variant: without the floor of age, the machine would be settled as gone."""
        request = subject.request()
        subject.provider.launch(request)
        with monkeypatch.context() as older:
            older.setattr(subject.provider._surveyor.queue, "jobs", tuple)
            assert subject.provider.machines().machines == ()
        assert not (subject.folder(request) / "gone.json").exists()
        assert subject.up(request).state is MachineState.UP

    def test_both_forms_of_the_queue_say_the_same(self, subject: SlurmSubject) -> None:
        request, waiting = subject.request(), subject.request(run="waits", zone=1)
        subject.up(request)
        subject.provider.launch(waiting)
        subject.cluster.run("scontrol", "requeue", subject.job_id(request))
        names, later = {request.name, waiting.name}, subject.fresh()._surveyor
        later.queue._json = False

        def same() -> bool:
            both = (jobs_of(subject), later.queue.jobs())
            first, second = ({job.name: job for job in jobs if job.name.machine in names} for jobs in both)
            return first == second

        wait_for(same, 30, "two equal readings")
        restarts = {job.name.run_id: job.restarts for job in later.queue.jobs() if job.name.machine in names}
        assert restarts == {"digits": 1, "waits": 0}

    def test_a_word_that_nobody_knows_makes_its_partition_unknown(
        self, subject: SlurmSubject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request, other = subject.request(), subject.request(run="other", zone=1)
        subject.up(request)
        seen = subject.up(other)
        jobs = [replace(j, state="NAPPING") if j.name.machine == request.name else j for j in jobs_of(subject)]
        monkeypatch.setattr(subject.provider._surveyor.queue, "jobs", lambda: tuple(jobs))
        listing = subject.provider.machines()
        assert listing.unreachable == {"spot"}
        assert "NAPPING" in listing.reasons["spot"]
        assert listing.machines == (seen,)

    def test_a_cluster_without_json_is_read_as_text(self, subject: SlurmSubject) -> None:
        request = subject.request()
        subject.up(request)
        calls = Calls(subject.provider)

        def without_json(words: tuple[str, ...]) -> Any:
            return "squeue: error: no JSON here" if "--json" in words else None

        calls.instead = without_json
        assert subject.listed(request) is not None
        assert [("--json" in words) for words in calls.made if words[0] == "squeue"] == [True, False]
        subject.listed(request)
        assert [("--json" in words) for words in calls.made if words[0] == "squeue"] == [True, False, False]

    @pytest.mark.parametrize("change", ["Hidden=YES", "AllowGroups=root"])
    @pytest.mark.skipif(os.geteuid() != 0, reason="the user of the tests is the cluster's own user, who sees all")
    def test_a_partition_that_is_hidden_or_forbidden_later_hides_no_job(
        self, subject: SlurmSubject, monkeypatch: pytest.MonkeyPatch, change: str
    ) -> None:
        """As its user without rights sees it. A job that is missing in the queue is gone: another one would start."""
        cluster, nobody = subject.cluster, ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        cluster.folder.chmod(0o755)
        name = change.partition("=")[0]
        cluster.run(
            *nobody, "sbatch", "--partition=spot", f"--job-name={name}:b:c:1.1.1:d", "--chdir=/tmp",
            "--output=/dev/null", "--export=NONE", "--wrap=sleep 60",
        )  # fmt: skip
        other = cluster.submit_prod(60, exclusive=False)
        try:
            cluster.run("scontrol", "update", "PartitionName=spot", change)
            site = Here(cluster.folder, Path)
            command = site.command
            monkeypatch.setattr(site, "command", lambda words, *rest: command([*nobody, *words], *rest))
            commands = Commands(site, str(cluster.conf))
            assert "spot" in ClusterReader(commands, time.time).read_now().partitions, "its time limit counts"
            of_nobody = Queue(commands)
            for is_json in (False, True):
                of_nobody._json = is_json
                names = {job.name.machine for job in of_nobody.jobs()}
                assert name in names
                assert names <= {"Hidden", "AllowGroups"}, "of no other user"
        finally:
            cluster.run("scontrol", "update", "PartitionName=spot", "Hidden=NO", "AllowGroups=ALL")
            cluster.run("scancel", other)
            cluster.run("scancel", "--user=nobody")
            wait_for(cluster.idle, what="two idle nodes")

    @pytest.mark.parametrize(
        ("file", "content"),
        [
            ("starts", b"\0\0\0\0\0"),
            ("starts", b"\xff\xfe\n"),
            ("starts", b"x" * 1_000_000),
            ("submitted.json", b'{"job_id": "12x", "at": 1}'),
            ("submitted.json", b'{"job_id": "12", "at": "x"}'),
            ("record.json", b'{"cause": "of_a_later_version", "detail": "", "at": 1}'),
        ],
    )
    def test_a_damaged_file_makes_one_partition_unknown_and_hides_no_other_machine(
        self, subject: SlurmSubject, file: str, content: bytes
    ) -> None:
        request, other = subject.request(), subject.request(run="other", zone=1)
        subject.up(request)
        living = subject.up(other)
        subject.cluster.run("scancel", subject.job_id(request))
        wait_for(lambda: len(queue(subject)) == 1, 30, "the job to end")
        (subject.folder(request) / file).write_bytes(content)
        listing = subject.provider.machines()
        assert (listing.unreachable, listing.machines) == ({"spot"}, (living,))
        assert len(listing.reasons["spot"]) < 1000
        with pytest.raises(ProviderUnavailable):
            subject.provider.find(ref(request))
        with pytest.raises(ProviderUnavailable):
            subject.provider.release(ref(request))

    def test_one_command_for_many_machines(self, subject: SlurmSubject) -> None:
        for number in range(5):
            subject.provider.launch(subject.request(run=f"run-{number}", zone=number % 2))
        calls = Calls(subject.provider)
        assert len(subject.provider.machines().machines) == 5
        assert [words[0] for words in calls.made] == ["squeue"]

    def test_a_command_that_hangs_is_given_up(self, subject: SlurmSubject) -> None:
        began = time.monotonic()
        with pytest.raises(ProviderUnavailable, match=r"sleep did not answer within 0\.2 s"):
            subject.provider.commands.run("sleep", "30", timeout_s=0.2)
        assert time.monotonic() - began < 10

    def test_a_command_that_is_missing_says_so(self, subject: SlurmSubject) -> None:
        with pytest.raises(ProviderUnavailable, match="is this computer a part of the cluster"):
            subject.provider.commands.run("no-such-command")

    def test_no_variable_of_slurm_or_of_the_supervisor_reaches_a_command(
        self, subject: SlurmSubject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("SBATCH_PARTITION", "SLURM_JOB_ID", "SPOT_TOKEN", "SQUEUE_FORMAT"):
            monkeypatch.setenv(name, "x")
        names = {line.partition("=")[0] for line in subject.provider.commands.run("env").splitlines()}
        assert {name for name in names if name.startswith(("SBATCH_", "SPOT_", "SQUEUE_", "SLURM_"))} == {
            "SLURM_CONF", "SLURM_TIME_FORMAT",
        }  # fmt: skip

    def test_folders_without_a_job_are_removed_in_time(
        self, subject: SlurmSubject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One of a submit that was never made, and one of a machine that is gone and was not released."""
        never, gone = subject.request(run="never"), subject.scripted(subject.request(), runs_s=0.1)
        calls = Calls(subject.provider)

        def unsent(words: tuple[str, ...]) -> None:
            if words[0] == "sbatch":
                raise ProviderUnavailable("it was not sent")

        calls.instead = unsent
        with pytest.raises(ProviderUnavailable):
            subject.provider.launch(never)
        calls.instead = lambda words: None
        subject.provider.launch(gone)
        subject.gone(gone)
        wait_for(lambda: not queue(subject), 30, "the job to end")
        subject.provider.machines()
        assert [subject.folder(each).exists() for each in (never, gone)] == [True, True]
        monkeypatch.setattr("supervisor.providers.slurm.survey.DEAD_KEPT_S", -1.0)
        subject.provider.machines()
        assert [subject.folder(each).exists() for each in (never, gone)] == [False, False]
