"""One sbatch: the warning, the time limit, the words of the command, and what a refusal says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.domain.causes import Cause
from supervisor.ports.provider import LaunchRejected, QuotaExceeded
from supervisor.providers.slurm.settings import gpu_words
from supervisor.providers.slurm.submitting import (
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
from tests.providers import stub_apptainer
from tests.waiting import wait_for


@pytest.mark.parametrize(
    ("checkpoint_s", "walltime_s", "timed_out", "warning"),
    [
        (None, 86400.0, 0, 120),
        (5.0, 86400.0, 0, 120),
        (28.5, 86400.0, 0, 120),
        (28.6, 86400.0, 0, 121),
        (300.0, 86400.0, 0, 663),
        (300.0, 86400.0, 1, 1326),  # it was too short last time
        (None, 86400.0, 1, 240),
        (None, 86400.0, 2, 480),  # and 240 s were too short as well
        (None, 86400.0, 9, 1920),
        (300.0, 600.0, 0, 300),  # half of the walltime is for the training
        (300.0, 600.0, 3, 300),
        (90_000.0, None, 0, 7263),  # it waited for a store that was away
        (90_000.0, None, 4, 65535),  # the most that sbatch takes
        (None, 60.0, 0, 30),
    ],
)
def test_the_warning_is_two_checkpoints_a_minute_and_the_wait_before_a_save(
    checkpoint_s: float | None, walltime_s: float | None, timed_out: int, warning: int
) -> None:
    assert warning_s(checkpoint_s, walltime_s, timed_out) == warning


@pytest.mark.parametrize(
    ("text", "out_of_memory", "memory"),
    [
        ("64G", 0, "64G"), ("64G", 1, "78644M"), ("64G", 2, "94372M"), ("100", 1, "120M"), ("1048576K", 1, "1229M"),
        ("1T", 1, "1258292M"), ("100M", 8, "430M"), ("100M", 50, "430M"), ("", 3, ""),
    ],
)  # fmt: skip
def test_a_job_that_ran_out_of_memory_gets_a_fifth_more(text: str, out_of_memory: int, memory: str) -> None:
    assert memory_of(text, out_of_memory) == memory


@pytest.mark.parametrize(
    ("text", "out_of_memory", "used_mib", "memory"),
    [
        ("100M", 1, 100, "120M"),  # the limit was what it used
        ("100M", 1, 60, "120M"),  # sampled before the peak: less than it had would be no repair
        ("100M", 1, 150, "180M"),  # the cluster does not hold jobs at their limit
        ("", 1, 150, "180M"),  # nothing was set: the default of the cluster was too small
        ("100M", 0, 150, "100M"),  # no attempt ran out of it, or the settings say no
        ("wrong", 1, 150, "wrong"),
    ],
)
def test_a_fifth_more_than_it_used_where_that_is_known(
    text: str, out_of_memory: int, used_mib: int, memory: str
) -> None:
    assert memory_of(text, out_of_memory, used_mib * 2.0**20) == memory


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800.0), ("30:15", 1815.0), ("2:00:00", 7200.0), ("1-00:00:00", 86400.0), ("2-12", 216000.0),
        ("1-01:30", 91800.0), ("UNLIMITED", None), ("infinite", None), ("NONE", None), ("", None),
    ],
)  # fmt: skip
def test_time_limits_of_slurm(text: str, seconds: float | None) -> None:
    assert limit_s(text) == seconds


@pytest.mark.parametrize("text", ["soon", "1:2:3:4", "-5", "1-", "1 2"])
def test_anything_else_is_no_time_limit(text: str) -> None:
    with pytest.raises(ValueError, match="not a time limit"):
        limit_s(text)


@pytest.mark.parametrize(
    ("machine_max_s", "setting_s", "partition_s", "minutes"),
    [
        (86400.0, None, None, 1440),
        (86401.0, None, None, 1441),
        (86400.0, 7200.0, None, 120),
        (86400.0, None, 7230.0, 120),  # never more than the partition allows
        (86400.0, 200_000.0, 172_800.0, 1440),
        (10.0, None, None, 1),
        (86400.0, None, 30.0, 1),
    ],
)
def test_the_walltime_is_the_dead_mans_switch(
    machine_max_s: float, setting_s: float | None, partition_s: float | None, minutes: int
) -> None:
    assert walltime_min(machine_max_s, setting_s, partition_s) == minutes


def submit(**values: object) -> Submit:
    wanted = {
        "name": "m:s:r:1.1.1:spot", "partition": "spot", "folder": Path("/scratch/50%/m"), "python": "python3",
        "minutes": 90, "warning_s": 120, **values,
    }  # fmt: skip
    return Submit(**wanted)  # type: ignore[arg-type]


def test_the_words_of_sbatch() -> None:
    full = submit(gres="gpu:a100:2", cpus=16, memory="64G", account="lab", qos="low", modules=("cuda/12.4",))
    assert full.words() == (
        "sbatch", "--parsable", "--requeue", "--job-name=m:s:r:1.1.1:spot", "--partition=spot", "--nodes=1",
        "--ntasks=1", "--time=90", "--signal=B:USR1@120", "--open-mode=append", "--output=/scratch/50%%/m/console.log",
        "--chdir=/scratch/50%/m", "--export=NONE", "--cpus-per-task=16", "--mem=64G", "--gres=gpu:a100:2",
        "--account=lab", "--qos=low", str(SCRIPT), "/scratch/50%/m", "python3", "cuda/12.4",
    )  # fmt: skip


def test_nodes_to_avoid() -> None:
    assert "--exclude=n1,n2" in submit(avoid=("n1", "n2")).words()
    assert not any("exclude" in word for word in submit().words())
    assert names_no_node("sbatch: error: Batch job submission failed: Invalid node name specified")
    assert not names_no_node("sbatch: error: Batch job submission failed: Invalid partition name specified")


def test_the_words_of_a_container_come_after_the_modules() -> None:
    words = submit(modules=("apptainer",), container=("apptainer", "exec", "/x.sif")).words()
    assert words[-7:] == ("/scratch/50%/m", "python3", "apptainer", "--", "apptainer", "exec", "/x.sif")


@pytest.mark.parametrize(
    ("gpus", "store_url", "options"),
    [
        (0, "gs://bucket/x", ("--bind", "/scratch/me")),
        (2, "gs://bucket/x", ("--nv", "--bind", "/scratch/me")),
        (0, "file:///scratch/me/stays/digits-1.1.1/store", ("--bind", "/scratch/me")),
        (0, "file:///scratch/mean/objects", ("--bind", "/scratch/me", "--bind", "/scratch/mean/objects")),
    ],
)
def test_a_container_has_the_gpus_and_the_folders_that_its_agent_needs(
    gpus: int, store_url: str, options: tuple[str, ...]
) -> None:
    words = container_words("apptainer", "docker://python:3.12", gpus=gpus, folder="/scratch/me", store_url=store_url)
    assert words == ("apptainer", "exec", *options, "docker://python:3.12")


@pytest.mark.parametrize("path", ["/data/a,b", "/data/a:b", "/data/a%20b"])
def test_a_folder_that_a_bind_cannot_name_is_refused(path: str) -> None:
    with pytest.raises(LaunchRejected, match="use a plainer path"):
        container_words("apptainer", "/x.sif", gpus=0, folder="/scratch/me", store_url=f"file://{path}")


def test_what_the_settings_leave_out_is_the_clusters_own_choice() -> None:
    words = " ".join(submit().words())
    assert not any(option in words for option in ("--cpus-per-task", "--mem", "--gres", "--account", "--qos"))


@pytest.mark.parametrize(("output", "job_id"), [("12\n", "12"), ("12;east\n", "12")])
def test_the_id_that_sbatch_prints(output: str, job_id: str) -> None:
    assert job_id_of(output) == job_id


@pytest.mark.parametrize("output", ["", "Submitted batch job 12", "12a"])
def test_another_answer_is_no_id(output: str) -> None:
    with pytest.raises(ValueError, match="in place of a job id"):
        job_id_of(output)


FAILED = "sbatch: error: Batch job submission failed: "
QUOTA, REJECTED = QuotaExceeded, LaunchRejected


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit", QUOTA),
        (FAILED + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", QUOTA),
        ("sbatch: error: AssocMaxSubmitJobLimit", QUOTA),
        ("sbatch: error: invalid partition specified: x\n" + FAILED + "Invalid partition name specified", REJECTED),
        (FAILED + "Requested node configuration is not available", REJECTED),
        ("sbatch: error: Memory specification can not be satisfied", REJECTED),
        (FAILED + "Invalid account or account/partition combination specified", REJECTED),
        (FAILED + "Invalid qos specification", REJECTED),
        (FAILED + "Invalid generic resource (gres) specification", REJECTED),
        (FAILED + "Requested time limit is invalid (missing or exceeds some limit)", REJECTED),
        (FAILED + "User's group not permitted to use this partition", REJECTED),
        (FAILED + "Access/permission denied", REJECTED),
        (FAILED + "Socket timed out on send/recv operation", None),
        (FAILED + "Unable to contact slurm controller (connect failure)", None),
        (FAILED + "Zero Bytes were transmitted or received", None),
        (FAILED + "Slurm controller in standby mode, use primary", None),
        (FAILED + "Unexpected message received", None),
        ("", None),
    ],
)  # fmt: skip
def test_only_a_clear_refusal_ends_a_try(stderr: str, kind: type | None) -> None:
    error = refusal(stderr)
    assert type(error) is (type(None) if kind is None else kind)
    assert error is None or "sbatch: error" not in str(error)


def test_a_pending_job_that_is_refused_keeps_its_cause() -> None:
    assert refused(Cause.QUOTA, "x").cause is Cause.QUOTA
    assert refused(Cause.LAUNCH_REJECTED, "x").cause is Cause.LAUNCH_REJECTED


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:a100:2", (2, "a100")), ("gpu:4", (4, "")), ("gpu", (1, "")), ("gpu:v100", (1, "v100")),
        ("tmp:10G,gpu:h100:8", (8, "h100")), ("gres/gpu:a100:1", (1, "a100")), ("tmp:10G", (0, "")), ("", (0, "")),
    ],
)  # fmt: skip
def test_the_gpus_of_a_gres_text(gres: str, gpus: tuple[int, str]) -> None:
    assert gpu_words(gres) == gpus


AGENT = """\
import json, os, signal, sys
answer = {"argv": sys.argv[1:], "stdin": sys.stdin.read(), "folder": os.environ["SPOT_MACHINE_DIR"],
          "name": os.environ["SPOT_MACHINE"], "srun": os.environ.get("SRUN_CPUS_PER_TASK"),
          "export": os.environ.get("SLURM_EXPORT_ENV"), "pid": os.getpid(),
          "ignored": signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN}
