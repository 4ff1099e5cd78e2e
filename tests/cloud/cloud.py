"""The tests' cloud in one piece: Compute Engine, Cloud Storage, metadata, secrets, a registry, machines that boot.

The oracle watches every exchange with Compute Engine and Cloud Storage, and each caller may do what deploy/terraform
grants its account (`access`); `close` raises AssertionError with what was wrong, and when a process of a machine is
still there. `python -m tests.cloud` runs one as a process of its own.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cloud import permissions
from tests.cloud.access import Access
from tests.cloud.billing import BillingFake
from tests.cloud.cloudbuild import CloudBuildFake
from tests.cloud.compute import ComputeFake
from tests.cloud.discovery import Oracle
from tests.cloud.iamfake import IamFake
from tests.cloud.logging_fake import LoggingFake
from tests.cloud.metadata import MetadataFake
from tests.cloud.permissions import Need
from tests.cloud.registry import RegistryFake
from tests.cloud.resourcemanager import ResourceManagerFake
from tests.cloud.rolefiles import BUILD, SUPERVISOR, WORKER
from tests.cloud.secretmanager import SecretManagerFake
from tests.cloud.storage import StorageFake
from tests.cloud.vm_processes import naming
from tests.cloud.web import Request, Response, Watch

PROJECT, BUCKET = "p", "spot-tests"
ZONES = ("us-east1-c", "us-east1-b", "us-east1-d")
SHAPES = "t4=n1-standard-8+1xnvidia-tesla-t4"
PRICES = "t4=1.20/3.60"  # $/h, made up
MOST_VIOLATIONS = 20
GONE_WITHIN_S = 20.0


class Cloud:
    """`folder`: where machines live; None = machines do not boot, they are only RUNNING. `live` False: time passes only
    at the next request, for clocks that stand still."""

    def __init__(self, folder: Path | None = None, clock: Callable[[], float] = time.time, live: bool = True) -> None:
        self.violations: list[str] = []
        self.checked = 0
        self.folder, self.clock = folder, clock
        self._lock = threading.Lock()
        self.storage = StorageFake(clock, watch=self._watch("storage"))
        self.storage.make_bucket(BUCKET)
        self.compute = ComputeFake(clock, watch=self._watch("compute"), live=live)
        self.metadata = MetadataFake(PROJECT, clock=clock)
        self.secrets = SecretManagerFake(clock)
        self.logging = LoggingFake(clock, watch=self._watch("logging"), project=PROJECT)
        self.compute.on_serial = self.logging.on_serial
        self.projects = ResourceManagerFake(PROJECT, watch=self._watch("cloudresourcemanager"))
        self.iam = IamFake(watch=self._watch("iam"))
        self.billing = BillingFake(watch=self._watch("cloudbilling"))
        self.registry = RegistryFake()
        self.registry.push("train", "1")
        self.builds = CloudBuildFake(self.registry, self.storage, clock, watch=self._watch("cloudbuild"))
        self.builds.on_work = self._built
        self.machines = None
        self.access = Access(self._whose, lambda bucket, name: self.storage.find(bucket, name) is not None)
        self._guard()
        if folder is not None:
            from tests.cloud.machines import Machines

            self.machines = Machines(self.compute, folder)
            self.compute.accept_token = lambda token: self.metadata.accepts(f"Bearer {token}")
            self.storage.takes_token = lambda token: self._knows(f"Bearer {token}")
            for fake in (self.secrets, self.logging, self.projects, self.iam):
                fake.authorize = self._knows

    def _guard(self) -> None:
        for service, server in {
            "storage": self.storage.server,
            "compute": self.compute.server,
            "secretmanager": self.secrets.server,
            "registry": self.registry.server,
            "logging": self.logging.server,
            "cloudbilling": self.billing.server,
            "cloudresourcemanager": self.projects.server,
            "iam": self.iam.server,
            "cloudbuild": self.builds.server,
        }.items():
            server.guard(self.access.gate(service))
        self.storage.holds = self.projects.holds = self.iam.holds = self.access.holds

    def _whose(self, authorization: str) -> str | None:
        """Where no machine boots, the supervisor is the only caller, whatever its token."""
        if self.machines is None or self.metadata.accepts(authorization):
            return SUPERVISOR
        return WORKER if self._knows(authorization) else None

    def _knows(self, authorization: str | None) -> bool:
        """A token of the supervisor's account or of a machine's."""
        assert self.machines is not None
        known = [self.metadata, *(vm.metadata for vm in self.machines.vms)]
        return any(one.accepts(authorization) for one in known)

    def _built(self, build: dict[str, Any]) -> None:
        """What Cloud Build did with the account that it was given, without a request to a fake."""
        if "serviceAccount" not in build:
            return  # the project's default account is not ours to grant to
        source = build["source"]["storageSource"]["object"]
        for need in (
            Need("storage.objects.get", permissions.BUCKET, source),
            Need("logging.logEntries.create"),
            *permissions.PROGRAMS["docker push"],
        ):
            self.access.note(BUILD, "cloudbuild", need)

    def _watch(self, service: str) -> Watch:
        oracle = Oracle(service)

        def watch(request: Request, response: Response) -> None:
            if response.headers.get("Content-Type", "").startswith("text/html"):
                return  # of something in between, and not Google's
            found = oracle.check(request, response)
            with self._lock:
                self.checked += 1
                if found and len(self.violations) < MOST_VIOLATIONS:
                    self.violations += found

        return watch

    def environment(self) -> dict[str, str]:
        """What a supervisor's process needs to use this cloud instead of Google's."""
        return {
            "SPOT_PROVIDER": "gce",
            "SPOT_STORE_URL": f"gs://{BUCKET}",
            "SPOT_GCE_PROJECT": PROJECT,
            "SPOT_GCE_ZONES": ",".join(ZONES),
            "SPOT_GCE_SHAPES": SHAPES,
            "SPOT_GCE_PRICES": PRICES,
            "SPOT_GCE_ENDPOINT": self.compute.url,
            "SPOT_SECRET_MANAGER_ENDPOINT": self.secrets.url,
            "SPOT_BILLING_ENDPOINT": self.billing.url,
            "SPOT_LOGGING_ENDPOINT": self.logging.url,
            "SPOT_RESOURCE_MANAGER_ENDPOINT": self.projects.url,
            "SPOT_IAM_ENDPOINT": self.iam.url,
            "SPOT_CLOUD_BUILD_ENDPOINT": self.builds.url,
            "STORAGE_EMULATOR_HOST": self.storage.url,
            "CLOUDSDK_CONFIG": "no-such-folder",  # no user's own credentials come before the metadata server
            **self.metadata.environment(),
        }

    def image(self, name: str = "train:1") -> str:
        """A reference into the registry."""
        return f"{self.registry.host}/{name}"

    def instances(self) -> list[Any]:
        """Every VM that there is, whatever its status."""
        vms: list[Any] = self.compute.all_instances()
        return vms

    def close(self) -> None:
        if self.machines is not None:
            self.machines.close()
        first = (self.compute, self.storage, self.metadata, self.secrets, self.registry)
        for server in (*first, self.logging, self.projects, self.iam, self.billing, self.builds):
            server.close()
        left = self._processes()
        for pid in left:
            _kill(pid)
        assert left == [], f"{len(left)} processes of machines were still there: {left}"
        assert self.compute.hook_errors == [], f"hooks failed: {self.compute.hook_errors!r}"
        denied = "\n".join(self.access.faults)
        assert self.access.faults == [], f"calls that the role files do not cover:\n{denied}"
        told = "\n".join(self.violations)
        assert self.violations == [], f"exchanges that Google's API does not have:\n{told}"

    def _processes(self) -> list[int]:
        """Processes that carry this cloud's folder in their environment or arguments, once they had time to leave."""
        if self.folder is None:
            return []
        end = time.monotonic() + GONE_WITHIN_S
        while (found := processes_of(self.folder)) and time.monotonic() < end:
            time.sleep(0.05)
        return found


def processes_of(folder: Path) -> list[int]:
    """Pids of living processes with the folder in their environment or arguments, without this process."""
    return naming(os.fsencode(str(folder)) + b"/")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
