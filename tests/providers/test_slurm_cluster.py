"""What a cluster says about itself: its limits in the profile, the doctor's lines, refused settings."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import FAIL, OK, WARN
from supervisor.domain.profile import NO_LIMIT, Danger, End, Profile, Reach, Source, Survival, danger_clocks, survival
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.slurm import make, settings
from supervisor.providers.slurm.cluster import Cluster, ClusterReader, parse
from supervisor.providers.slurm.doctor import FREE_BYTES, cluster_checks, findings
from supervisor.providers.slurm.jobs import Keeper, Unclear
from supervisor.providers.slurm.profile import documented, mount_of, profile
from supervisor.providers.slurm.provider import SlurmProvider
from supervisor.providers.slurm.settings import SlurmSettings
from supervisor.providers.slurm.site import Here
from supervisor.wiring import settings as wired
from tests.providers import stub_apptainer

# As Slurm 22.05 prints them, shortened.
CONFIG = """\
Configuration data as of 2026-11-26T10:03:30
AccountingStorageType   = accounting_storage/none
ClusterName             = test
JobCompType             = jobcomp/filetxt
KillWait                = 30 sec
MinJobAge               = 300 sec
PreemptMode             = REQUEUE
PreemptType             = preempt/partition_prio
SlurmctldParameters     = enable_configless,preempt_send_user_signal
SLURM_VERSION           = 22.05.8

Slurmctld(primary) at vm is UP
"""
PARTITIONS = """\
PartitionName=spot AllowGroups=ALL Default=YES DefaultTime=NONE GraceTime=4 MaxTime=2-00:00:00 PreemptMode=REQUEUE State=UP TotalCPUs=4 TotalNodes=2
PartitionName=prod AllowGroups=ALL Default=NO GraceTime=0 MaxTime=UNLIMITED PreemptMode=OFF State=UP TotalCPUs=4 TotalNodes=2
PartitionName=old GraceTime=0 MaxTime=UNLIMITED PreemptMode=OFF State=DRAIN TotalNodes=1
"""  # noqa: E501 - the lines of another program
DAY = "2026-11-20"
S = SlurmSettings(slurm_folder="/scratch/me/spot", slurm_partitions=("spot", "prod"))
YES, NO, VERIFY = Survival.YES, Survival.NO, Survival.VERIFY


def here(s: SlurmSettings) -> Here:
    return Here(Path(s.slurm_folder), lambda: Path("/no/agent"))


def cluster(config: str = CONFIG, partitions: str = PARTITIONS) -> Cluster:
    return parse(config, partitions, 1_795_687_437.0)


class TestWhatItSays:
    def test_its_values(self) -> None:
        said = cluster()
        assert (said.name, said.version, said.kill_wait_s, said.min_job_age_s) == ("test", "22.05.8", 30.0, 300.0)
        assert said.warns
        spot, prod = said.partitions["spot"], said.partitions["prod"]
        assert (spot.max_s, spot.grace_s, spot.preempt_mode, spot.nodes) == (172800.0, 4.0, "REQUEUE", 2)
        assert prod.max_s is None

    @pytest.mark.parametrize(
        ("accounting", "completions", "keeper"),
        [
            ("accounting_storage/slurmdbd", "jobcomp/none", Keeper.ACCOUNTING),
            ("accounting_storage/slurmdbd", "jobcomp/filetxt", Keeper.ACCOUNTING),
            ("accounting_storage/none", "jobcomp/filetxt", Keeper.COMPLETIONS),
            ("accounting_storage/none", "jobcomp/elasticsearch", Keeper.CONTROLLER),
            ("accounting_storage/none", "jobcomp/none", Keeper.CONTROLLER),
            ("(null)", "(null)", Keeper.CONTROLLER),
        ],
    )
    def test_who_keeps_the_ends(self, accounting: str, completions: str, keeper: Keeper) -> None:
        config = CONFIG.replace("accounting_storage/none", accounting).replace("jobcomp/filetxt", completions)
        assert cluster(config).keeper is keeper

    @pytest.mark.parametrize(
        ("config", "partitions"),
        [("", PARTITIONS), ("slurm_load_ctl_conf error", PARTITIONS), (CONFIG, "PartitionName=x MaxTime=soon"),
         (CONFIG, "something else")],
    )  # fmt: skip
    def test_an_answer_that_cannot_be_read_is_no_answer(self, config: str, partitions: str) -> None:
        with pytest.raises(Unclear):
            cluster(config, partitions)


class Commands:
    """Stands in for the commands; `trouble`: what they raise."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.trouble: Exception | None = None

    def run(self, *words: str, timeout_s: float = 0.0) -> str:
        self.made.append(words[2])
        if self.trouble is not None:
            raise self.trouble
        return CONFIG if words[2] == "config" else PARTITIONS


