"""The start-up script under a real systemd: PID 1 of namespaces of its own, with a root as COS has it.

The root is read-only, and /run, /tmp and /dev are the machine's own. Units stand in for Google's runner of start-up
scripts (as in GoogleCloudPlatform/guest-agent: oneshot, KillMode=process), docker and containerd. Containers are the
stub's; the daemon's end is noted, and after it `docker kill` reaches no process, as with live-restore.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from tests.cloud import vm_processes
from tests.cloud.vm import RunningVm
from tests.cloud.vm_scene import STUBS

SYSTEMD = "/usr/lib/systemd/systemd"
CHECKOUT = Path(__file__).parents[2]  # with the stubs, and most often the Python that runs them
# Where a systemd keeps its services' groups. It must have a group of its own in each of them: two systemd in one group
# take each other's services for theirs, and end them.
GROUPS = [path for path in map(Path, ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")) if path.is_dir()]
GROUPS = GROUPS or [Path("/sys/fs/cgroup")]
POWEROFF = signal.SIGRTMIN + 4  # to PID 1: start poweroff.target, as ACPI's soft off does

OUTER = """
for groups in $SPOT_GROUPS; do
    mkdir -p "$groups/$SPOT_GROUP" && echo $$ >"$groups/$SPOT_GROUP/cgroup.procs"
done
exec unshare --pid --mount --ipc --cgroup --fork --kill-child /bin/bash -c "$INNER"
"""
INNER = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/lock /run/keep
cp "$FOLDER"/units/* /run/systemd/system/
if [ -d /sys/fs/cgroup/systemd ]; then
    umount -R /sys/fs/cgroup
    mount -t tmpfs tmpfs /sys/fs/cgroup
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
else
    umount -R /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
mount --bind "$FOLDER" /run/keep
mkdir /run/keep-checkout && mount --bind "$CHECKOUT" /run/keep-checkout
mount -t tmpfs -o noexec tmpfs /tmp
case "$CHECKOUT" in /tmp/*) mkdir -p "$CHECKOUT" && mount --move /run/keep-checkout "$CHECKOUT" ;; esac
mount -o remount,bind,ro /
mkdir -p "$FOLDER"
mount --move /run/keep "$FOLDER"
mkdir -p "$FOLDER/root/run" && mount --bind /run "$FOLDER/root/run"
mount -t tmpfs tmpfs /dev
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "/dev/${device%:*}" c 1 "${device#*:}"
done
ln -s /proc/self/fd /dev/fd
mkdir /dev/shm
ln -s "$FOLDER/console" /dev/console
exec env -i container=spot-test VM_FOLDER="$VM_FOLDER" PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    SYSTEMD_UNIT_PATH=/run/systemd/system SYSTEMD_GENERATOR_PATH=/nowhere \\
    "$SYSTEMD" --unit=multi-user.target --show-status=0 --log-level=info --log-target=console
"""
# A stand-in for a daemon with live-restore: its end is noted, and its containers stay.
DAEMON = """
trap 'read -r up _ </proc/uptime; echo "$up" >"$1/ended-$2"; [ "$2" = containerd ] || echo gone >"$1/daemon"; exit' TERM
touch "$1/began-$2"
while :; do sleep 0.05; done
"""
_TARGETS = {
    "sysinit.target": "[Unit]\nDefaultDependencies=no\n",
    "basic.target": "[Unit]\nRequires=sysinit.target\nAfter=sysinit.target\n",
    "shutdown.target": "[Unit]\nDefaultDependencies=no\n",
    "multi-user.target": (
        "[Unit]\nRequires=basic.target\nAfter=basic.target\n"
        "Wants=docker.service containerd.service google-startup-scripts.service\n"
    ),
    "poweroff.target": (
        "[Unit]\nDefaultDependencies=no\nRequires=systemd-poweroff.service\nAfter=systemd-poweroff.service\n"
    ),
    "systemd-poweroff.service": (
        "[Unit]\nDefaultDependencies=no\nRequires=shutdown.target\nAfter=shutdown.target\n"
        "SuccessAction=poweroff-force\n[Service]\nType=oneshot\nExecStart=/bin/true\n"
    ),
}


