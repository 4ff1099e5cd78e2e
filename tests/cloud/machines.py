"""Machines that boot: each VM of the fake Compute Engine that comes up runs its own start-up script in a folder.

What Compute Engine does to a machine reaches its processes (a notice by its metadata server, ACPI's soft off, the cut),
and what the machine does reaches Compute Engine: its serial console, and that it has switched itself off.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

from tests.cloud.compute import ComputeFake
from tests.cloud.compute_instances import Instance
from tests.cloud.vm import RunningVm, Scene, boot


class Machines:
    """Sets the hooks of `compute`. `scene`: what the next machines are like. `vms`: all that booted, oldest first."""

    def __init__(self, compute: ComputeFake, folder: Path) -> None:
        self.compute, self.folder, self.scene = compute, folder, Scene()
        self.vms: list[RunningVm] = []
        self._by_id: dict[str, RunningVm] = {}
        self._names: dict[str, RunningVm] = {}
        self._lock = threading.Lock()
        compute.on_running, compute.on_notice, compute.on_stop = self._boot, self._notice, self._stop
        compute.on_image = self._image

    def of(self, name: str) -> RunningVm:
        """The newest machine of this name. KeyError when there was none."""
        return self._names[name]

    def close(self) -> None:
        """Cut off whatever still runs."""
        for vm in self.vms:
            vm.close()

    def _boot(self, instance: Instance) -> None:
        place = self.folder / f"{instance.name}-{instance.id}"
        place.mkdir(parents=True, exist_ok=True)  # a machine that is started again has its disk
        name, zone, machine_id = instance.name, instance.zone, instance.id
        self._from_image(instance, place)
        vm = boot(
            instance.body,
            place,
            scene=self.scene,
            on_serial=lambda data: self.compute.append_serial(name, zone, data),
            on_off=lambda: self.compute.guest_powered_off(name, zone, machine_id),
        )
        with self._lock:
            self.vms.append(vm)
            self._by_id[machine_id] = self._names[name] = vm

    def _image(self, name: str, instance: Instance) -> None:
        """What is on the disk of this machine now."""
        disk = self._by_id[instance.id].root
        ignored = shutil.ignore_patterns("proc", "run", "dev")
        shutil.copytree(disk, self.folder / f"image-{name}", symlinks=True, ignore=ignored)

    def _from_image(self, instance: Instance, place: Path) -> None:
        source = instance.sources[0].rsplit("/", 1)[-1] if instance.sources else ""
        if (self.folder / f"image-{source}").is_dir():
            shutil.copytree(self.folder / f"image-{source}", place / "root", symlinks=True)

    def _notice(self, instance: Instance, notice_s: float) -> None:
        if (vm := self._by_id.get(instance.id)) is not None:
            vm.metadata.preempt()

    def _stop(self, instance: Instance, hard: bool) -> None:
        vm: Any = self._by_id.get(instance.id)
        if vm is not None and hard:
            vm.kill()
        elif vm is not None:
            vm.acpi_shutdown()