class TestReader:
    def test_it_reads_once_an_hour_and_keeps_the_last_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        commands = Commands()
        reader = ClusterReader(commands, lambda: 5.0)  # type: ignore[arg-type]
        assert reader.last is None
        commands.trouble = ProviderUnavailable("away")
        for _ in range(3):
            with pytest.raises(ProviderUnavailable, match="away"):
                reader.read()
        assert commands.made == ["config"], "a cluster that does not answer delays only one tick in a minute"
        commands.trouble, commands.made, reader._due = None, [], 0.0
        assert reader.read() is reader.read() is reader.last
        assert commands.made == ["config", "partition"]
        monkeypatch.setattr("supervisor.providers.slurm.cluster.KEPT_S", -1.0)
        reader = ClusterReader(commands, lambda: 5.0)  # type: ignore[arg-type]
        first = reader.read()
        commands.trouble = ProviderUnavailable("away")
        assert reader.read() is first


class TestProfile:
    BASE = documented(S, DAY)

    def ends(self, path: str) -> list[Survival | None]:
        return [survival(self.BASE, path, end).value for end in End]

    def test_only_the_shared_file_system_survives_the_end_of_a_job(self) -> None:
        assert self.ends("/scratch/me/spot/objects/runs/x") == self.ends("~/x") == [YES, YES, YES, YES]
        assert self.ends("/scratch/me/spot/machines/spot-1-a1-t1/work") == [YES, NO, YES, NO]
        assert self.ends("/tmp/checkpoints") == [VERIFY, NO, NO, NO]  # noqa: S108
        assert self.ends("/dev/shm/x") == [YES, NO, NO, NO]  # noqa: S108

    def test_the_whole_file_system_of_the_folder_is_shared(self) -> None:
        wide = documented(S, DAY, "/scratch")
        assert survival(wide, "/scratch/other/objects", End.REQUEUE).value is YES
        assert survival(self.BASE, "/scratch/other/objects", End.REQUEUE).value is None, "nobody knows"

    def test_it_says_who_opens_the_object_store(self) -> None:
        assert self.BASE.store_reach.value is Reach.DIRECT
        relayed = documented(replace(S, slurm_host="login1", slurm_store="relay"), DAY).store_reach
        assert (relayed.value, relayed.source, relayed.note) == (Reach.RELAY, Source.USER, "the setting slurm_store")

    def test_the_file_system_of_a_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.path.ismount", lambda path: str(path) in ("/", str(tmp_path)))
        assert mount_of(str(tmp_path / "not" / "made" / "yet")) == str(tmp_path)
        monkeypatch.setattr("os.path.ismount", lambda path: str(path) == "/")
        assert mount_of(str(tmp_path)) == ""
        monkeypatch.setattr("os.path.ismount", lambda path: str(path) in ("/", "/dev/shm"))  # noqa: S108
        assert mount_of("/dev/shm/x") == "", "nothing in memory is shared"  # noqa: S108

    def test_nothing_bills_for_ever_and_scancel_ends_the_use(self) -> None:
        assert (self.BASE.meter_stop.value, self.BASE.irreversible.value) == ("scancel", False)
        clocks = {clock.danger: clock for clock in danger_clocks(self.BASE, 0.0)}
        assert (clocks[Danger.BILLS].verb, clocks[Danger.BILLS].after_s) == ("scancel", 86400.0)
        assert (self.BASE.shared_fs.value, self.BASE.shared_fs.source) == ("/scratch/me/spot", Source.USER)

    def test_what_was_read_of_a_partition_is_measured(self) -> None:
        spot = profile(self.BASE, cluster(), "spot")
        assert (spot.notice_s.value, spot.notice_s.source, spot.kill_grace_s.value) == (4.0, Source.MEASURED, 30.0)
        assert (spot.preemptible.value, spot.session_cap_s.value, spot.saving_s) == (True, 172800.0, 34.0)
        prod = profile(self.BASE, cluster(), "prod")
        assert (prod.preemptible.value, prod.session_cap_s.value) == (False, NO_LIMIT)

    def test_without_the_signal_a_preemption_gives_no_notice(self) -> None:
        silent = cluster(CONFIG.replace("preempt_send_user_signal", "power_save_interval=5"))
        assert profile(self.BASE, silent, "spot").notice_s.value == 0.0

    @pytest.mark.parametrize("known", [None, cluster()])
    def test_what_nobody_has_read_is_unknown(self, known: Cluster | None) -> None:
        whole: Profile = profile(self.BASE, known, "")
        assert not whole.notice_s.is_known
        assert not whole.session_cap_s.is_known
        assert not whole.driver_cuda_max.is_known