class SystemdVm(RunningVm):
    """`acpi_shutdown`: systemd gets the request and stops the units in its own order."""

    def run_script(self) -> subprocess.Popen[bytes]:
        units = self.folder / "units"
        units.mkdir(exist_ok=True)
        for name, text in {**_TARGETS, **self._services()}.items():
            (units / name).write_text(text)
        (self.folder / "console").touch()
        systemctl = self.folder / "bin" / "systemctl"
        systemctl.unlink(missing_ok=True)
        systemctl.symlink_to(shutil.which("systemctl") or "systemctl")
        self.group = f"spot-test-{os.getpid()}-{self.machine_id}"
        environment = {
            vm_processes.MARKER: str(self.folder), "FOLDER": str(self.folder), "INNER": INNER, "SYSTEMD": SYSTEMD,
            "CHECKOUT": str(CHECKOUT),
            "SPOT_GROUP": self.group, "SPOT_GROUPS": " ".join(map(str, GROUPS)), "PATH": os.environ["PATH"],
        }  # fmt: skip
        return subprocess.Popen(
            ["/bin/bash", "-c", OUTER],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _services(self) -> dict[str, str]:
        environment = {
            "PATH": str(self.folder / "bin"), "SPOT_ROOT": str(self.root), "GCE_METADATA_HOST": self.metadata.host,
            vm_processes.MARKER: str(self.folder), "VM_STUB": str(self.stub), "VM_STUBS": str(STUBS),
            "VM_PYTHON": sys.executable, "VM_SLEEP": shutil.which("sleep") or "sleep",
        }  # fmt: skip
        variables = "".join(f'Environment="{name}={value}"\n' for name, value in environment.items())
        (self.folder / "daemon.sh").write_text(DAEMON)
        daemon = f"[Service]\nKillMode=process\n{variables.replace(str(self.folder / 'bin'), '/usr/bin:/bin')}"
        command = f"ExecStart=/bin/bash {self.folder}/daemon.sh {self.stub}"
        script = self.stub / "startup-script"
        console = self.folder / "script-console"
        return {
            "docker.service": f"[Unit]\nAfter=containerd.service\n{daemon}{command} docker\n",
            "containerd.service": f"{daemon}{command} containerd\n",
            "google-startup-scripts.service": (
                f"[Service]\nType=oneshot\nRemainAfterExit=yes\nKillMode=process\n{variables}"
                # The runner in between is the one that systemd knows, and the only one that KillMode=process reaches.
                f"ExecStart=/bin/bash -c '/bin/bash {script}; exit 0'\n"
                f"StandardOutput=append:{console}\nStandardError=inherit\n"
            ),
        }

    def acpi_shutdown(self, grace_s: float = 30.0) -> None:
        for pid in vm_processes.alive(self.folder):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/exe").endswith("/systemd"):
                    os.kill(pid, POWEROFF)

    def console(self) -> str:
        """The output of the script and of systemd."""
        files = (self.folder / "script-console", self.folder / "console")
        return "\n".join([path.read_text("utf-8", "replace") for path in files if path.exists()] + self.lines())

    def close(self) -> list[int]:
        left = super().close()
        for groups in GROUPS:
            own = groups / self.group
            for folder in sorted((path for path in [own, *own.rglob("*")] if path.is_dir()), reverse=True):
                with suppress(OSError):
                    folder.rmdir()
        return left


@lru_cache
def can_run() -> bool:
    """Root, systemd and namespaces: not in every container."""
    if os.geteuid() != 0 or not all(map(os.path.exists, (SYSTEMD, "/proc/self/ns/cgroup"))):
        return False
    words = ["unshare", "--pid", "--mount", "--ipc", "--cgroup", "--fork", "mount", "--make-rprivate", "/"]
    return shutil.which("unshare") is not None and subprocess.run(words, check=False).returncode == 0
