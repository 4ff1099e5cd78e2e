"""Foreign texts appear in our sentences, which have their own full stop: the foreign one is removed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from google.api_core.exceptions import Forbidden
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError
from requests.exceptions import ConnectionError as NoConnection
from sqlalchemy import exc

from supervisor.contract import bundle
from supervisor.contract.bundle import BundleRefused, Member, Tree
from supervisor.domain.errors import Unavailable
from supervisor.domain.texts import clause
from supervisor.host.nvidia_smi import CardsUnread, NvidiaSmi
from supervisor.images.registry import Registries
from supervisor.notifiers.webhook import Answered, WebhookCourier
from supervisor.objectstores.gcs.retry import RequestFailed, unavailable
from supervisor.objectstores.gcs.store import GcsStore
from supervisor.ports.notifier import DeliveryFailed
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import StoreDown
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, as_unavailable, failure_of_operation, failure_of_request
from supervisor.providers.gce.calls.official import error_of_response, with_api_errors
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.config import GceConfig
from supervisor.storage.engine import database
from supervisor.wiring import bootstrap
from tests.providers.stub_cards import StubCards

NOT_FOUND = "Your default credentials were not found. To set them up, see https://h/x."


@pytest.mark.parametrize(
    ("words", "told"),
    [("It broke.", "It broke"), ("a.b", "a.b"), ("cut …", "cut …"), (".\r\n", ""), (ValueError("no. \n"), "no")],
)
def test_the_last_full_stop_goes(words: object, told: str) -> None:
    assert clause(words) == told


def test_a_start_without_google_credentials_is_refused_with_single_full_stops() -> None:
    def none() -> object:
        raise DefaultCredentialsError(NOT_FOUND)

    with (
        pytest.raises(Unavailable) as refusal,
        bootstrap.start_errors(cast(Any, SimpleNamespace(database_url="sqlite:///x"))),
        as_unavailable("the machines"),
    ):
        Compute(GceConfig("p", ("z",), {}), Retry(), none).read("")
    assert f"no Google credentials: {NOT_FOUND} Nothing was started; " in str(refusal.value)


@pytest.mark.parametrize(
    "error", [DefaultCredentialsError(NOT_FOUND), RefreshError("Too late."), GoogleAuthError("Bad."),
              NoConnection("It went away."), Forbidden("POST https://h/x: It is off."), ValueError("No JSON.")],
)  # fmt: skip
def test_googles_clients(error: Exception) -> None:
    def call() -> None:
        raise error

    with pytest.raises(ApiError) as told:
        with_api_errors(call)
    assert not str(told.value).endswith(".")


def test_googles_answers() -> None:
    content = json.dumps({"error": {"message": "The API is off.", "errors": [{"reason": "off"}]}}).encode()
    assert str(error_of_response(403, content)) == "HTTP 403 off: The API is off"
    assert str(error_of_response(502, b"It broke.\n")) == "HTTP 502: It broke"
    assert not str(failure_of_request(error_of_response(403, content), "r")).endswith(".")


def test_googles_operations() -> None:
    assert (
        str(failure_of_operation([{"code": "STOCKOUT", "message": "Try again later."}], "r"))
        == "STOCKOUT: Try again later"
    )
    advised = str(failure_of_operation([{"code": "INTERNAL_ERROR", "message": "It broke."}], "r"))
    assert advised == "INTERNAL_ERROR: It broke. An error inside Google Cloud"
    assert str(failure_of_operation([{"code": "RATE_LIMIT_EXCEEDED"}], "r")) == "RATE_LIMIT_EXCEEDED. Too many requests"
    used_up = failure_of_operation(
        [{"code": "QUOTA_EXCEEDED", "message": "Quota 'CPUS' exceeded. Limit: 8.0 in region r."}], "r"
    )
    assert "(limit 8)" in str(used_up)
    assert str(used_up).endswith("Limit: 8.0 in region r")


def test_the_search_for_the_buckets_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: object) -> Any:
        raise DefaultCredentialsError(NOT_FOUND)

    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setattr("google.auth.default", none)
    with pytest.raises(StoreUnavailable, match=r"https://h/x$"):
        GcsStore("gs://bucket").bucket()


@pytest.mark.parametrize("status", [None, 401, 403, 404, 500])
def test_the_buckets_answers(status: int | None) -> None:
    assert str(unavailable("gs://b", "read", "k", RequestFailed(status, "It is so.", False))).endswith(": It is so")


def test_the_databases_words() -> None:
    with pytest.raises(StoreDown, match="the database failed: The disk is gone; nothing"), database._port_errors():
        raise exc.OperationalError("select", {}, Exception("The disk is gone.\nMore."))


def test_the_registrys_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def head(*_: object, **__: object) -> Any:
        raise httpx.ConnectError("It is away.")

    monkeypatch.setattr(httpx.Client, "head", head)
    with pytest.raises(ProviderUnavailable, match=r"ConnectError It is away$"):
        Registries(str).pin("h.example/train:v1")


NONSENSE = {"cards": [{"index": "0\n", "uuid": "x", "name": "y", "used": 1, "total": "2."}]}


@pytest.mark.parametrize("how", [{"fail": "It has failed. Install it."}, NONSENSE])
def test_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]) -> None:
    cards = StubCards(tmp_path / "bin", 1)
    cards.answers(**how)
    monkeypatch.setenv("PATH", str(cards.folder), prepend=":")
    with pytest.raises(CardsUnread, match=r"[^.]$"):
        NvidiaSmi().read()


def test_a_webhooks_receiver() -> None:
    courier = cast(Any, SimpleNamespace(_wall=lambda: 0.0))
    target = cast(Any, SimpleNamespace(url="https://h/x", form=None))
    with pytest.raises(DeliveryFailed, match=r"^HTTP 400 from h: Bad request$"):
        WebhookCourier._judge(courier, Answered(400, {}, b"Bad request."), target, "h")


def test_the_advice_for_a_bundle() -> None:
    with pytest.raises(BundleRefused, match=r"elsewhere$"):
        Tree().add(Member("a", bundle.MAX_BYTES + 1))
