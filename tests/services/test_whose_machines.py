"""Project name and number are shown with machines, and no reader waits for the network to get them."""

from __future__ import annotations

import pytest

from supervisor.ports.platform import Account
from tests.services.bed import Bed, Client

URL = "https://console.cloud.google.com/compute/instances?project=p"


@pytest.fixture
def client(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Client:
    def asked() -> Account:
        raise AssertionError("the network is asked")

    bed.platform.told = Account("p", "123", URL)
    monkeypatch.setattr(bed.platform, "account_so_far", lambda: bed.platform.told)
    monkeypatch.setattr(bed.platform, "account", asked)
    bed.submit("digits-7")
    return Client(bed.services)


def test_meta_shows_the_project_by_name_and_number(bed: Bed, client: Client) -> None:
    meta = client.get("/v1/meta").json()
    assert (meta["project"], meta["project_number"], meta["console_url"]) == ("p", "123", URL)
    bed.platform.told = Account("p", "", URL)
    assert client.get("/v1/meta").json()["project_number"] is None
    bed.platform.told = Account("this computer")
    assert client.get("/v1/meta").json()["project"] is None


def test_a_run_shows_the_account_of_its_machines(bed: Bed, client: Client) -> None:
    account = client.get("/v1/runs/digits-7").json()["account"]
    assert (account["name"], account["number"], account["console_url"]) == ("p", "123", URL)
    bed.change("digits-7", cell="gce elsewhere gs://b")
    assert client.get("/v1/runs/digits-7").json()["account"] is None
