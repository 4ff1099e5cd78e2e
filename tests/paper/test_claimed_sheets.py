"""A provider whose machines claim their job: what the loop launches and what the door hands over are one request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.machines import Machine
from supervisor.ports.claims import Claims, Handover
from supervisor.ports.opening import OpenedProvider, ProviderContext
from supervisor.ports.provider import LaunchPending, LaunchRequest
from supervisor.providers.kinds import PROVIDERS
from supervisor.reconciler.system_clock import EventWake, SystemClock
from supervisor.services.runs.submit import SubmitRequest, submit
from supervisor.wiring import settings as wired
from supervisor.wiring.adapters import choose
from supervisor.wiring.application import Application, Wakes, build
from tests.fakes.callers import MEMBER
from tests.paper import provider as paper
from tests.services.bed import Client
from tests.services.fresh import open_fresh
from tests.waiting import wait_for

PUBLIC = "https://example.com/spot/"
ME = "1" * 32


@dataclass
class Desk:
    """What was launched, with its ticket."""

    requests: list[LaunchRequest] = field(default_factory=list)
    tickets: list[str] = field(default_factory=list)
    claims: Claims | None = None


class ClaimedSheets(paper.PaperProvider):
    """Sheets that fetch their text themselves."""

    desk: Desk

    def launch(self, request: LaunchRequest) -> Machine:
        assert self.desk.claims is not None
        self.desk.tickets.append(self.desk.claims.ticket(request, 4e9))
        self.desk.requests.append(request)
        raise LaunchPending("nobody has claimed it")

    def hand_over(self, request: LaunchRequest) -> Handover:
        return Handover(request.job, {"TOKEN": "value"})


@dataclass
class Mill:
    application: Application
    desk: Desk
    client: Client


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk()

    def open_provider(name: str, s: paper.PaperSettings, context: ProviderContext) -> OpenedProvider:
        opened = paper.open_provider(name, s, context)
        provider: Any = opened.provider
        provider.__class__, provider.desk, desk.claims = ClaimedSheets, desk, context.claims
        return opened

    monkeypatch.setenv("TOKEN", "read by the provider")
    monkeypatch.setitem(PROVIDERS, "paper", replace(paper.KIND, open=open_provider))
    return desk


@pytest.fixture
def mill(desk: Desk, tmp_path: Path) -> Iterator[Mill]:
    flags = {"data_dir": str(tmp_path), "provider": "paper", "public_url": PUBLIC, "poll_interval_s": "1"}
    settings, wake = wired.load(flags, {}), EventWake()
    with closing(open_fresh(tmp_path / "supervisor.db")) as store:
        application = build(settings, store, Wakes(wake, wake))
        application.start()
        yield Mill(application, desk, Client(application.services))
        application.stop()


def test_the_door_hands_over_what_the_loop_has_launched(mill: Mill) -> None:
    spec = {"command": ["python", "train.py"], "env": {"LR": "0.1"}, "secrets": {"TOKEN": "env:TOKEN"}}
    submit(mill.application.services.parts, SubmitRequest(spec, "essay"), MEMBER)
    wait_for(lambda: mill.desk.requests, 30, "the launch")
    body = {"ticket": mill.desk.tickets[0], "claimant": ME, "session": {"platform": "paper", "id": "7"}}
    answer = mill.client.post("/v1/claims", json=body)
    assert answer.status_code == 200, answer.text
    told, request = answer.json(), mill.desk.requests[0]
    url = "https://example.com/spot"
    assert told["job"] == {**request.job, "store_url": f"door:{url}/v1/door/essay", "server_url": url}
    assert told["secrets"] == {"TOKEN": "value"}
    assert mill.desk.claims is not None
    assert set(mill.desk.claims.all()) == {("essay", "1.1.1")}
    baton = "/v1/door/essay/objects/runs/essay/baton.json"
    assert mill.client.get(baton, headers={"Authorization": f"Bearer {told['pass']['text']}"}).status_code == 200
    outside = {"Host": "example.com"}
    assert (
        mill.client.get("/v1/door/agent.pyz", headers=outside).content == mill.application.adapters.agent.read_bytes()
    )
    assert mill.client.post("/v1/claims", json=body, headers=outside).status_code == 200
    for path in ("/v1/runs", "/ui/runs", "/v1/doctor", "/livez"):
        assert mill.client.get(path, headers=outside).json()["code"] == "HOST_REFUSED"


def test_without_a_database_nothing_can_be_claimed(desk: Desk, tmp_path: Path) -> None:
    settings = wired.load({"data_dir": str(tmp_path), "provider": "paper", "public_url": PUBLIC}, {})
    adapters = choose(settings, None, SystemClock())
    assert adapters.claims is desk.claims is None
    adapters.close()
