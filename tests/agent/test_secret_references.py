"""Secrets that the machine fetches itself: the value, or a refusal that names the secret and never a value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervisor.agent.machine.secrets import SecretRefused, SecretUnavailable, fetch_secrets
from supervisor.agent.store.googleapi import RetryPolicy
from supervisor.contract.heartbeat import FINISHED, NO_SECRET, NO_START, Beat
from supervisor.domain.causes import Kind, rule_for
from tests.agent.bench import ManualClock
from tests.cloud.metadata import MetadataFake
from tests.cloud.secretmanager import SecretManagerFake
from tests.cloud.web import Reset, Response
from tests.lifecycle.ends import end_of

VALUE = "hush-4711"


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[SecretManagerFake]:
    with MetadataFake("p", {"id": "1", "name": "vm", "zone": "z"}) as machine:
        monkeypatch.setenv("GCE_METADATA_HOST", machine.host)
        with SecretManagerFake(authorize=machine.accepts) as fake:
            yield fake


def fetched(secrets: SecretManagerFake, reference: str) -> str:
    clock = ManualClock()
    values = fetch_secrets({"API_KEY": reference}, secrets.url, None, RetryPolicy(60.0, clock.sleep, clock))
    assert list(values) == ["API_KEY"]
    return values["API_KEY"]


def refused(secrets: SecretManagerFake, reference: str) -> str:
    with pytest.raises(SecretRefused) as caught:
        fetched(secrets, reference)
    assert VALUE not in str(caught.value)
    assert str(caught.value).startswith("secret API_KEY: ")
    return str(caught.value)


def test_without_references_nothing_is_requested(secrets: SecretManagerFake) -> None:
    assert fetch_secrets({}, secrets.url) == {}
    assert secrets.requests == []


@pytest.mark.parametrize("kept", [VALUE, VALUE + "\n", "ключ", "two\nlines\n", 'q"$\\'])
def test_the_value_is_the_stored_one_without_one_line_break(secrets: SecretManagerFake, kept: str) -> None:
    reference = secrets.add("p", "api-key", kept)
    assert fetched(secrets, reference) == kept.removesuffix("\n")


def test_the_named_version_is_read(secrets: SecretManagerFake) -> None:
    first = secrets.add("p", "api-key", VALUE)
    secrets.add("p", "api-key", "another")
    assert fetched(secrets, first) == VALUE
    assert fetched(secrets, "gcp:projects/p/secrets/api-key/versions/latest") == "another"


def test_a_temporary_outage_is_retried(secrets: SecretManagerFake) -> None:
    reference = secrets.add("p", "api-key", VALUE)
    secrets.fail(Response(429, b""), Response(503, b"busy"), Reset(), Response(500, b""))
    assert fetched(secrets, reference) == VALUE


def test_a_denied_secret_shows_the_response(secrets: SecretManagerFake) -> None:
    reference = secrets.add("p", "api-key", VALUE)
    secrets.deny("p", "api-key")
    text = refused(secrets, reference)
    assert "projects/p/secrets/api-key/versions/1 cannot be read: HTTP 403: Permission" in text
    assert len(secrets.requests) > 1, "a role that was granted a minute ago is not everywhere yet"


def test_a_role_that_takes_minutes_to_arrive_is_retried(secrets: SecretManagerFake) -> None:
    reference = secrets.add("p", "api-key", VALUE)
    secrets.fail(*[Response(403, b'{"error": {"message": "Permission denied"}}')] * 12)
    assert fetched(secrets, reference) == VALUE


def test_other_refusals_show_the_response_too(secrets: SecretManagerFake) -> None:
    reference = secrets.add("p", "api-key", VALUE)
    assert "HTTP 404" in refused(secrets, "gcp:projects/p/secrets/api-key/versions/9")
    assert len(secrets.requests) == 1, "a refusal that no time mends is not repeated"
    secrets.disable("p", "api-key", 1)
    assert "HTTP 400: Secret Version" in refused(secrets, reference)
    assert "no reference" in refused(secrets, "env:API_KEY")


def test_an_unavailable_service_is_not_the_runs_fault(secrets: SecretManagerFake) -> None:
    """A run with days of work does not fail for it: the attempt ends, and the next one requests it again."""
    reference = secrets.add("p", "api-key", VALUE)
    secrets.fail(*[Response(503, b"busy")] * 100)
    with pytest.raises(SecretUnavailable, match="was not answered: HTTP 503: busy") as caught:
        fetched(secrets, reference)
    assert (caught.value.left, SecretRefused.left) == (NO_START, NO_SECRET)
    is_final = {}
    for left in (NO_START, NO_SECRET):
        end = end_of(Beat("digits", 1, "1.1.1", "m", "b", 1, FINISHED, left=left))
        assert end is not None
        is_final[left] = rule_for(end[0]).kind == Kind.FINAL
    assert is_final == {NO_START: False, NO_SECRET: True}


@pytest.mark.parametrize("kept", [b"\xff\xfe", b"with\x00nul", b"abc", b"   \n", b""])
def test_a_value_that_cannot_be_a_variable_or_be_masked_is_refused(secrets: SecretManagerFake, kept: bytes) -> None:
    refused(secrets, secrets.add("p", "api-key", kept))


def test_a_response_without_a_value_is_refused(secrets: SecretManagerFake) -> None:
    for body in (b"", b"[]", b'{"payload": {"data": "@@"}}', b'{"payload": {"data": 5}}'):
        secrets.fail(Response(200, body))
        refused(secrets, "gcp:projects/p/secrets/api-key/versions/1")