print(json.dumps(answer))
"""


def start(folder: Path, restart: str | None, python: str) -> dict[str, object]:
    """Run the script as a node does."""
    import json

    own = {"SLURM_JOB_ID": "12", "SLURM_CPUS_PER_TASK": "4", "SLURM_EXPORT_ENV": "NONE", "PATH": "/usr/bin:/bin"}
    if restart is not None:
        own["SLURM_RESTART_COUNT"] = restart
    child = subprocess.Popen(["/bin/bash", str(SCRIPT), str(folder), python], env=own, stdout=subprocess.PIPE)
    output, _ = child.communicate(timeout=30)
    return {**json.loads(output), "child": child.pid}


def test_the_script_becomes_the_agent_and_says_which_start_it_is(tmp_path: Path) -> None:
    import json

    folder = tmp_path / "with space $(id)"
    folder.mkdir()
    (folder / "agent.pyz").write_text(AGENT)
    (folder / "secrets.json").write_text('{"A": "b"}')
    answer = start(folder, None, sys.executable)
    assert answer["pid"] == answer["child"], "a signal to the batch shell is a signal to the agent"
    assert answer["ignored"], "a warning before the agent listens must not end it"
    assert (answer["argv"], answer["stdin"]) == ([str(folder)], '{"A": "b"}')
    assert (answer["folder"], answer["name"]) == (str(folder), folder.name)
    assert (answer["srun"], answer["export"]) == ("4", None)
    assert json.loads((folder / "identity.json").read_text()) == {"machine_id": "12.0"}
    start(folder, "1", sys.executable)
    assert json.loads((folder / "identity.json").read_text()) == {"machine_id": "12.1"}
    assert (folder / "starts").read_text() == "12.0\n12.1\n"


def test_a_second_job_of_one_machine_leaves_its_folder_alone(tmp_path: Path) -> None:
    """Two answers of sbatch that both came too late. The agent of the first job works in this folder."""
    (tmp_path / "agent.pyz").write_text("raise SystemExit(9)")
    (tmp_path / "secrets.json").write_text("{}")
    (tmp_path / "starts").write_text("11.0\n")
    (tmp_path / "identity.json").write_text('{"machine_id": "11.0"}')
    own = {"SLURM_JOB_ID": "12", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["/bin/bash", str(SCRIPT), str(tmp_path), sys.executable], env=own, timeout=30, check=False)
    assert done.returncode == 0
    assert (tmp_path / "identity.json").read_text() == '{"machine_id": "11.0"}'
    assert (tmp_path / "starts").read_text() == "11.0\n12.0\n"


LISTENER = """\
import os, signal, sys
from pathlib import Path
folder, seen = Path(sys.argv[1]), []
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, frame: seen.append(signal.Signals(number).name))
(folder / "stdin").write_text(sys.stdin.read())
(folder / "ready").touch()
while "SIGTERM" not in seen:
    signal.pause()