class TestDoctor:
    def lines(self, said: Cluster, s: SlurmSettings) -> dict[str, tuple[str, str, str]]:
        return {line.name: (line.result, line.fact, line.cause) for line in findings(said, s, here(s))}

    def test_a_good_cluster(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("supervisor.providers.slurm.doctor.FREE_BYTES", 1)
        lines = self.lines(cluster(), replace(S, slurm_folder=str(tmp_path / "new")))
        assert {result for result, _, _ in lines.values()} == {OK}
        assert lines["cluster"][1] == "test, Slurm 22.05.8; ended jobs are in the log of completed jobs"
        assert lines["spot"][1] == "2 nodes, at most 2 d, preempts with 4 s grace"
        assert lines["prod"][1] == "2 nodes, no time limit, no preemption"

    def test_a_preemption_without_a_warning_is_said(self) -> None:
        lines = self.lines(cluster(CONFIG.replace(",preempt_send_user_signal", "")), S)
        assert lines["spot"][::2] == (
            WARN, "SlurmctldParameters has no preempt_send_user_signal, so a preemption gives no warning",
        )  # fmt: skip
        assert lines["prod"][0] == OK

    def test_accounting_that_is_off_is_said(self) -> None:
        result, fact, cause = self.lines(cluster(CONFIG.replace("jobcomp/filetxt", "jobcomp/none")), S)["ends"]
        assert (result, fact) == (WARN, "the controller forgets the end of a job after 5 min (MinJobAge)")
        assert "accounting is off" in cause

    def test_a_partition_that_is_missing_or_down(self) -> None:
        lines = self.lines(cluster(), replace(S, slurm_partitions=("old", "nosuch")))
        assert lines["old"] == (WARN, "1 node, no time limit", "its state is DRAIN")
        assert lines["nosuch"] == (FAIL, "the cluster has no such partition", "it has: spot, prod, old")

    def test_the_shared_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").write_text("")
        assert self.lines(cluster(), replace(S, slurm_folder=str(tmp_path / "file")))["folder"][0] == FAIL
        monkeypatch.setattr("supervisor.providers.slurm.doctor.FREE_BYTES", 2**80)
        lines = self.lines(cluster(), replace(S, slurm_folder=str(tmp_path)))
        assert lines["folder"][::2] == (WARN, "it is almost full")
        assert FREE_BYTES == 10 * 2**30

    def test_a_container_needs_its_program_and_its_image(self, tmp_path: Path) -> None:
        program, image = stub_apptainer.write(tmp_path)
        s = replace(S, slurm_apptainer=str(program), slurm_containers={"cpu": str(image), "spot": "docker://a:1"})
        assert self.lines(cluster(), s)["containers"][:2] == (OK, f"{program} runs on this computer")
        image.unlink()
        lines = self.lines(cluster(), replace(s, slurm_apptainer=str(tmp_path / "none")))
        assert lines[str(image)][:2] == (WARN, "it cannot be read on this computer")
        assert lines["containers"][:2] == (WARN, f"{tmp_path}/none does not run on this computer")
        assert "cannot be started" in lines["containers"][2]
        assert "containers" not in self.lines(cluster(), S)

    def test_a_cluster_that_does_not_answer(self) -> None:
        commands = Commands()
        commands.trouble = ProviderUnavailable("squeue did not answer within 15 s")
        (check,) = cluster_checks(ClusterReader(commands, lambda: 5.0), S, here(S))  # type: ignore[arg-type]
        (line,) = check.ask()
        assert (line.result, line.cause) == (FAIL, "squeue did not answer within 15 s")

    @pytest.mark.parametrize(
        ("printed", "facts"),
        [
            ("root||0.0|100\n lab|me|0.423|72000\n", ["lab: 0.42, with 20 CPU hours used lately"]),
            ("sshare: error: slurmdbd is away", []),
            ("", []),
        ],
    )
    def test_the_fairshare_is_shown_where_the_cluster_keeps_it(
        self, tmp_path: Path, printed: str, facts: list[str]
    ) -> None:
        s = replace(S, slurm_folder=str(tmp_path))
        keeps = CONFIG.replace("accounting_storage/none", "accounting_storage/slurmdbd")

        class WithShares(Commands):
            def run(self, *words: str, timeout_s: float = 0.0) -> str:
                answer = super().run(*words, timeout_s=timeout_s)
                return printed if words[0] == "sshare" else keeps if words[2] == "config" else answer

        (check,) = cluster_checks(ClusterReader(WithShares(), lambda: 5.0), s, here(s))  # type: ignore[arg-type]
        shown = [line.fact.partition(" (")[0] for line in check.ask() if line.name == "fairshare"]
        assert shown == facts


class TestSettings:
    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"slurm_gres": {"h100": "gpu:1"}}, "slurm_gres names h100, which is not one of slurm_shapes"),
            ({"slurm_folder": "scratch"}, "slurm_folder = scratch: expected an absolute path"),
            ({"slurm_time": "soon"}, "slurm_time = soon: expected a time limit"),
            ({"slurm_python": "python3; id"}, "slurm_python = python3; id: expected a program"),
            ({"slurm_account": "a b"}, "slurm_account = a b: expected the name of an account"),
            ({"slurm_modules": ("cuda; id",)}, "slurm_modules = cuda; id: expected names of modules"),
            ({"slurm_modules": ("--help",)}, "slurm_modules = --help: expected names of modules"),
            ({"slurm_host": "-oProxyCommand=x"}, "slurm_host = -oProxyCommand=x: expected a host name"),
            ({"slurm_host_python": "python3 -c x"}, "slurm_host_python = python3 -c x: expected a program"),
            ({"slurm_host": "login1", "slurm_folder": "/a b"}, "slurm_folder = /a b: with slurm_host expected letters"),
            ({"slurm_host": "login1", "slurm_store": "by boat"}, "slurm_store = by boat: expected direct (the nodes"),
            ({"slurm_store": "relay"}, "slurm_store = relay needs slurm_host"),
            ({"slurm_containers": {"h100": "/x.sif"}}, "slurm_containers names h100, which is not one of a shape or"),
            ({"slurm_containers": {"cpu": "/x"}, "slurm_folder": "/a b"}, "with slurm_containers expected letters"),
            ({"slurm_apptainer": "apptainer -d"}, "slurm_apptainer = apptainer -d: expected a program"),
        ],
    )
    def test_a_value_that_makes_no_sense_is_refused(self, change: dict[str, Any], text: str) -> None:
        with pytest.raises(SettingsRefused) as refused:
            settings.check(replace(S, **change))
        assert text in refused.value.detail

    def test_good_values_are_taken(self) -> None:
        settings.check(replace(S, slurm_time="2-00", slurm_modules=("cuda/12.4",), slurm_account="lab-1"))
        settings.check(SlurmSettings())

    @pytest.mark.parametrize("name", ["slurm_folder", "slurm_partitions"])
    def test_what_is_needed_is_named(self, name: str) -> None:
        with pytest.raises(SettingsRefused, match=f"provider = slurm needs {name}"):
            settings.complete(replace(S, **{name: type(getattr(S, name))()}))

    def test_without_slurms_commands_it_says_where_it_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(SettingsRefused, match="run the supervisor on a login node"):
            make.check_ready(S)
        make.check_ready(replace(S, slurm_host="login1"))

    def test_they_are_variables_too(self, tmp_path: Path) -> None:
        environ = {
            "HOME": str(tmp_path), "SPOT_PROVIDER": "slurm", "SPOT_SLURM_FOLDER": "/scratch/me",
            "SPOT_SLURM_PARTITIONS": "Scavenger,gpu_A100", "SPOT_SLURM_SHAPES": "a100", "SPOT_SLURM_CPUS": "a100=8",
            "SPOT_SLURM_GRES": "a100=gpu:a100:1", "SPOT_SLURM_MODULES": "cuda/12.4 gcc",
        }  # fmt: skip
        values = wired.load(environ=environ).sections["slurm"].values
        assert (values.slurm_partitions, values.slurm_gres) == (("Scavenger", "gpu_A100"), {"a100": "gpu:a100:1"})
        assert (values.slurm_cpus, values.slurm_modules) == ({"a100": 8}, ("cuda/12.4", "gcc"))

    @pytest.mark.parametrize("image", ["x.sif", "/a b.sif", "/x.sif;id", "docker://", "docker:///a", "oras://a/b"])
    def test_an_image_is_a_file_or_a_reference(self, tmp_path: Path, image: str) -> None:
        with pytest.raises(SettingsRefused, match="image file or docker:// reference"):
            self.in_a_section(tmp_path, image)

    @pytest.mark.parametrize("image", ["/x/train.sif", "docker://ghcr.io/me/a@sha256:12", "docker://python:3.12"])
    def test_a_partition_with_upper_case_letters_has_its_image(self, tmp_path: Path, image: str) -> None:
        s = self.in_a_section(tmp_path, image)
        assert [settings.image_of(s, "cpu", name) for name in ("gpu_A100", "other")] == [image, ""]

    def in_a_section(self, tmp_path: Path, image: str) -> SlurmSettings:
        file = tmp_path / "spot.toml"
        head = '[providers.c]\nkind = "slurm"\nfolder = "/s"\npartitions = ["gpu_A100"]\n'
        file.write_text(f'{head}containers = {{gpu_A100 = "{image}"}}\n')
        values = wired.load(environ={"HOME": str(tmp_path)}, file=file).sections["c"].values
        assert isinstance(values, SlurmSettings)
        return values

    def test_the_image_of_a_shape_comes_before_that_of_a_partition(self) -> None:
        s = replace(S, slurm_containers={"spot": "/a.sif", "cpu": "/b.sif"})
        assert [settings.image_of(s, shape, "spot") for shape in ("cpu", "a100")] == ["/b.sif", "/a.sif"]

    @pytest.mark.parametrize("name", ["-x", "a:b", "ä", "a;b", ""])
    def test_a_partition_is_a_plain_word(self, tmp_path: Path, name: str) -> None:
        environ = {"HOME": str(tmp_path), "SPOT_PROVIDER": "slurm", "SPOT_SLURM_FOLDER": "/s"}
        with pytest.raises(SettingsRefused, match="slurm_partitions"):
            wired.load(environ={**environ, "SPOT_SLURM_PARTITIONS": name})

    def test_every_partition_of_a_shape_comes_before_the_next_shape(self) -> None:
        each = settings.offers("c", replace(S, slurm_shapes=("a", "b")))
        assert [(offer.placement.shape, offer.placement.zone) for offer in each[:4]] == [
            ("a", "spot"), ("a", "prod"), ("b", "spot"), ("b", "prod"),
        ]  # fmt: skip
        assert {offer.price_usd_per_h for offer in each} == {0.0}


