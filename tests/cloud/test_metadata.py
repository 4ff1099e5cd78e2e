"""The metadata server and Secret Manager of the tests' cloud, as google-auth meets and Google describes them."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import google.auth.compute_engine._metadata as library
import httpx
import pytest
from google.auth.compute_engine import Credentials
from google.auth.transport.requests import Request

from tests.cloud.metadata import MetadataFake
from tests.cloud.secretmanager import SecretManagerFake
from tests.waiting import wait_for

VM = {"id": "5123456789012345678", "name": "spot-1", "zone": "us-east1-b"}
ATTRIBUTES = {"spot-run-id": "digits-7", "startup-script": "#!/bin/bash\n", "spot-gpus": "1"}


@pytest.fixture
def machine() -> Iterator[MetadataFake]:
    with MetadataFake("p", VM, ATTRIBUTES) as fake:
        yield fake


def ask(
    fake: MetadataFake | SecretManagerFake, path: str, headers: dict[str, str] | None = None
) -> tuple[int, str, Any]:
    """(status, body, headers) of a GET."""
    flavor = {"Metadata-Flavor": "Google"} if headers is None else headers
    answer = httpx.get(fake.url + path, headers=flavor, trust_env=False, timeout=60.0)
    return answer.status_code, answer.text, answer.headers


def value(fake: MetadataFake, path: str) -> str:
    status, body, headers = ask(fake, "/computeMetadata/v1/" + path)
    assert (status, headers["Metadata-Flavor"]) == (200, "Google")
    return body


def test_google_auth_finds_its_account_here(machine: MetadataFake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_IP", machine.host)
    monkeypatch.setattr(library, "_GCE_METADATA_HOST", machine.host)
    request = Request()
    assert library.ping(request)
    assert library.get_project_id(request) == "p"
    credentials = Credentials(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    credentials.refresh(request)
    assert machine.accepts("Bearer " + credentials.token)
    assert credentials.service_account_email == machine.email
    machine.revoke()
    assert not machine.accepts("Bearer " + credentials.token)
    credentials.refresh(request)
    assert machine.accepts("Bearer " + credentials.token)
    request.session.close()


def test_nothing_is_told_without_the_header_or_to_a_proxy(machine: MetadataFake) -> None:
    assert ask(machine, "/computeMetadata/v1/instance/id", {})[0] == 403
    forwarded = {"Metadata-Flavor": "Google", "X-Forwarded-For": "10.0.0.1"}
    assert ask(machine, "/computeMetadata/v1/instance/id", forwarded)[0] == 403


def test_values_are_text_and_folders_are_listed(machine: MetadataFake) -> None:
    assert value(machine, "instance/id") == VM["id"]
    assert re.fullmatch(r"projects/\d+/zones/us-east1-b", value(machine, "instance/zone"))
    assert value(machine, "instance/attributes/startup-script") == ATTRIBUTES["startup-script"]
    assert value(machine, "instance/attributes/").split() == list(ATTRIBUTES)
    assert json.loads(value(machine, "instance/attributes/?recursive=true")) == ATTRIBUTES
    everything = json.loads(value(machine, "instance/?recursive=true"))
    assert everything["id"] == int(VM["id"])
    assert everything["serviceAccounts"]["default"]["email"] == machine.email
    assert everything["attributes"] == ATTRIBUTES
    assert ask(machine, "/computeMetadata/v1/instance/attributes/none")[0] == 404


def test_a_wait_ends_with_a_change_and_a_known_value_is_waited_on(machine: MetadataFake) -> None:
    path = "/computeMetadata/v1/instance/preempted"
    _, first, headers = ask(machine, path)
    assert first == "FALSE"
    known = headers["ETag"]
    assert ask(machine, f"{path}?wait_for_change=true&last_etag=0")[1] == "FALSE"
    assert ask(machine, f"{path}?wait_for_change=true&last_etag={known}&timeout_sec=0")[1] == "FALSE"
    answers: list[str] = []
    waiting = threading.Thread(
        target=lambda: answers.append(ask(machine, f"{path}?wait_for_change=true&last_etag={known}")[1])
    )
    waiting.start()
    wait_for(lambda: machine.waiting, 30, "a waiting request")
    machine.set_attribute("other", "1")
    machine.preempt()
    waiting.join(30)
    assert answers == ["TRUE"]
    assert ask(machine, f"{path}?wait_for_change=true&last_etag={known}")[1] == "TRUE"


def test_a_token_is_kept_until_five_minutes_before_its_end() -> None:
    now = [1_000_000.0]
    with MetadataFake("p", VM, clock=lambda: now[0]) as machine:

        def token() -> dict[str, Any]:
            return json.loads(value(machine, "instance/service-accounts/default/token"))

        first = token()
        assert (first["expires_in"], first["token_type"]) == (3599, "Bearer")
        now[0] += 3000.0
        assert token() == {**first, "expires_in": 599}
        now[0] += 300.0
        second = token()
        assert second["access_token"] != first["access_token"]
        assert machine.accepts("Bearer " + first["access_token"])
        now[0] += 300.0
        assert not machine.accepts("Bearer " + first["access_token"])


def test_an_accessed_secret_is_shaped_as_google_describes_it(machine: MetadataFake) -> None:
    raw = files("googleapiclient").joinpath("discovery_cache/documents/secretmanager.v1.json").read_text()
    document = json.loads(raw)
    versions = document["resources"]["projects"]["resources"]["secrets"]["resources"]["versions"]
    method = versions["methods"]["access"]
    token = json.loads(value(machine, "instance/service-accounts/default/token"))["access_token"]
    with SecretManagerFake(authorize=machine.accepts) as fake:
        reference = fake.add("p", "key", "hush-4711")
        name = reference.removeprefix("gcp:")
        assert re.fullmatch(method["parameters"]["name"]["pattern"].strip("^$"), name)
        path = "/" + method["path"].replace("{+name}", name)
        status, body, _ = ask(fake, path, {"Authorization": "Bearer " + token})
        assert status == 200
        assert ask(fake, path, {})[0] == 401
    schema = document["schemas"][method["response"]["$ref"]]["properties"]
    found = json.loads(body)
    assert set(found) == set(schema)
    assert set(found["payload"]) == set(document["schemas"][schema["payload"]["$ref"]]["properties"])
    assert base64.b64decode(found["payload"]["data"]) == b"hush-4711"
