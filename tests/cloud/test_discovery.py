"""The oracle catches what Google's API does not have."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest

from tests.cloud.discovery import Oracle
from tests.cloud.web import Request, Response

COMPUTE, STORAGE = Oracle("compute"), Oracle("storage")
INSTANCES = "/compute/v1/projects/p/zones/us-east1-b/instances"
OPERATION = {
    "kind": "compute#operation", "id": "4711", "name": "operation-1", "operationType": "insert", "status": "DONE",
    "zone": "https://www.googleapis.com/compute/v1/projects/p/zones/us-east1-b", "progress": 100,
    "targetId": "123", "insertTime": "2026-11-21T10:00:00.000-08:00",
    "selfLink": "https://www.googleapis.com/compute/v1/projects/p/zones/us-east1-b/operations/operation-1",
}  # fmt: skip
INSTANCE: dict[str, Any] = {
    "name": "spot-0a1b2c3d-a1-t1",
    "machineType": "zones/us-east1-b/machineTypes/n1-standard-8",
    "labels": {"spot-run-id": "digits"},
    "scheduling": {
        "provisioningModel": "SPOT", "instanceTerminationAction": "DELETE", "automaticRestart": False,
        "onHostMaintenance": "TERMINATE", "maxRunDuration": {"seconds": "86400"},
    },
    "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"diskSizeGb": "100"}}],
    "guestAccelerators": [{"acceleratorCount": 1, "acceleratorType": "zones/us-east1-b/acceleratorTypes/t4"}],
    "metadata": {"items": [{"key": "spot-run-id", "value": "digits"}]},
}  # fmt: skip
OBJECT = {
    "kind": "storage#object", "id": "b/o/1", "bucket": "b", "name": "o", "generation": "1", "metageneration": "1",
    "size": "5", "md5Hash": "XUFAKrxLKna5cZ2REBfFkg==", "crc32c": "mnG7TA==", "metadata": {"beat": "{}"},
    "timeCreated": "2026-11-21T10:00:00.123Z", "updated": "2026-11-21T10:00:00.123Z",
}  # fmt: skip


def ask(method: str, path: str, body: Any = None, **query: str | list[str]) -> Request:
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    values = {name: [one] if isinstance(one, str) else one for name, one in query.items()}
    return Request(method, path, values, {"content-type": "application/json"}, raw)


def problem(code: int, reason: str = "notFound") -> dict[str, Any]:
    told = {"message": "no", "domain": "global", "reason": reason}
    return {"error": {"code": code, "message": "no", "errors": [told]}}


def changed(path: str, value: Any) -> dict[str, Any]:
    """INSTANCE with one value at a dotted path; None = taken out."""
    body = copy.deepcopy(INSTANCE)
    *above, last = path.split(".")
    place: Any = body
    for word in above:
        place = place[int(word)] if isinstance(place, list) else place.setdefault(word, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return body


def insert(body: Any, **query: str) -> list[str]:
    return COMPUTE.check(ask("POST", INSTANCES, body, **query), Response(200, OPERATION))


def test_a_right_insert_passes() -> None:
    assert insert(INSTANCE, requestId="5f1c0e2d-9a8b-47c6-a3e1-f0d2c4b6a897") == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("name", "Bad_Name", "does not match"),
        ("name", None, "body.name: required"),
        ("labels.spot-attempt", 1, "no string"),
        ("scheduling.provisioningModel", "PREEMPT", "none of"),
        ("foo", "x", "body.foo: there is no such field"),
        ("metadata.items.0.value", None, "value: required"),
        ("metadata.items.0.key", "a b", "does not match"),
        ("disks.0.initializeParams.diskSizeGb", 100, "no string"),
        ("disks.0.initializeParams.diskSizeGb", "hundred", "does not match"),
        ("status", "RUNNING", "read-only"),
        ("scheduling.max_run_duration", {"seconds": "1"}, "there is no such field"),
        ("scheduling.automaticRestart", "false", "no boolean"),
        ("guestAccelerators.0.acceleratorCount", "1", "no integer"),
        ("guestAccelerators.0.acceleratorCount", 2**31, "not within"),
        ("guestAccelerators.0.acceleratorCount", True, "no integer"),
        ("disks", {}, "no array"),
        ("metadata", [], "no object"),
        ("description", [], "no string"),
    ],
)
def test_wrong_bodies_are_caught(path: str, value: Any, words: str) -> None:
    [told] = insert(changed(path, value))
    assert words in told
    assert told.startswith(f"POST {INSTANCES} (compute.instances.insert): body")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ask("GET", INSTANCES, request_id="x"), "request_id: there is no such parameter"),
        (ask("GET", INSTANCES, maxResults="many"), "no integer"),
        (ask("GET", INSTANCES, maxResults="-1"), "not within"),
        (ask("GET", INSTANCES, maxResults=["1", "2"]), "sent 2 times"),
        (ask("GET", INSTANCES, prettyPrint="no"), "neither true nor false"),
        (ask("GET", INSTANCES, alt="yaml"), "none of"),
        (ask("GET", INSTANCES, {"name": "x"}), "takes none"),
        (ask("GET", "/compute/v1/projects/p/zones/US_EAST/instances"), "path parameter zone"),
        (ask("GET", "/compute/v1/projects/p/zones/us-east1-b/vms"), "no such method"),
        (ask("PUT", INSTANCES), "no such method"),
        (ask("GET", "/v1/projects/p/zones/us-east1-b/instances"), "no such method"),
        (ask("GET", INSTANCES, fields="items(name"), "not closed"),
        (ask("GET", INSTANCES, fields="items(name,zome)"), "zome: there is no such field"),
    ],
)
def test_wrong_requests_are_caught(request_: Request, words: str) -> None:
    [told] = COMPUTE.check(request_, Response(200, {}))
    assert words in told


def test_a_body_that_is_no_json_is_caught() -> None:
    [told] = COMPUTE.check(ask("POST", INSTANCES, b"name: vm"), Response(200, OPERATION))
    assert "no JSON" in told


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Response(200, OPERATION | {"id": 4711}), "no string"),
        (Response(200, OPERATION | {"state": "DONE"}), "no such field"),
        (Response(200, OPERATION | {"status": "FINISHED"}), "none of"),
        (Response(200, OPERATION | {"targetId": None}), "null"),
        (Response(200), "no JSON"),
        (Response(404, {"message": "no"}), "no error of Google's form"),
        (Response(404, problem(400)), "code: 400 with status 404"),
        (Response(404, {"error": {"code": 404, "message": "no"}}), "errors: missing"),
        (Response(404, {"error": problem(404)["error"] | {"hint": ""}}), "hint: there is no such field"),
        (Response(404, b"nobody here"), "no error of Google's form"),
    ],
)
def test_wrong_answers_are_caught(answer: Response, words: str) -> None:
    [told] = COMPUTE.check(ask("POST", INSTANCES, INSTANCE), answer)
    assert words in told


def test_answers_are_held_to_their_mask() -> None:
    path, words = "/compute/v1/projects/p/aggregated/instances", "items/*/instances(name,labels),unreachables"
    scope = {"instances": [{"name": "vm", "labels": {"any": "key"}}]}
    request = ask("GET", path, fields=words, returnPartialSuccess="true")
    assert COMPUTE.check(request, Response(200, {"items": {"zones/us-east1-b": scope}})) == []
    scope["instances"][0]["status"] = "RUNNING"
    told = COMPUTE.check(request, Response(200, {"items": {"zones/us-east1-b": scope}, "id": "x"}))
    assert [one.partition("): ")[2] for one in told] == [
        "answer.items.zones/us-east1-b.instances[0].status: answered, but `fields` does not ask for it",
        "answer.id: answered, but `fields` does not ask for it",
    ]


def test_every_way_of_an_upload() -> None:
    path = "/upload/storage/v1/b/b/o"
    parts = b"--x\r\ncontent-type: application/json\r\n\r\n%s\r\n--x\r\n\r\nhello\r\n--x--"

    def multipart(metadata: bytes) -> list[str]:
        headers = {"content-type": 'multipart/related; boundary="x"'}
        request = Request("POST", path, {"uploadType": ["multipart"]}, headers, parts % metadata)
        return STORAGE.check(request, Response(200, OBJECT))

    assert multipart(b'{"name": "o", "metadata": {"beat": "{}"}}') == []
    assert "no string" in multipart(b'{"name": "o", "metadata": {"step": 7}}')[0]
    assert "no JSON" in multipart(b"o")[0]
    assert STORAGE.check(ask("POST", path, b"hello", uploadType="media", name="o"), Response(200, OBJECT)) == []
    begun = Response(200, None, {"Location": "x"})
    begin = ask("POST", path, {"name": "o"}, uploadType="resumable", ifGenerationMatch="0")
    assert STORAGE.check(begin, begun) == []
    assert "without a Location" in STORAGE.check(begin, Response(200))[0]
    piece = ask("PUT", path, b"hello", uploadType="resumable", upload_id="u")
    assert STORAGE.check(piece, Response(308)) == []
    assert STORAGE.check(piece, Response(200, OBJECT)) == []
    assert "no string" in STORAGE.check(piece, Response(200, OBJECT | {"generation": 1}))[0]
    assert "uploadType" in STORAGE.check(ask("POST", path, b"hello", name="o"), Response(200, OBJECT))[0]


def test_objects_with_slashes_downloads_and_patches() -> None:
    path = "/storage/v1/b/b/o/beats%2Fdigits"
    assert STORAGE.check(ask("GET", path), Response(200, OBJECT)) == []
    assert "no such method" in STORAGE.check(ask("GET", path.replace("%2F", "/")), Response(200, OBJECT))[0]
    assert STORAGE.check(ask("GET", "/download" + path, alt="media"), Response(200, b"hello")) == []
    assert STORAGE.check(ask("GET", "/download" + path, alt="media"), Response(404, b"No such object")) == []
    assert STORAGE.check(ask("PATCH", path, {"metadata": {"beat": None}}), Response(200, OBJECT)) == []
    assert STORAGE.check(ask("DELETE", path, ifGenerationMatch="7"), Response(204)) == []
    assert "takes none" not in STORAGE.check(ask("DELETE", path, ifGenerationMatch="x"), Response(204))[0]
    assert "is a body" in STORAGE.check(ask("DELETE", path), Response(200, {}))[0]


def test_a_check_costs_little() -> None:
    items = [{"key": f"k{n}", "value": "v" * 4000} for n in range(20)]
    big = INSTANCE | {"metadata": {"items": items}}
    insert(big)
    began = time.process_time()
    for _ in range(100):
        assert insert(big) == []
    assert time.process_time() - began < 0.1  # 0.3 ms each would be 0.03


def test_what_was_good_once_is_judged_anew_when_anything_of_it_changes() -> None:
    oracle, path = Oracle("compute"), f"{INSTANCES}/vm"
    good = Response(200, {"name": "vm"})
    for _ in range(2):
        assert oracle.check(ask("GET", path, fields="name"), good) == []
    assert oracle.check(ask("GET", path, fields="name"), Response(200, {"nom": "vm"})) != []
    assert oracle.check(ask("GET", path, fields="id"), good) != []
    assert oracle.check(ask("GET", path, fields="name"), Response(404, {"name": "vm"})) != []
    assert oracle.check(ask("GET", path + "/serialPorts", fields="name"), good) != []
    assert oracle.check(ask("GET", path, {}, fields="name"), good) == []