def test_a_thousand_jobs_are_one_command_and_little_cpu(tmp_path: Path) -> None:
    """Of each job Slurm 22.05 prints about 100 fields."""
    s = replace(S, slurm_folder=str(tmp_path))
    provider = SlurmProvider("c", s, agent=lambda: tmp_path, now=lambda: 1e9, on=DAY)
    fields = {f"field_{number}": "some text" for number in range(95)}
    jobs = []
    for number in range(1000):
        machine = f"spot-{number:08x}-a1-t1"
        (tmp_path / "machines" / machine).mkdir(parents=True)
        name = f"{machine}:3f72d204eac7b08e:run-{number}:1.1.1:spot"
        own = {"job_id": number + 1, "name": name, "job_state": "RUNNING", "submit_time": 1, "restart_cnt": 0}
        jobs.append({**fields, **own})
    answer, made = json.dumps({"errors": [], "jobs": jobs}, indent=2), []

    def run(*words: str, timeout_s: float = 0.0) -> str:
        made.append(words[0])
        return answer if words[0] == "squeue" else Commands().run(*words)

    provider.commands.run = run  # type: ignore[method-assign]
    began = time.process_time()
    assert len(provider.machines().machines) == 1000
    assert time.process_time() - began < 1.0
    assert made == ["squeue", "scontrol", "scontrol"]
    made.clear()
    provider.machines()
    assert made == ["squeue"]
    assert provider.profile("spot").preemptible.value is True
    assert len(provider._surveyor._zones) == 1000
    answer = json.dumps({"errors": [], "jobs": []})
    shutil.rmtree(tmp_path / "machines")
    (tmp_path / "machines").mkdir()
    assert provider.machines().machines == ()
    assert provider._surveyor._zones == {}, "nothing is kept of machines that are gone"