(folder / "seen").write_text(" ".join(seen))
sys.exit(7)
"""


def test_a_signal_to_the_batch_shell_reaches_the_agent_in_a_container(tmp_path: Path) -> None:
    """Through what takes the shell's place. The exit code is the agent's too."""
    import os
    import signal
    import sys

    folder = tmp_path / "machines" / "m"
    folder.mkdir(parents=True)
    (folder / "agent.pyz").write_text(LISTENER)
    (folder / "secrets.json").write_text('{"A": "b"}')
    program, image = stub_apptainer.write(tmp_path)
    words = container_words(str(program), str(image), gpus=1, folder=str(tmp_path), store_url="")
    child = subprocess.Popen(
        ["/bin/bash", str(SCRIPT), str(folder), sys.executable, "--", *words],
        env={"SLURM_JOB_ID": "12", "PATH": "/usr/bin:/bin", "PYTHONPATH": "/of/the/node"},
    )
    try:
        wait_for(lambda: (folder / "ready").exists() or child.poll() is not None, 30)
        os.kill(child.pid, signal.SIGUSR1)
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait(30) == 7
    finally:
        child.kill()
        child.wait(30)
    assert sorted((folder / "seen").read_text().split()) == ["SIGTERM", "SIGUSR1"]
    assert (folder / "stdin").read_text() == '{"A": "b"}'
    agent = [sys.executable, "agent.pyz", str(folder)]
    assert stub_apptainer.words_given(image) == [[*words[1:], *agent]]


def test_a_module_that_cannot_be_loaded_ends_the_job(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/bash", str(SCRIPT), str(tmp_path), "python3", "no/such"],
        env={"SLURM_JOB_ID": "12", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 6
    assert not (tmp_path / "starts").exists()
