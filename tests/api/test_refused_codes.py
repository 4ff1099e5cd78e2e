"""Bases, kept machines and drills over the API: the code of each refusal, and that nothing is changed by it."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.domain.bases import Base, BaseStatus
from supervisor.domain.events import Event, EventKind
from tests.services.bed import COMMAND, Bed, Client

ON_TORCH = {"run_id": "cats-1", "spec": {**COMMAND, "base": "torch"}}


@pytest.fixture
def house(bed: Bed, client: Client) -> Client:
    """A base that a live run uses, one that is being prepared, and a run that keeps no machine and does not train."""
    assert client.post("/v1/bases", json={"name": "jax", "script": "true"}).json()["status"] == "ready"
    bed.submit("digits-7", {**COMMAND, "base": "jax"})
    base = Base(0, "", "local", "local", ("true",), BaseStatus.PREPARING, bed.clock.now(), bed.clock.now())
    bed.store.bases.create("torch", base, Event(EventKind.BASE, "Base created."), bed.clock.now())
    return client


@pytest.mark.parametrize(
    ("request_line", "body", "status", "code"),
    [
        ("POST /v1/runs", {**ON_TORCH, "spec": {**COMMAND, "base": "onnx"}}, 404, "BASE_NOT_FOUND"),
        ("POST /v1/runs", ON_TORCH, 409, "BASE_NOT_READY"),
        ("DELETE /v1/bases/onnx-v1", None, 404, "BASE_NOT_FOUND"),
        ("DELETE /v1/bases/jax-v1", None, 409, "BASE_IN_USE"),
        ("POST /v1/runs/digits-7/machine/delete", {}, 409, "NOTHING_KEPT"),
        ("POST /v1/runs/digits-7/drill", {}, 409, "NOTHING_TO_DRILL"),
    ],
)
def test_each_refusal_has_its_code(
    bed: Bed, house: Client, request_line: str, body: dict[str, Any] | None, status: int, code: str
) -> None:
    before = bed.run("digits-7"), bed.store.bases.all()
    answer = house.request(*request_line.split(), json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert (bed.run("digits-7"), bed.store.bases.all(), bed.store.find("cats-1")) == (*before, None)
