"""The environment's proxies and certificates apply to every request, and are read once."""

from __future__ import annotations

from typing import Any

import pytest
from google.auth.exceptions import DefaultCredentialsError

from supervisor.objectstores.gcs.session import open_client
from supervisor.objectstores.gcs.store import GcsStore
from supervisor.ports.objectstore import StoreUnavailable

STORE = "http://storage.example"
ADDRESS = f"{STORE}/storage/v1/b/bucket/o"


@pytest.fixture(autouse=True)
def far_store(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", STORE)


def sent_with() -> Any:
    """The settings that requests would use; no request is sent."""
    session = open_client("gs://bucket", "bucket").session
    return session.merge_environment_settings(ADDRESS, {}, None, None, None)


def test_a_proxy_and_a_bundle_of_certificates_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "ours.pem")
    assert sent_with()["proxies"]["http"] == "http://proxy.example:3128"
    assert sent_with()["verify"] == "ours.pem"


def test_what_needs_no_proxy_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "storage.example")
    assert dict(sent_with()["proxies"]) == {}
    assert sent_with()["verify"] is True


def test_the_environment_is_not_looked_through_at_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    session = open_client("gs://bucket", "bucket").session
    looked: list[str] = []
    monkeypatch.setattr("requests.sessions.get_environ_proxies", lambda url, **_: looked.append(url) or {})
    session.merge_environment_settings(ADDRESS, {}, None, None, None)
    assert looked == []


def test_the_search_for_credentials_is_not_repeated_by_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are none it takes seconds, and a tick makes many calls."""
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    searches: list[float] = []
    now = [0.0]

    def find(**_: object) -> Any:
        searches.append(now[0])
        raise DefaultCredentialsError("none were found")

    monkeypatch.setattr("google.auth.default", find)
    store = GcsStore("gs://bucket", clock=lambda: now[0])
    for at in (0.0, 0.1, 4.9, 5.1, 5.2):
        now[0] = at
        with pytest.raises(StoreUnavailable, match="no Application Default Credentials: none were found"):
            store.bucket()
    assert searches == [0.0, 5.1]
