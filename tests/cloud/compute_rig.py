"""The fake Compute Engine on a clock that stands still, used by the official client, with the oracle watching."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import httpx
from google.auth.credentials import Credentials

from tests.cloud.compute import ComputeFake
from tests.cloud.discovery import Oracle

ZONE = "us-east1-b"
START = 1_800_000_000.0


class FixedToken(Credentials):
    """A bearer token that needs no request."""

    def __init__(self) -> None:
        super().__init__()
        self.token = "ya29.fake-1"

    def refresh(self, request: object) -> None:
        self.token += "+"


class Rig:
    def __init__(self) -> None:
        self.now = START
        self.violations: list[str] = []
        self.checked = 0
        self.oracle = Oracle("compute")
        self.fake = ComputeFake(lambda: self.now, watch=self._watch)
        self.told: list[tuple[Any, ...]] = []  # what the hooks were called with
        self.fake.on_running = lambda vm: self.told.append(("running", vm.name))
        self.fake.on_notice = lambda vm, notice_s: self.told.append(("notice", vm.name, notice_s))
        self.fake.on_stop = lambda vm, hard: self.told.append(("stop", vm.name, hard))
        self.http = httpx.Client(
            base_url=self.fake.url + "/compute/v1/projects/p/", headers={"Authorization": "Bearer ya29.raw"}
        )

    def _watch(self, request: Any, response: Any) -> None:
        self.checked += 1
        self.violations += self.oracle.check(request, response)

    @cached_property
    def instances(self) -> Any:
        from google.cloud.compute_v1 import InstancesClient

        return self._client(InstancesClient)

    @cached_property
    def operations(self) -> Any:
        from google.cloud.compute_v1 import ZoneOperationsClient

        return self._client(ZoneOperationsClient)

    def _client(self, kind: Any) -> Any:
        return kind(credentials=FixedToken(), client_options={"api_endpoint": self.fake.url})

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.fake.tick()

    def get(self, path: str, **query: object) -> Any:
        """Raw JSON; raises httpx.HTTPStatusError."""
        return self.http.get(path, params={name: str(value) for name, value in query.items()}).raise_for_status().json()

    def insert(self, name: str = "vm-1", zone: str = ZONE, request_id: str | None = None, **scheduling: Any) -> Any:
        """The operation, by the official client."""
        from google.cloud.compute_v1 import InsertInstanceRequest, Instance

        resource = Instance.from_json(_json(spot(name, zone, **scheduling)))
        request = InsertInstanceRequest(project="p", zone=zone, instance_resource=resource, request_id=request_id)
        return self.instances.insert_unary(request, timeout=5)

    def operation(self, given: Any) -> Any:
        """As it is now."""
        return self.operations.get(project="p", zone=given.zone.rsplit("/", 1)[-1], operation=given.name)

    def running(self, name: str = "vm-1", zone: str = ZONE, **scheduling: Any) -> Any:
        self.insert(name, zone, **scheduling)
        self.after(self.fake.create_s)
        assert self.status(name, zone) == "RUNNING"
        return self.fake.instance(name)

    def status(self, name: str = "vm-1", zone: str = ZONE) -> str:
        return str(self.instances.get(project="p", zone=zone, instance=name).status)

    def events(self) -> list[str]:
        """Operation types of what Google did by itself."""
        return [one.operation_type for one in self.fake.operations.all() if one.user == "system"]


def spot(name: str, zone: str = ZONE, **scheduling: Any) -> dict[str, Any]:
    return {
        "name": name,
        "machineType": "zones/%s/machineTypes/n1-standard-8" % zone,
        "labels": {"spot-runner": "spot"},
        "guestAccelerators": [
            {"acceleratorType": "zones/%s/acceleratorTypes/nvidia-tesla-t4" % zone, "acceleratorCount": 1}
        ],
        "scheduling": {
            "provisioningModel": "SPOT",
            "onHostMaintenance": "TERMINATE",
            "automaticRestart": False,
            "instanceTerminationAction": "DELETE",
            **scheduling,
        },
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {"sourceImage": "projects/cos-cloud/global/images/family/cos-stable"},
            }
        ],
        "networkInterfaces": [{"network": "global/networks/default"}],
        "metadata": {"items": [{"key": "startup-script", "value": "#!/bin/bash\n"}]},
    }


@contextmanager
def compute_rig() -> Iterator[Rig]:
    """Ends with AssertionError when an exchange had what the API has not."""
    rig = Rig()
    try:
        yield rig
    finally:
        rig.http.close()
        rig.fake.close()
    assert rig.violations == []
    assert rig.fake.hook_errors == []


def _json(resource: dict[str, Any]) -> str:
    return json.dumps(resource)
