"""The requests and responses of the official clients pass the oracle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials

from tests.cloud.discovery import Oracle
from tests.cloud.test_discovery import COMPUTE, INSTANCE, OBJECT, OPERATION, STORAGE, problem
from tests.cloud.web import Request, Response, WebServer

Rule = tuple[str, str, Any]


class Scripted:
    """Responds by verb and end of path; `told`: the faults that the oracle finds."""

    def __init__(self, oracle: Oracle, rules: list[Rule]) -> None:
        self.oracle, self.rules, self.told, self.seen = oracle, rules, list[str](), 0
        self.server = WebServer(self._answer, self._watch)

    def _answer(self, request: Request) -> Response:
        for method, end, body in self.rules:
            if request.method == method and request.raw_path.endswith(end):
                return body if isinstance(body, Response) else Response(200, body)
        return Response(404, problem(404))

    def _watch(self, request: Request, response: Response) -> None:
        self.seen += 1
        self.told += self.oracle.check(request, response)


@pytest.fixture
def scripted() -> Iterator[list[Scripted]]:
    made: list[Scripted] = []
    yield made
    for one in made:
        one.server.close()


def test_the_exchanges_of_the_official_compute_client_pass(scripted: list[Scripted]) -> None:
    from google.cloud import compute_v1

    instance = INSTANCE | {"id": "123", "status": "RUNNING"}
    serial = {"contents": "spot: phase=boot\n", "start": "0", "next": "17", "kind": "compute#serialPortOutput"}
    operations = {"kind": "compute#operationList", "id": "x", "items": [OPERATION], "selfLink": "y"}
    listing = {"kind": "x", "id": "x", "items": {"zones/us-east1-b": {"instances": [instance]}}, "selfLink": "y"}
    rules = [
        ("POST", "/instances", OPERATION), ("GET", "/serialPort", serial), ("GET", "/operations", operations),
        ("GET", "/operations/operation-1", OPERATION), ("GET", "/aggregated/instances", listing),
        ("POST", "/wait", OPERATION), ("GET", "/vm", instance), ("DELETE", "/vm", OPERATION),
        ("POST", "/stop", OPERATION),
    ]  # fmt: skip
    cloud = Scripted(COMPUTE, list(rules))
    scripted.append(cloud)
    how = {"credentials": AnonymousCredentials(), "client_options": {"api_endpoint": cloud.server.url}}
    vms, there = compute_v1.InstancesClient(**how), {"project": "p", "zone": "us-east1-b"}
    body = compute_v1.Instance.from_json(json.dumps(INSTANCE))
    vms.insert_unary({**there, "instance_resource": body, "request_id": "5f1c0e2d-9a8b-47c6-a3e1-f0d2c4b6a897"})
    vms.get({**there, "instance": "vm"})
    vms.delete_unary({**there, "instance": "vm", "request_id": "5f1c0e2d-9a8b-47c6-a3e1-f0d2c4b6a898"})
    vms.stop_unary({**there, "instance": "vm"})
    vms.get_serial_port_output({**there, "instance": "vm", "port": 1, "start": -100})
    list(vms.aggregated_list({"project": "p", "filter": "labels.a=b", "max_results": 500}))
    operation = {**there, "operation": "operation-1"}
    zonal = compute_v1.ZoneOperationsClient(**how)
    zonal.get(operation)
    zonal.wait(operation)
    list(zonal.list({**there, "filter": 'operationType="compute.instances.preempted"'}))
    assert cloud.told == []
    assert cloud.seen == 9


def test_the_exchanges_of_the_official_storage_client_pass(scripted: list[Scripted]) -> None:
    from google.cloud import storage

    page = {"items": [{name: OBJECT[name] for name in ("name", "generation", "metadata")}]}
    rules: list[Rule] = [
        ("POST", "/upload/storage/v1/b/b/o", OBJECT), ("GET", "/storage/v1/b/b/o", page),
        ("GET", "/download/storage/v1/b/b/o/beats%2Fdigits", Response(200, b"hello")),
        ("GET", "/o/beats%2Fdigits", OBJECT), ("PATCH", "/o/beats%2Fdigits", OBJECT),
        ("DELETE", "/o/beats%2Fdigits", Response(204)),
    ]  # fmt: skip
    cloud = Scripted(STORAGE, rules)
    scripted.append(cloud)
    client = storage.Client("p", AnonymousCredentials(), client_options={"api_endpoint": cloud.server.url})
    blob = client.bucket("b").blob("beats/digits")
    blob.metadata = {"beat": "{}"}
    blob.upload_from_string(b"hello", if_generation_match=0)
    blob.reload()
    list(client.list_blobs("b", prefix="beats/", fields="items(name,generation,metadata),nextPageToken"))
    client.bucket("b").blob("beats/digits").download_as_bytes(raw_download=True, checksum=None)
    blob.metadata = {"beat": "{}", "a": "b"}
    blob.patch()
    blob.delete(if_generation_match=1)
    assert cloud.told == []
    assert cloud.seen >= 6  # it also reads the bucket, in a thread of its own
