"""The account of an agent on the supervisor's own computer: a person's login there, else the metadata server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from supervisor.agent.store.googleapi import Account, MetadataServer, UserLogin, account_for, login_path
from supervisor.agent.store.httpclient import Unreachable
from tests.cloud.web import Request, Response, WebServer

LOGIN = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}


def login_in(folder: Path, content: Any = LOGIN) -> Path:
    file = folder / "application_default_credentials.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


class Google:
    """The server that renews logins. `asked`: the received forms."""

    def __init__(self) -> None:
        self.status, self.answer = 200, {"access_token": "t-1", "expires_in": 3599}
        self.forms: list[dict[str, list[str]]] = []
        self.server = WebServer(self._answer)

    def _answer(self, request: Request) -> Response:
        assert (request.method, request.path) == ("POST", "/token")
        self.forms.append(parse_qs(request.body.decode()))
        return Response(self.status, self.answer)


@pytest.fixture
def google() -> Iterator[Google]:
    google = Google()
    yield google
    google.server.close()


def test_a_login_is_renewed_once_for_many_calls(tmp_path: Path, google: Google) -> None:
    account = Account(UserLogin(str(login_in(tmp_path)), google.server.url))
    assert [account.token(), account.token()] == ["t-1", "t-1"]
    [form] = google.forms
    assert form == {
        "grant_type": ["refresh_token"], "client_id": ["c"], "client_secret": ["s"], "refresh_token": ["r"],
    }  # fmt: skip
    account.discard("t-1")
    google.answer = {"access_token": "t-2", "expires_in": 3599}
    assert account.token() == "t-2"
    account.close()


@pytest.mark.parametrize("spoilt", ["gone", "no JSON", "a key is missing", "revoked", "no token"])
def test_a_failed_renewal_is_reported_without_secrets(tmp_path: Path, google: Google, spoilt: str) -> None:
    file = login_in(tmp_path)
    if spoilt == "gone":
        file.unlink()
    elif spoilt == "no JSON":
        file.write_text("{", encoding="utf-8")
    elif spoilt == "a key is missing":
        login_in(tmp_path, {"type": "authorized_user"})
    elif spoilt == "revoked":
        google.status, google.answer = 400, {"error": "invalid_grant"}
    else:
        google.answer = {}
    login = UserLogin(str(file), google.server.url)
    with pytest.raises(Unreachable, match="the login of this computer") as raised:
        login.token()
    login.close()
    assert "'r'" not in str(raised.value)


def test_only_a_persons_login_counts_and_only_on_the_supervisors_computer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    here = {"CLOUDSDK_CONFIG": str(tmp_path)}
    assert login_path(here) is None
    login_in(tmp_path, {**LOGIN, "type": "service_account"})
    assert login_path(here) is None
    login_in(tmp_path, ["no", "object"])
    assert login_path(here) is None
    file = login_in(tmp_path)
    assert login_path(here) == str(file)
    by_home = tmp_path / ".config" / "gcloud"
    by_home.mkdir(parents=True)
    assert login_path({"HOME": str(tmp_path)}) is None
    kept = login_in(by_home)
    assert login_path({"HOME": str(tmp_path)}) == str(kept)
    sources = {
        shares: getattr(account_for("https://storage.example.org", shares_computer=shares), "_source")  # noqa: B009
        for shares in (True, False)
    }
    assert isinstance(sources[True], UserLogin)
    assert isinstance(sources[False], MetadataServer), "an image may hold somebody's login"
