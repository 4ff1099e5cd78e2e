"""Which token `spot` sends where: the token of a supervisor goes to this supervisor only."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.cli import finding
from supervisor.cli.finding import same_server
from supervisor.domain import callers
from tests.cli.conftest import Ended
from tests.cli.fake_api import FakeApi, a_page, serving

FOUND, GIVEN = "sup_found", "sup_given"
Spot = Callable[..., Ended]


@pytest.fixture
def api(api: FakeApi) -> FakeApi:
    api.respond("GET", "/v1/runs", a_page())
    return api


@pytest.fixture
def folder(clean: Path, api: FakeApi) -> Path:
    """Of the supervisor that the fake API plays; this process is the one that serves it."""
    return a_folder(clean / "data", api.url, os.getpid())


def a_folder(path: Path, url: str, pid: int) -> Path:
    path.mkdir(parents=True)
    (path / "server.json").write_text(json.dumps({"url": url, "pid": pid}))
    (path / "admin-token").write_text(FOUND + "\n")
    return path


def sent(api: FakeApi) -> list[str | None]:
    return [request.headers.get("authorization") for request in api.requests]


def test_without_a_word_the_folders_token_goes_to_the_folders_server(run_cli: Spot, api: FakeApi, clean: Path) -> None:
    a_folder(clean / "home" / ".local" / "state" / "spot-supervisor", api.url, os.getpid())
    assert run_cli("ls").code == 0
    assert run_cli("ls", "--url", api.url).code == 0
    assert run_cli("ls", "--url", api.url.replace("127.0.0.1", "localhost")).code == 0
    assert sent(api) == [f"Bearer {FOUND}"] * 3


def test_the_folder_that_is_named_counts(run_cli: Spot, api: FakeApi, folder: Path) -> None:
    assert run_cli("ls", "--data-dir", str(folder)).code == 0
    assert sent(api) == [f"Bearer {FOUND}"]


def test_another_address_gets_nothing_that_was_found(run_cli: Spot, api: FakeApi, folder: Path) -> None:
    with serving() as other:
        other.respond("GET", "/v1/runs", a_page())
        assert run_cli("ls", "--data-dir", str(folder), "--url", other.url).code == 0
        assert sent(other) == [None]


def test_an_address_that_its_server_has_left_gets_nothing(run_cli: Spot, api: FakeApi, clean: Path) -> None:
    """The supervisor was killed, and another program has its port."""
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
        folder = a_folder(clean / "data", api.url, gone.pid)
        run_cli("ls", "--data-dir", str(folder))
    assert sent(api) == [None]


def test_without_the_check_the_token_would_be_sent(
    run_cli: Spot, api: FakeApi, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant of the two above."""
    monkeypatch.setattr(finding, "_serves", lambda folder, address: True)
    folder = a_folder(clean / "data", "http://127.0.0.1:1", 2**22 + 1)
    run_cli("ls", "--data-dir", str(folder), "--url", api.url)
    assert sent(api) == [f"Bearer {FOUND}"]


def test_what_a_person_names_wins_in_this_order(
    run_cli: Spot, api: FakeApi, folder: Path, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clean / "token").write_text("sup_named\n")
    monkeypatch.setenv("SPOT_TOKEN", GIVEN)
    here = ("--data-dir", str(folder))
    assert run_cli("ls", *here).code == 0
    assert run_cli("ls", *here, "--token-file", str(clean / "token")).code == 0
    assert sent(api) == [f"Bearer {GIVEN}", "Bearer sup_named"]


