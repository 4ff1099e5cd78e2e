"""What befalls jobs on a real cluster: preemption, requeue, a lost node, a person's scancel, answers that are lost."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineState
from supervisor.ports.provider import LaunchRejected, LaunchRequest, ProviderUnavailable, QuotaExceeded
from supervisor.providers.slurm.provider import SlurmPlatform
from supervisor.providers.slurm.settings import SlurmSettings
from supervisor.remote.hosts import Host
from tests.contracts.provider_subject import ref
from tests.providers.local_machines import alive
from tests.providers.slurm_cluster import SlurmCluster, running
from tests.providers.slurm_machines import BehindLoginNode, Calls, SlurmSubject, jobs_of, queue
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


def until_ended(subject: SlurmSubject, request: LaunchRequest) -> Machine:
    """The machine with its record. It must be in every listing until then: a job that is put back is not gone."""

    def look() -> Machine | None:
        machine = subject.listed(request)
        assert machine is not None, "it was absent for a moment"
        return machine if machine.state is MachineState.ENDED else None

    return wait_for(look, 60, "the machine to end")


class TestEnds:
    def test_a_prod_job_preempts_it(self, subject: SlurmSubject) -> None:
        request = subject.request()
        machine = subject.up(request)
        subject.cluster.submit_prod(600.0)
        over = until_ended(subject, request)
        assert over.record is not None
        assert (over.machine_id, over.record.cause) == (machine.machine_id, Cause.PREEMPTED)
        assert "PREEMPTED" in over.record.detail
        assert over.record.at is not None
        assert subject.provider.find(ref(request, machine.machine_id)) == over
        assert "PENDING" in queue(subject), "Slurm has put it back"
        subject.provider.release(ref(request, machine.machine_id))
        subject.gone(request)
        assert "PENDING" not in queue(subject), "the job does not start again beside the next attempt"
        assert not subject.folder(request).exists()

    def test_somebody_puts_it_back_by_hand(self, subject: SlurmSubject) -> None:
        request = subject.request()
        machine = subject.up(request)
        subject.pids(request)
        subject.cluster.run("scontrol", "requeue", subject.job_id(request))
        reasons = ("squeue", "--me", "--noheader", "--format=%r")
        wait_for(lambda: subject.cluster.run(*reasons) == "BeginTime", 30, "the delay of a requeue")
        assert subject.listed(request) is not None, "a job that Slurm will start again later is not gone"
        over = until_ended(subject, request)
        assert over.record is not None
        assert (over.machine_id, over.record.cause) == (machine.machine_id, Cause.PREEMPTED)
        assert "does not say why" in over.record.detail
        starts = subject.folder(request) / "starts"
        wait_for(lambda: len(starts.read_text().split()) == 2, 60, "its second start")
        again = subject.listed(request)
        assert again is not None
        assert not (subject.folder(request) / "secrets.json").exists()
        assert (again.machine_id, again.state) == (machine.machine_id, MachineState.ENDED), "it is no machine"
        identity = subject.folder(request) / "identity.json"
        wait_for(lambda: json.loads(identity.read_text())["machine_id"] != machine.machine_id, 30, "its other id")
        subject.provider.release(ref(request, machine.machine_id))
        subject.gone(request)

    def test_somebody_cancels_it(self, subject: SlurmSubject) -> None:
        request = subject.request()
        subject.up(request)
        subject.cluster.run("scancel", subject.job_id(request))
        over = until_ended(subject, request)
        assert over.record is not None
        assert over.record.cause is Cause.MACHINE_DELETED

    def test_its_walltime_is_over(self, subject: SlurmSubject) -> None:
        request = subject.request()
        subject.up(request)
        subject.cluster.run("scontrol", "update", f"JobId={subject.job_id(request)}", "EndTime=now")
        over = until_ended(subject, request)
        assert over.record is not None
        assert over.record.cause is Cause.TIME_LIMIT

    def test_a_training_that_ends_by_itself_has_no_record(self, subject: SlurmSubject) -> None:
        request = subject.scripted(subject.request(), runs_s=0.2)
        machine = subject.provider.launch(request)
        subject.eventually((subject.folder(request) / "agent.json").exists, "its start")
        subject.gone(request)
        assert subject.provider.find(ref(request, machine.machine_id)) is None
        late = subject.provider.launch(request)
        assert (late.state, late.detail) == (MachineState.ENDED, "started and already ended")

    def test_its_node_is_lost(self, subject: SlurmSubject) -> None:
        request = subject.request()
        machine = subject.up(request)
        pids = subject.pids(request)
        node = subject.cluster.run("squeue", "--me", "--noheader", "--format=%N")
        subject.cluster.kill_node(node)
        try:
            wait_for(lambda: not alive(pids["agent"]), 30, "the agent to be dead")
            over = until_ended(subject, request)
            assert over.record is not None
            assert (over.machine_id, over.record.cause) == (machine.machine_id, Cause.HOST_ERROR)
        finally:
            subject.provider.release(ref(request))
            subject.cluster.start_node(node)
            wait_for(subject.cluster.idle, 60, "the node to be back")

    def test_its_slurmd_is_killed_and_its_agent_lives_on(self, subject: SlurmSubject) -> None:
        """The controller gives the node up and puts the job back, while its first start still works. Its machine has
        ended, the second start is cancelled, and the baton keeps the two apart until slurmd is back."""
        request = subject.request()
        machine = subject.up(request)
        pids = subject.pids(request)
        node = subject.cluster.run("squeue", "--me", "--noheader", "--format=%N")
        subject.cluster.kill_daemon(node)
        try:
            over = until_ended(subject, request)
            assert over.record is not None
            assert (over.machine_id, over.record.cause) == (machine.machine_id, Cause.HOST_ERROR)
            assert alive(pids["agent"])
            subject.provider.release(ref(request, machine.machine_id))
            subject.gone(request)
            wait_for(lambda: not queue(subject), 30, "its second start to be cancelled")
        finally:
            subject.cluster.start_node(node)
            wait_for(subject.cluster.idle, 60, "the node to be back")
        wait_for(lambda: not alive(pids["agent"]), 60, "slurmd to end what the controller has given up")

    @pytest.mark.parametrize("ahead_s", [-90.0, 90.0])
    def test_a_clock_that_is_90_s_off_ends_nothing(self, subject: SlurmSubject, ahead_s: float) -> None:
        """The clock of the supervisor against those of the controller and the nodes."""
        request = subject.request()
        subject.provider = subject.fresh(ahead_s)
        machine = subject.provider.launch(request)
        assert [each.machine_id for each in subject.provider.machines().machines] == [machine.machine_id]
        assert subject.up(request).machine_id == machine.machine_id
        assert subject.folder(request).is_dir()
        subject.cluster.run("scancel", subject.job_id(request))
        over = until_ended(subject, request)
        assert over.record is not None
        assert over.record.cause is Cause.MACHINE_DELETED
        subject.provider.release(ref(request, machine.machine_id))
        subject.gone(request)

    def test_a_stop_is_term_to_the_agent(self, subject: SlurmSubject) -> None:
        request = subject.request()
        machine = subject.up(request)
        pids = subject.pids(request)
        subject.provider.ask_to_stop(ref(request, machine.machine_id))
        wait_for(lambda: not alive(pids["agent"]), 30, "the agent to leave")
        subject.gone(request)

    def test_a_release_kills_an_agent_that_does_not_listen(self, subject: SlurmSubject) -> None:
        request = subject.scripted(subject.request(), bare=True)
        machine = subject.up(request)
        pids = subject.pids(request)
        subject.provider.release(ref(request, machine.machine_id))
        subject.gone(request)
        assert not any(alive(pid) for pid in pids.values() if pid)

    def test_a_release_ends_the_job_also_where_the_quota_of_the_folder_is_used_up(
        self, subject: SlurmSubject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request = subject.request()
        machine = subject.up(request)

        def full(path: Path, text: str) -> None:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

        with monkeypatch.context() as quota:
            quota.setattr("supervisor.host.files.write_text", full)
            with pytest.raises(ProviderUnavailable, match="Disk quota exceeded"):
                subject.provider.release(ref(request, machine.machine_id))
            wait_for(lambda: not queue(subject), 30, "the job to end")
            assert subject.listed(request) is not None, "its folder is still there"
            with pytest.raises(ProviderUnavailable, match="Disk quota exceeded"):
                subject.provider.release(ref(request, machine.machine_id))
        subject.provider.release(ref(request, machine.machine_id))
        subject.gone(request)
        assert not subject.folder(request).exists()


class TestLaunches:
    def test_an_agent_that_never_began_is_a_refusal_with_its_last_words(self, subject: SlurmSubject) -> None:
        request = subject.scripted(subject.request(), refuse=True)
        subject.provider.launch(request)
        subject.gone(request)
        wait_for(lambda: not queue(subject), 30, "the job to end")
        with pytest.raises(LaunchRejected, match=r"ended before its agent began: the scripted agent refuses"):
            subject.provider.launch(request)
        subject.provider.machines()
        assert not subject.folder(request).exists()

    def test_the_lost_answer_of_sbatch_is_adopted_by_name(self, subject: SlurmSubject) -> None:
        request, calls = subject.request(), Calls(subject.provider)

        def lost(words: tuple[str, ...]) -> None:
            if words[0] == "sbatch":
                calls._run(*words)
                raise ProviderUnavailable("the answer was lost")

        calls.instead = lost
        with pytest.raises(ProviderUnavailable):
            subject.provider.launch(request)
        calls.instead = lambda words: None
        machine = subject.fresh().launch(replace(request, repeated=True))
        assert len(queue(subject)) == 1
        assert subject.up(request).machine_id == machine.machine_id

    def test_a_second_job_of_an_answer_that_came_too_late_is_cancelled(self, subject: SlurmSubject) -> None:
        request = subject.request()
        machine = subject.up(request)
        subject.cluster.run(*subject.provider.words(request))
        wait_for(lambda: len(queue(subject)) == 2, 30, "two jobs of one name")
        assert subject.provider.launch(request).machine_id == machine.machine_id
        wait_for(lambda: len(queue(subject)) == 1, 30, "the younger job to be gone")
        assert subject.listed(request) == machine

    def test_a_job_that_waits_is_asked_for_and_says_why(self, subject: SlurmSubject) -> None:
        subject.cluster.submit_prod(600.0)
        wait_for(lambda: queue(subject) == ["RUNNING"], 30, "a full cluster")
        request = replace(subject.request(), repeated=True)
        subject.provider.launch(request)
        waiting = wait_for(
            lambda: (m := subject.listed(request)) and "waits" in m.detail and m, 30, "the reason of the wait"
        )
        assert (waiting.state, waiting.detail) == (MachineState.ASKED, "it waits for free nodes")
        calls = Calls(subject.provider)
        assert subject.provider.launch(request) == waiting
        assert calls.made == [], "the last listing answers the repeated launch"
        subject.provider.release(ref(request))
        assert subject.listed(request) is None

    def test_a_held_job_is_cancelled_and_needs_a_person(self, subject: SlurmSubject) -> None:
        subject.cluster.submit_prod(600.0)
        wait_for(lambda: queue(subject) == ["RUNNING"], 30, "a full cluster")
        request = replace(subject.request(), repeated=True)
        machine = subject.provider.launch(request)
        subject.cluster.run("scontrol", "hold", machine.machine_id.partition(".")[0])
        subject.provider.machines()
        with pytest.raises(LaunchRejected, match="scontrol release"):
            subject.provider.launch(request)
        assert queue(subject) == ["RUNNING"]

    def test_a_limit_of_the_account_is_quota(self, subject: SlurmSubject, monkeypatch: pytest.MonkeyPatch) -> None:
        request = replace(subject.request(), repeated=True)
        subject.up(request)
        limited = [replace(job, state="PENDING", reason="QOSMaxGRESPerUser") for job in jobs_of(subject)]
        monkeypatch.setattr(subject.provider._surveyor.queue, "jobs", lambda: tuple(limited))
        subject.provider.machines()
        with pytest.raises(QuotaExceeded, match="QOSMaxGRESPerUser"):
            subject.provider.launch(request)
        wait_for(lambda: not queue(subject), 30, "the job to be cancelled")

    def test_a_request_that_no_node_can_fulfill_is_refused(self, subject: SlurmSubject) -> None:
        provider = subject.fresh(slurm_memory={"cpu": "9T"})
        with pytest.raises(LaunchRejected, match="Requested node configuration is not available"):
            provider.launch(subject.request())
        assert not subject.folder(subject.request()).exists()

    def test_the_agent_knows_when_slurm_ends_the_job(self, subject: SlurmSubject) -> None:
        """A save of 300 s: the work ends 663 s before the walltime, and all of these are for the save."""
        request = replace(subject.request(), checkpoint_s=300.0, machine_max_s=7200.0)
        calls = Calls(subject.provider)
        subject.up(request)
        job = json.loads((subject.folder(request) / "job.json").read_text())
        assert (job["machine_max_s"], job["expiry_s"]) == (6537.0, 663.0)
        (words,) = [words for words in calls.made if words[0] == "sbatch"]
        assert {"--time=120", "--signal=B:USR1@663"} <= set(words)

    @pytest.mark.parametrize("grows", [False, True])
    def test_only_where_the_settings_say_so_a_job_gets_more_memory(self, subject: SlurmSubject, grows: bool) -> None:
        provider = subject.fresh(slurm_memory={"cpu": "100M"}, slurm_memory_grows=grows)
        words = provider.words(replace(subject.request(), out_of_memory=1))
        assert ("--mem=120M" in words, "--mem=100M" in words) == (grows, not grows)

    def test_the_command_of_the_user_is_in_a_file_and_in_no_word(self, subject: SlurmSubject) -> None:
        request = subject.request()
        command = "python train.py --name '$(id)'; `reboot` \n#SBATCH --nodes=9"
        request = replace(request, job={**request.job, "command": command})
        calls = Calls(subject.provider)
        subject.up(request)
        assert json.loads((subject.folder(request) / "job.json").read_text())["command"] == command
        assert not any("train.py" in word for words in calls.made for word in words)

    def test_secrets_reach_the_agent_and_are_gone_with_the_machine(self, subject: SlurmSubject) -> None:
        request = replace(subject.request(), secrets={"API_KEY": subject.keep_secret("a secret value")})
        subject.up(request)
        subject.pids(request)
        assert json.loads((subject.folder(request) / "given").read_text()) == {"API_KEY": "a secret value"}
        secrets_file = subject.folder(request) / "secrets.json"
        assert secrets_file.stat().st_mode & 0o077 == 0
        subject.provider.release(ref(request))
        subject.gone(request)
        left = [path for path in (subject.data_dir / "shared").rglob("*") if path.is_file()]
        assert not [path for path in left if b"a secret value" in path.read_bytes()]


class TestLoginNode:
    @pytest.fixture
    def subject(self, cluster: SlurmCluster, tmp_path: Path) -> Iterator[BehindLoginNode]:
        subject = BehindLoginNode(cluster, tmp_path)
        yield subject
        subject.end_all()

    def test_while_it_is_away_nothing_is_concluded(self, subject: BehindLoginNode) -> None:
        request = subject.request()
        machine = subject.up(request)
        subject.node.host.stop()
        with pytest.raises(ProviderUnavailable, match="login1"):
            subject.provider.machines()
        with pytest.raises(ProviderUnavailable, match="login1"):
            subject.provider.find(ref(request, machine.machine_id))
        with pytest.raises(ProviderUnavailable, match="login1"):
            subject.provider.launch(subject.request(run="other"))
        with pytest.raises(ProviderUnavailable, match="login1"):
            subject.provider.release(ref(request, machine.machine_id))
        subject.node.host.start()
        assert wait_for(lambda: _listed(subject, request), 60, "the login node to be back") == machine
        assert len(queue(subject)) == 1

    def test_a_folder_store_that_it_does_not_have_refuses_the_launch(self, subject: BehindLoginNode) -> None:
        request = subject.request()
        elsewhere = replace(request, job={**request.job, "store_url": f"file://{subject.data_dir}/nowhere"})
        with pytest.raises(LaunchRejected, match=r"the object store .* is not there"):
            subject.provider.launch(elsewhere)
        assert queue(subject) == []

    def test_an_end_is_read_there_and_costs_one_call_for_all_folders(self, subject: BehindLoginNode) -> None:
        requests = [subject.request(run=f"run-{number}") for number in range(3)]
        for request in requests:
            subject.up(request)
        subject.cluster.cancel_all()
        made, host = list[str](), cast("Any", subject.provider.site).host

        def noted(operation: str, values: Mapping[str, Any], *within_s: float) -> Any:
            made.append(values["words"][0] if operation == "command" else values["method"])
            return Host.call(host, operation, values, *within_s)

        host.call = noted
        causes = {each.record.cause for each in subject.provider.machines().machines if each.record is not None}
        assert causes == {Cause.MACHINE_DELETED}
        assert made == ["squeue", "read", "settle"]
        records = [subject.folder(request) / "record.json" for request in requests]
        assert all(path.exists() for path in records)
        assert (len(subject.provider.machines().machines), made[3:]) == (3, ["squeue", "read"])
        subject.provider._surveyor.queue._json = False
        assert (len(subject.provider.machines().machines), made[5:]) == (3, ["squeue", "entries", "read"])

    def test_its_login_says_where_the_configuration_is(
        self, subject: BehindLoginNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Commands of a login node find slurm.conf by hand only because the login sets SLURM_CONF."""
        monkeypatch.setattr(subject.node.host, "options", {"SetEnv": f"SLURM_CONF={subject.cluster.conf} SLURM_X=1"})
        subject.node.host.stop()
        subject.node.host.start()
        names = subject.fresh(slurm_conf="").commands.run("env").splitlines()
        assert [each for each in names if each.startswith(("SLURM_CONF=", "SLURM_X="))] == [
            f"SLURM_CONF={subject.cluster.conf}"
        ]

    def test_the_shell_on_a_node_goes_through_it(self, subject: BehindLoginNode) -> None:
        request = subject.request()
        machine = subject.up(request)
        platform = SlurmPlatform(subject.provider, SlurmSettings(**subject.settings))
        login = platform.login(ref(request, machine.machine_id))
        assert login.command.startswith(f"ssh -t login1 srun --jobid={machine.machine_id.partition('.')[0]} ")


def _listed(subject: BehindLoginNode, request: LaunchRequest) -> Machine | None:
    """None while the login node does not answer."""
    try:
        return subject.listed(request)
    except ProviderUnavailable:
        return None
