"""A real Slurm cluster for tests: one controller and two nodes on loopback, as the user of the tests.

No munge, no systemd, no cgroups. The partition `spot` is preempted by `prod` with a notice of a few seconds, and a job
that was put back starts again soon. The daemons die with the process that started them. The environment of a login
comes from Slurm's own cache: else each job runs the start-up files of whoever runs the tests (0.1 s of CPU with pyenv).
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.components import require_component
from tests.waiting import wait_for

NODES = ("spot1", "spot2")
GRACE_S, KILL_WAIT_S, LOST_AFTER_S = 3, 2, 6
SBIN = "/usr/sbin"
NODE = "CLUSTER_NODE"  # a variable of the daemons of one node; jobs do not inherit it
CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
SlurmctldParameters={warns}
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
{completions}
JobRequeue=1
GetEnvTimeout=0
KillWait={kill_wait}
SlurmdTimeout={lost_after}
ReturnToService=2
GresTypes=gpu
NodeName=spot[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port={node_ports} CPUs=4 RealMemory=4000 Gres=gpu:1
PartitionName=spot Nodes=ALL Default=YES MaxTime=2-00 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace}
PartitionName=prod Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


@contextmanager
def running(**how: bool) -> Iterator[SlurmCluster]:
    """A cluster, until the end of the block. `how`: as in SlurmCluster. Its folder has a short name: the sockets of a
    job lie in it, and a longer path than 108 characters ends each job before its start."""
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        cluster = SlurmCluster(Path(folder), **how)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


def require_slurm() -> None:
    there = all(shutil.which(name, path=f"{os.environ['PATH']}:{SBIN}") for name in ("slurmctld", "slurmd", "sbatch"))
    how = "apt-get install --no-install-recommends slurmctld slurmd slurm-client"
    require_component("Slurm", there, how)


class SlurmCluster:
    """`folder`: of everything, also of the slurm.conf. `history`: ended jobs are kept in a file. `warns`: USR1 comes
    before a preemption."""

    def __init__(self, folder: Path, history: bool = True, warns: bool = True) -> None:
        require_slurm()
        self.folder = folder
        self.conf = folder / "slurm.conf"
        for part in ("state/env_cache", "log", *(f"spool/{node}" for node in NODES)):
            (folder / part).mkdir(parents=True)
        with ExitStack() as sockets:
            ports = [_port(sockets) for _ in range(1 + len(NODES))]
        completions = f"JobCompType=jobcomp/filetxt\nJobCompLoc={folder}/log/jobcomp.txt" if history else ""
        text = CONFIG.format(
            host=socket.gethostname().partition(".")[0],
            user=getpass.getuser(),
            folder=folder,
            controller_port=ports[0],
            node_ports=",".join(map(str, ports[1:])),
            completions=completions,
            warns="preempt_send_user_signal" if warns else "",
            kill_wait=KILL_WAIT_S,
            lost_after=LOST_AFTER_S,
            grace=GRACE_S,
        )
        self.conf.write_text("".join(f"{line}\n" for line in text.splitlines() if line and not line.endswith("=")))
        login = {name: os.environ[name] for name in ("HOME", "PATH")}
        cached = folder / "state" / "env_cache" / getpass.getuser()
        cached.write_text("".join(f"{name}={value}\n" for name, value in login.items()))
        (folder / "gres.conf").write_text("NodeName=spot[1-2] Name=gpu File=/dev/null\n")
        (folder / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        self._start("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        wait_for(self.idle, what="two idle nodes", deadline_s=60)

    def start_node(self, node: str) -> None:
        self._start(node, "slurmd", "-D", "-N", node)

    def kill_node(self, node: str) -> None:
        """The daemon and all jobs of this node, as a power cut does."""
        self.kill_daemon(node)
        self._end_processes(node)

    def kill_daemon(self, node: str) -> None:
        """slurmd alone: its jobs live on."""
        daemon = self._daemons.pop(node)
        daemon.kill()
        daemon.wait(30)

    def signal_controller(self, number: int) -> None:
        self._daemons["slurmctld"].send_signal(number)

    def run(self, *words: str) -> str:
        done = subprocess.run(words, env=self._environment(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def submit_prod(self, seconds: float, exclusive: bool = True) -> str:
        """A job that takes both nodes from the jobs in `spot`; its id."""
        whole = ("--nodes=2", "--exclusive") if exclusive else ("--nodes=1",)
        return self.run(
            "sbatch", "--parsable", "--partition=prod", *whole, "--export=NONE", "--output=/dev/null", "--chdir=/",
            f"--wrap=exec sleep {seconds}",
        )  # fmt: skip

    def cancel_all(self) -> None:
        """Every job of this user, until none is left that waits, runs or ends."""

        def none_left() -> bool:
            if not self.run("squeue", "--me", "--noheader", "--format=%i"):
                return True
            self.run("scancel", "--me")
            return False

        wait_for(none_left, what="the jobs of the cluster to end", deadline_s=60)

    def stop(self) -> None:
        for daemon in self._daemons.values():
            daemon.send_signal(signal.SIGCONT)
        with suppress(AssertionError):
            self.cancel_all()
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(30)
        self._daemons.clear()
        self._end_processes()

    def idle(self) -> bool:
        with suppress(AssertionError):
            return self.run("sinfo", "--noheader", "--partition=spot", "--format=%D %T") == "2 idle"
        return False

    def _start(self, name: str, program: str, *words: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", f"{SBIN}/{program}", *words],
                env={**self._environment(), NODE: name},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        return {**kept, "SLURM_CONF": str(self.conf)}

    def _end_processes(self, node: str = "") -> None:
        """Kill what this cluster (`node`: only that node) has left, by its environment. What watches a job first: it
        would report the death of the job."""
        conf = b"SLURM_CONF=" + os.fsencode(self.conf)
        for marker in (f"{NODE}={node}", f"SLURMD_NODENAME={node}"):
            for entry in Path("/proc").iterdir():
                with suppress(OSError, ValueError):
                    variables = (entry / "environ").read_bytes().split(b"\0")
                    mine = conf in variables and (not node or marker.encode() in variables)
                    if mine and int(entry.name) != os.getpid():
                        os.kill(int(entry.name), signal.SIGKILL)


def _port(sockets: ExitStack) -> int:
    """All are open at once, so that they differ."""
    listener = sockets.enter_context(socket.socket())
    listener.bind(("127.0.0.1", 0))
    return int(listener.getsockname()[1])
