"""A machine that really boots: the start-up script of an instance, run by bash in a sandbox folder.

The script finds the tools of Container-Optimized OS on its PATH and nothing else; what reaches beyond the sandbox
(docker, the driver, disks, power) are the programs in stubs/. The stub docker starts the agent and the training for
real. Each machine has its own metadata server. FOLDER/root is the machine's /, FOLDER/stub what the stubs read and
write. Serial lines carry the prefix of Google's own runner, as on a real console.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.cloud import vm_keeper, vm_processes
from tests.cloud.metadata import MetadataFake
from tests.cloud.vm_scene import STUBS, Scene
from tests.cloud.web import Watch

__all__ = ["RunningVm", "Scene", "boot"]

PREFIX = "google_metadata_script_runner[412]: startup-script: "
ACPI_GRACE_S = 30.0  # of a spot machine, between ACPI's soft off and the cut


def boot(
    instance: Mapping[str, Any],
    folder: Path,
    scene: Scene | None = None,
    on_serial: Callable[[bytes], None] | None = None,
    on_off: Callable[[], None] | None = None,
    watch: Watch | None = None,
) -> RunningVm:
    """`instance`: the resource, as in instances.get. `on_off`: called once, when the machine has switched itself
    off or has gone down after `acpi_shutdown`; not after `kill`. A folder that was booted before is booted again."""
    return RunningVm(instance, folder, scene or Scene(), (on_serial, on_off), watch)


class RunningVm:
    """`ended`: nothing of it runs any more. `script_ended`: the script does not, whatever else may."""

    def __init__(
        self,
        instance: Mapping[str, Any],
        folder: Path,
        scene: Scene,
        hooks: tuple[Callable[[bytes], None] | None, Callable[[], None] | None],
        watch: Watch | None,
    ) -> None:
        self.name, self.machine_id = str(instance["name"]), str(instance["id"])
        self.folder = folder.resolve()
        self.root, self.stub = self.folder / "root", self.folder / "stub"
        self.machine = self.root / "var" / "lib" / "spot" / "machine"
        self.ended, self.script_ended = threading.Event(), threading.Event()
        self._on_serial, self._on_off = hooks
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._soft, self._cut, self._down = False, False, False
        self._cut_off: threading.Timer | None = None
        attributes = {item["key"]: item["value"] for item in instance["metadata"].get("items", [])}
        zone = str(instance["zone"]).split("/")
        project = zone[zone.index("projects") + 1] if "projects" in zone else "p"
        known = {"id": self.machine_id, "name": self.name, "zone": zone[-1]}
        self.metadata = MetadataFake(project, known, attributes, watch=watch)
        for part, answer in scene.stumbles:
            self.metadata.fail(part, answer)
        promised = attributes.get("spot-gpus", "")
        scene.lay_out(self.folder, int(promised) if promised.isdigit() else 0)
        shutil.rmtree(self.root / "run", ignore_errors=True)  # as a boot does
        with suppress(FileExistsError):
            (self.root / "proc").symlink_to("/proc")
        (self.stub / "startup-script").write_text(attributes.get("startup-script", ""))
        vm_keeper.keep(self.folder)
        self._script = self.run_script()
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._listen, self._attend)]
        for thread in self._threads:
            thread.start()

    def run_script(self) -> subprocess.Popen[bytes]:
        """As the boot does, and as a person may do again."""
        environment = {
            "PATH": str(self.folder / "bin"),
            "SPOT_ROOT": str(self.root),
            "GCE_METADATA_HOST": self.metadata.host,
            vm_processes.MARKER: str(self.folder),
            "VM_STUB": str(self.stub),
            "VM_STUBS": str(STUBS),
            "VM_PYTHON": sys.executable,
            "VM_SLEEP": shutil.which("sleep") or "sleep",
        }
        return subprocess.Popen(
            ["/bin/bash", str(self.stub / "startup-script")],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    # --- what can be seen -----------------------------------------------------------------------------------------

    def serial(self) -> str:
        """All that it wrote to its first serial port."""
        return "".join(f"{PREFIX}{line}\n" for line in self.lines())

    def lines(self) -> list[str]:
        """The script's output."""
        with self._lock:
            return list(self._lines)

    def calls(self, name: str) -> list[list[str]]:
        """The arguments of each call of this stub so far."""
        try:
            text = (self.stub / "calls" / name).read_text()
        except FileNotFoundError:
            return []
        return [record.rstrip("\037").split("\037") for record in text.split("\036")[:-1]]

    @property
    def switched_off(self) -> bool:
        """It has requested its own power-off."""
        return self.calls("poweroff") != []

    def processes(self) -> set[int]:
        return vm_processes.alive(self.folder)

    # --- what happens to it ---------------------------------------------------------------------------------------

    def freeze(self) -> None:
        vm_processes.freeze(self.folder)

    def acpi_shutdown(self, grace_s: float = ACPI_GRACE_S) -> None:
        """ACPI's soft off: systemd sends TERM to the script and waits for it; the rest is cut off after `grace_s`.
        Returns at once."""
        with self._lock:
            self._soft = True
        if self.script_ended.is_set():
            self._go_down()
            return
        with suppress(ProcessLookupError):
            self._script.send_signal(signal.SIGTERM)
        self._cut_off = threading.Timer(grace_s, self._go_down)
        self._cut_off.daemon = True
        self._cut_off.start()

    def kill(self) -> list[int]:
        """The power is cut. Returns when nothing runs any more; pids that could not be ended."""
        with self._lock:
            self._cut = True
        left = vm_processes.end(self.folder)
        self.ended.set()
        return left

    def close(self) -> list[int]:
        """The same, and its metadata server is gone too."""
        left = self.kill()
        if self._cut_off is not None:
            self._cut_off.cancel()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(10)
        self.metadata.close()
        vm_keeper.forget(self.folder)
        return left

    # --- its own threads ------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        assert self._script.stdout is not None
        with self._script.stdout as output:
            for raw in output:
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                with self._lock:
                    self._lines.append(line)
                if self._on_serial is not None:
                    self._on_serial(f"{PREFIX}{line}\r\n".encode())

    def _attend(self) -> None:
        self._script.wait()
        self.script_ended.set()
        if self.switched_off or self._soft:
            self._go_down()

    def _go_down(self) -> None:
        """Once: all remaining processes are ended, and the waiting threads continue."""
        with self._lock:
            if self._cut or self._down:
                return
            self._down = True
        vm_processes.end(self.folder)
        if self._threads[0] is not threading.current_thread():
            self._threads[0].join(10)  # the last words come before the news
        self.ended.set()
        if self._on_off is not None:
            self._on_off()