def test_spot_token_belongs_to_spot_url(
    run_cli: Spot, api: FakeApi, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOT_TOKEN", GIVEN)
    monkeypatch.setenv("SPOT_URL", api.url)
    with serving() as other:
        other.respond("GET", "/v1/runs", a_page())
        assert run_cli("ls", "--url", other.url).code == 0
        assert sent(other) == [None]
    assert run_cli("ls").code == 0
    assert sent(api) == [f"Bearer {GIVEN}"]


def test_a_redirect_is_not_followed(run_cli: Spot, api: FakeApi, folder: Path) -> None:
    with serving() as other:
        api.refuse("GET", "/v1/runs", 307, "MOVED", "elsewhere", Location=other.url)
        run_cli("ls", "--data-dir", str(folder))
        assert other.requests == []


@pytest.mark.parametrize("text", ["", "  ", "two words", "sup_ä", "sup_\x7f"])
def test_a_malformed_token_is_reported_and_not_printed(run_cli: Spot, api: FakeApi, clean: Path, text: str) -> None:
    (clean / "token").write_text(text)
    ended = run_cli("ls", "--url", api.url, "--token-file", str(clean / "token"))
    assert (ended.code, api.requests) == (2, [])
    assert "TOKEN_UNREADABLE" in ended.err
    assert not text.strip() or text not in ended.err


def test_a_file_that_is_not_there_is_told(run_cli: Spot, api: FakeApi) -> None:
    ended = run_cli("ls", "--url", api.url, "--token-file", "/absent/token")
    assert ended.code == 2
    assert "/absent/token cannot be read" in ended.err


def test_a_refusal_is_exit_4_and_says_what_helps(run_cli: Spot, api: FakeApi, folder: Path, clean: Path) -> None:
    api.refuse("GET", "/v1/runs", 401, "UNAUTHORIZED", "This needs a token.")
    ended = run_cli("ls", "--url", api.url)
    assert ended.code == 4
    assert "--token-file FILE or SPOT_TOKEN" in ended.err
    assert "--data-dir DIR" in ended.err
    ended = run_cli("ls", "--data-dir", str(folder))
    assert ended.code == 4
    assert "admin-token is not valid there" in ended.err
    assert FOUND not in ended.err
    api.refuse("GET", "/v1/runs", 403, "SCOPE_MISSING", "This needs a token with the scope admin.")
    ended = run_cli("ls", "--data-dir", str(folder))
    assert ended.code == 4
    assert "spot token ls" in ended.err


def test_the_doctor_sends_it_too(run_cli: Spot, api: FakeApi, folder: Path) -> None:
    api.respond("GET", "/livez", {"live": True})
    api.respond("GET", "/v1/doctor", {"worst": "ok", "checks": []})
    assert run_cli("doctor", "--data-dir", str(folder)).code == 0
    assert f"Bearer {FOUND}" in sent(api)


def test_a_request_that_came_too_soon_is_repeated(run_cli: Spot, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("supervisor.cli.client.time.sleep", waited.append)
    limited = {"title": "Too Many Requests", "status": 429, "detail": "Wait.", "code": "RATE_LIMITED"}
    api.responses[("GET", "/v1/runs")] = [(429, limited), (429, limited), (200, a_page())]
    assert run_cli("ls", "--url", api.url).code == 0
    assert waited == [1.0, 1.0]
    api.respond("GET", "/v1/runs", limited, 429)
    assert run_cli("ls", "--url", api.url).code == 1


@pytest.mark.parametrize(
    ("url", "other", "same"),
    [
        ("http://127.0.0.1:8787", "http://127.0.0.1:8787/", True),
        ("http://localhost:8787", "http://127.0.0.1:8787", True),
        ("http://127.0.0.1", "http://127.0.0.1:80", True),
        ("http://127.0.0.1:8787", "http://127.0.0.1:8788", False),
        ("https://127.0.0.1:8787", "http://127.0.0.1:8787", False),
        ("http://127.0.0.1:8787", "http://127.0.0.1.example.org:8787", False),
        ("http://127.0.0.1:8787", "http://127.0.0.1:8787@example.org", False),
        ("http://127.0.0.1:8787/a", "http://127.0.0.1:8787/b", False),
        ("http://127.0.0.1:port", "http://127.0.0.1:port", False),
    ],
)
def test_when_two_addresses_are_one(url: str, other: str, same: bool) -> None:
    assert same_server(url, other) is same


def test_a_refusal_names_the_scope_to_ask_for(run_cli: Spot, api: FakeApi, folder: Path) -> None:
    api.refuse("GET", "/v1/runs", 403, "SCOPE_MISSING", "This needs a token with the scope runs:read.")
    assert "spot token create NAME --scope runs:read" in run_cli("ls", "--data-dir", str(folder)).err


def test_a_folder_that_has_lost_its_token_is_told(run_cli: Spot, api: FakeApi, folder: Path) -> None:
    api.refuse("GET", "/v1/runs", 401, "UNAUTHORIZED", "This needs a token.")
    (folder / "admin-token").unlink()
    ended = run_cli("ls", "--data-dir", str(folder))
    assert f"{folder / 'admin-token'} does not exist" in ended.err
    assert "restart the supervisor" in ended.err


def test_a_mistyped_token_and_an_unknown_one_differ(
    run_cli: Spot, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.refuse("GET", "/v1/runs", 401, "UNAUTHORIZED", "This needs a token.")
    good = callers.write(bytes(32))
    monkeypatch.setenv("SPOT_TOKEN", good)
    assert "revoked, expired" in run_cli("ls", "--url", api.url).err
    monkeypatch.setenv("SPOT_TOKEN", good[:-1])
    ended = run_cli("ls", "--url", api.url)
    assert "mistyped or cut off" in ended.err
    assert good[:-1] not in ended.err


def test_an_address_that_cannot_work_says_what_would(run_cli: Spot, api: FakeApi) -> None:
    assert "such as http://127.0.0.1:8787" in run_cli("ls", "--url", "127.0.0.1:8787").err
    assert "try http://" in run_cli("ls", "--url", api.url.replace("http", "https")).err
    api.refuse("GET", "/v1/runs", 400, "HOST_REFUSED", "This server responds to its own names only.")
    assert "SPOT_ALLOWED_HOSTS=127.0.0.1" in run_cli("ls", "--url", api.url).err
