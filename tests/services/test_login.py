"""How a person gets a shell on the machine of a live run, by the service and by its route."""

from __future__ import annotations

import pytest

from supervisor.domain.errors import EvidenceNotFound, Unavailable
from supervisor.ports.platform import Login
from supervisor.ports.provider import ProviderUnavailable
from supervisor.services.reading.console import machine_login
from tests.services.bed import Bed, Client


def test_of_a_live_machine(bed: Bed) -> None:
    bed.submit("digits-7")
    with pytest.raises(EvidenceNotFound, match="digits-7 has no machine now"):
        machine_login(bed.parts, bed.services.queries, "digits-7")
    bed.train("digits-7")
    answer = Client(bed.services).get("/v1/runs/digits-7/login")
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "run_id": "digits-7", "machine": "m-a1", "zone": "local-a", "command": "ssh local-a",
            "folder": "/machines/m-a1", "ssh_config": None, "ssh_known_hosts": None,
        },
    )  # fmt: skip
    answer = Client(bed.services).get("/v1/runs/nobody/login")
    assert (answer.status_code, answer.json()["code"]) == (404, "RUN_NOT_FOUND")


def test_what_there_is_not(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    platform = bed.parts.platform
    monkeypatch.setattr(platform, "login", lambda ref: Login("", ""))
    shown = machine_login(bed.parts, bed.services.queries, "digits-7")
    assert (shown["command"], shown["folder"]) == (None, None)

    def removed(_: object) -> Login:
        raise ProviderUnavailable("provider lab is not in the settings")

    monkeypatch.setattr(platform, "login", removed)
    with pytest.raises(Unavailable, match="The machine of digits-7: provider lab is not in the settings"):
        machine_login(bed.parts, bed.services.queries, "digits-7")
