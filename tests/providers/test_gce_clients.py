"""The client of the API: what is loaded when, with which account, and what is sent."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import requests
import urllib3
from google.api_core.exceptions import Forbidden
from google.oauth2.credentials import Credentials as UserCredentials

from supervisor.objectstores.gcs.store import GcsStore
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.providers.gce.calls.clients import API_VERSION, Compute
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.calls.official import keep_connections, with_api_errors
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.config import GceConfig
from tests.cloud.compute import ComputeFake
from tests.cloud.metadata import MetadataFake
from tests.cloud.resourcemanager import ResourceManagerFake
from tests.cloud.web import Hang, Reset
from tests.providers.gce_subject import GceSubject

BIG = "google.cloud.compute_v1"
REQUEST_ID = "3b241101-e2bb-4255-8caf-4136c566a962"


def run(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_provider_that_is_made_has_loaded_nothing_and_what_is_read_needs_no_big_package(tmp_path: Path) -> None:
    """As a real supervisor: Application Default Credentials from the metadata server, and nothing of ours injected."""
    compute, metadata = ComputeFake(), MetadataFake("p")
    compute.accept_token = lambda token: metadata.accepts(f"Bearer {token}")
    compute.add_instances(3)
    try:
        told = run(
            f"""
            import sys
            from pathlib import Path
            from supervisor.domain.machines import MachineRef
            from supervisor.objectstores.filesystem import FilesystemStore
            from supervisor.providers.gce.calls.errors import ApiError
            from supervisor.providers.gce.config import GceConfig, Shape, offers
            from supervisor.providers.gce.provider import GceProvider
            from supervisor.reconciler.system_clock import SystemClock
            config = GceConfig("p", ("us-east1-c",), {{"cpu": Shape("n2-standard-4")}}, endpoint={compute.url!r})
            store = FilesystemStore.create(Path({str(tmp_path)!r}) / "objects")
            provider = GceProvider(config, offers(config), store, None, SystemClock())
            print([name for name in sys.modules if name.startswith(("google.auth", "google.cloud."))])
            def loaded():
                return [name for name in sys.modules if name.startswith({BIG!r} + ".services.")]
            print(len(provider.machines().machines), len(loaded()))
            print(provider._compute.identity())
            provider.warm()
            print(len(loaded()))
            print(provider.find(MachineRef("gce", "us-east1-c", "nobody")), len(loaded()))
            try:
                provider._compute.delete("us-east1-c", "nobody", {REQUEST_ID!r})
            except ApiError as error:
                print(error.missing, 0 < len(loaded()) < 40)
            provider.close()
            from google.cloud import compute_v1
            print(len(loaded()) > 500, compute_v1.DisksClient.__name__)
            """,
            {**metadata.environment(), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert told.splitlines() == ["[]", "3 0", metadata.email, "0", "None 0", "True True", "True DisksClient"]
        assert metadata.tokens_issued == 1
    finally:
        compute.close()
        metadata.close()


def test_a_package_that_is_laid_out_in_another_way_is_loaded_as_a_whole() -> None:
    """The package promises the content of its `__init__`, not the places of its modules."""
    compute = ComputeFake()
    compute.add_instances(1, ["us-east1-c"])
    try:
        told = run(
            f"""
            import sys
            class Moved:
                looks = 0
                def find_spec(self, name, path=None, target=None):
                    if name == {BIG!r} + ".services.instances":
                        Moved.looks += 1
                        if Moved.looks == 1:
                            raise ModuleNotFoundError("it has moved", name=name)
            sys.meta_path.insert(0, Moved())
            from google.oauth2.credentials import Credentials
            from supervisor.providers.gce.calls.clients import Compute
            from supervisor.providers.gce.config import GceConfig
            from supervisor.providers.gce.calls.retry import Retry
            config = GceConfig("p", ("us-east1-c",), {{}}, endpoint={compute.url!r})
            clients = Compute(config, Retry(), lambda: Credentials(token="a-token"))
            deleted = clients.delete("us-east1-c", "vm-00000", {REQUEST_ID!r})
            print(deleted["operationType"], deleted["targetLink"].rpartition("/")[2], Moved.looks)
            """,
            {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert told.split() == ["delete", "vm-00000", "2"]
    finally:
        compute.close()


def test_without_credentials_it_is_said_so() -> None:
    def none() -> object:
        from google.auth.exceptions import DefaultCredentialsError

        raise DefaultCredentialsError("Your default credentials were not found.")

    compute = Compute(GceConfig("p", ("z",), {}), Retry(), none)
    with pytest.raises(ApiError, match="no Google credentials") as told:
        compute.read("")
    assert told.value.reason == "identity"
    with pytest.raises(ApiError):
        compute.read("")
    compute.warm()  # says nothing: the first use will


@pytest.mark.parametrize("content", [b"[]", b"[" * 100_000, b"\xff\x00", b'{"type": "authorized_user"}', None])
def test_a_credentials_file_that_holds_something_else_is_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    path = tmp_path / "adc.json"
    path.mkdir() if content is None else path.write_bytes(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    with pytest.raises(ApiError, match="no Google credentials") as told:
        Compute(GceConfig("p", ("z",), {}), Retry()).read("")
    assert told.value.reason == "identity"
    with pytest.raises(StoreUnavailable, match="no Application Default Credentials"):
        GcsStore("gs://bucket").bucket()


def missing(compute: Compute) -> bool:
    """A call of the official client. ApiError where Google does not say that there is no such machine."""
    with pytest.raises(ApiError) as told:
        compute.delete("us-east1-c", "nobody", REQUEST_ID)
    if not told.value.missing:
        raise told.value
    return True


@pytest.fixture
def subject(tmp_path: Path):  # type: ignore[no-untyped-def]
    subject = GceSubject(tmp_path, per_try_s=0.3)
    yield subject
    subject.close()


def test_the_bulk_listings_pin_the_version_and_mask_the_fields(tmp_path: Path) -> None:
    subject = GceSubject(tmp_path, per_try_s=30.0)  # no page is requested twice because it took long
    try:
        subject.compute.add_instances(501)
        subject.compute.clear_requests()
        subject.provider.machines()
    finally:
        subject.close()
    bulk = [one for one in subject.compute.requests if one.path.endswith(("/aggregated/instances", "/operations"))]
    assert len(bulk) == 2 + 3
    assert {one.headers["x-goog-api-version"] for one in bulk} == {API_VERSION}
    assert all(one.one("fields") for one in bulk)
    assert "unreachables" in str(bulk[0].one("fields"))


def test_the_version_is_that_of_the_official_client(subject: GceSubject) -> None:
    subject.provider.launch(subject.request())
    sent = {one.headers.get("x-goog-api-version") for one in subject.compute.requests}
    assert sent == {API_VERSION}


@pytest.mark.parametrize("how", [Hang, Reset, (502, b"<html>a proxy</html>")])
def test_no_clear_answer_is_an_error_of_no_status_and_is_asked_again(subject: GceSubject, how: object) -> None:
    compute = subject.provider._compute
    subject.compute.fail_next("GET", "/aggregated", how)  # type: ignore[arg-type]
    assert compute.read("aggregated/instances")
    subject.compute.fail_next("GET", "/instances/", how)  # type: ignore[arg-type]
    assert compute.get("us-east1-c", "nobody") is None
    subject.compute.fail_next("DELETE", "/instances/", how)  # type: ignore[arg-type]
    assert missing(compute)
    for call in (lambda: compute.get("us-east1-c", "nobody"), lambda: missing(compute)):
        subject.compute.fail_next(None, "", how, times=5)  # type: ignore[arg-type]
        with pytest.raises(ApiError) as told:
            call()
        assert not told.value.missing


def test_a_token_that_has_ended_is_renewed(subject: GceSubject) -> None:
    from google.auth.credentials import Credentials

    class Renewed(Credentials):  # type: ignore[misc]
        number = 0

        def refresh(self, request: object) -> None:
            self.number += 1
            self.token = f"token-{self.number}"

    credentials = Renewed()  # type: ignore[no-untyped-call]
    compute = Compute(subject.config, Retry(), lambda: credentials)
    good = {"token-1"}
    subject.compute.accept_token = lambda token: token in good
    assert compute.read("aggregated/instances")
    assert missing(compute)
    for official in (False, True):
        good.clear()
        good.add(f"token-{credentials.number + 1}")
        if official:
            assert missing(compute)
        else:
            assert compute.read("aggregated/instances")
    good.clear()  # the account was switched off
    with pytest.raises(ApiError) as told:
        missing(compute)
    assert told.value.status == 401


def test_googles_word_and_message_come_through(subject: GceSubject) -> None:
    subject.compute.refuse("/zones/us-east1-c/instances/vm", 403, "forbidden")
    with pytest.raises(ApiError) as official:
        subject.provider._compute.delete("us-east1-c", "vm", REQUEST_ID)
    with pytest.raises(ApiError) as plain:
        subject.provider._compute.get("us-east1-c", "vm")
    for told in (official.value, plain.value):
        assert (told.status, told.reason) == (403, "forbidden")
        assert "https://" not in str(told)


def test_those_who_come_while_it_is_loading_wait_for_it(subject: GceSubject) -> None:
    """One load for all callers, and no lock is held during it."""
    loads: list[int] = []
    begin = threading.Event()

    def slow() -> object:
        loads.append(1)
        begin.wait(10)
        from google.oauth2.credentials import Credentials

        return Credentials(token="a-token")

    compute = Compute(subject.config, Retry(), slow)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(compute.read(""))) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert not compute._lock.locked() or loads == []
    begin.set()
    for thread in threads:
        thread.join(30)
    assert len(found) == 6
    assert len(loads) == 1


def test_the_search_for_credentials_is_not_repeated_by_each_call() -> None:
    searches: list[float] = []
    now = [0.0]

    def find() -> object:
        searches.append(now[0])
        raise ApiError("none were found", None, "identity")

    config = GceConfig("p", ("us-east1-b",), {})
    compute = Compute(config, Retry(monotonic=lambda: now[0]), find)
    for at in (0.0, 4.9, 5.1, 5.2):
        now[0] = at
        with pytest.raises(ApiError, match="none were found"):
            compute.identity()
    assert searches == [0.0, 5.1]


def test_what_broke_stands_before_any_address() -> None:
    """A sentence is cut at its end: the address of a request is long, and the reason would be lost behind it."""
    pool = urllib3.HTTPSConnectionPool("compute.googleapis.com")
    broke = urllib3.exceptions.MaxRetryError(pool, "/compute/v1/a-long-path", Exception("Connection refused"))

    def call() -> None:
        raise requests.exceptions.ConnectionError(broke)

    with pytest.raises(ApiError, match=r"^no clear response: Connection refused$"):
        with_api_errors(call)


def test_googles_words_stand_without_the_address_that_its_client_puts_before_them() -> None:
    def call() -> None:
        raise Forbidden("POST https://compute.googleapis.com/compute/v1/projects/p: Compute API is disabled.")

    with pytest.raises(ApiError) as refused:
        with_api_errors(call)
    assert Exception.__str__(refused.value) == "Compute API is disabled"


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "no_proxy", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "OF_NO_MEANING"])
def test_the_environment_is_read_by_each_request_only_where_it_names_something(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for known in [known for known in os.environ if known.lower().endswith(("_proxy", "_ca_bundle"))]:
        monkeypatch.delenv(known)
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    session = requests.Session()
    keep_connections(session)
    assert session.trust_env == (name != "OF_NO_MEANING")


@pytest.mark.parametrize("set_in_the_credentials", ["", "another"])
def test_a_persons_calls_to_other_services_name_the_project_that_they_count_to(set_in_the_credentials: str) -> None:
    """Compute Engine counts by the project of the address, and needs no such word."""
    given = UserCredentials("ya29.of-a-person", quota_project_id=set_in_the_credentials or None)  # type: ignore[no-untyped-call]
    compute, projects = ComputeFake(), ResourceManagerFake("p")
    sent: list[str | None] = []
    projects.server.guard(lambda request: sent.append(request.headers.get("x-goog-user-project")))  # type: ignore[func-returns-value]
    try:
        config = GceConfig("p", ("us-east1-c",), {}, endpoint=compute.url)
        door = Compute(config, Retry(), lambda: given)
        door.other_api("POST", f"{projects.url}/v1/projects/p:testIamPermissions", {"permissions": []})
        door.read("zones/us-east1-c")
        assert sent == [set_in_the_credentials or "p"]
        if not set_in_the_credentials:
            assert "x-goog-user-project" not in compute.requests[-1].headers
    finally:
        compute.close()
        projects.close()
