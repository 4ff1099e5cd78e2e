"""The project by name and number, read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.ports.platform import Account
from supervisor.providers.gce.calls.account import ProjectAccount
from tests.cloud.discovery import Oracle
from tests.cloud.web import Request, Response, WebServer
from tests.contracts.platform_stages import GceStage

CONSOLE = "https://console.cloud.google.com/compute/instances?project=p"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[GceStage]:
    stage = GceStage(tmp_path)
    yield stage
    stage.close()


def test_the_number_is_asked_for_once(stage: GceStage) -> None:
    assert stage.platform.account_so_far() == Account("p", "", CONSOLE)
    stage.subject.compute.clear_requests()
    for _ in range(3):
        assert stage.platform.account() == Account("p", "123456789012", CONSOLE)
    assert stage.subject.compute.count() == 1


@pytest.mark.parametrize(("answer", "number"), [(200, "424242424242"), (403, "")])
def test_without_a_default_account_of_that_form_the_resource_manager_is_asked(
    stage: GceStage, monkeypatch: pytest.MonkeyPatch, answer: int, number: str
) -> None:
    """Compute Engine's own `id` of the project is a third thing, and never shown."""
    violations, oracle = list[str](), Oracle("cloudresourcemanager")
    told = {"projectId": "p", "projectNumber": "424242424242", "lifecycleState": "ACTIVE"}
    refusal = {"error": {"code": 403, "message": "denied", "status": "PERMISSION_DENIED"}}

    def watch(request: Request, response: Response) -> None:
        violations.extend(oracle.check(request, response))

    server = WebServer(lambda _: Response(answer, told if answer == 200 else refusal), watch)
    whole = stage.subject.compute.catalog.whole_project()
    whole["defaultServiceAccount"] = "own@p.iam.gserviceaccount.com"
    monkeypatch.setattr(stage.subject.compute.catalog, "whole_project", lambda: whole)
    config = replace(stage.config, resource_manager_endpoint=server.url)
    assert ProjectAccount(config, stage.compute).read() == Account("p", number, CONSOLE)
    server.close()
    assert violations == []
