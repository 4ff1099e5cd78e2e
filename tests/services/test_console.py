"""The console of a machine: live from the provider, afterwards what was kept; could not read is not silence."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.domain.errors import EvidenceNotFound, FilesPurged, NotFound, Unavailable
from supervisor.domain.run import Files
from supervisor.ports.provider import MachineMissing, ProviderUnavailable
from supervisor.services.reading.console import show_console
from tests.services.bed import Bed, Client


@pytest.fixture
def said(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the machine of digits-7 answers with: bytes, or an error."""
    answer: dict[str, Any] = {"console": b"spot: phase=driver t=41\nFATAL \xff\n"}

    def console(ref: object, max_bytes: int = 0) -> bytes:
        if isinstance(answer["console"], Exception):
            raise answer["console"]
        return bytes(answer["console"])

    monkeypatch.setattr(bed.provider, "console", console)
    bed.submit("digits-7")
    return answer


def look(bed: Bed, number: int | None = None) -> dict[str, Any]:
    return show_console(bed.parts, bed.services.queries, "digits-7", number)


def test_a_live_machine_is_asked(bed: Bed, said: dict[str, Any]) -> None:
    with pytest.raises(EvidenceNotFound, match="digits-7 has no machine yet"):
        look(bed)
    bed.train("digits-7")
    told = look(bed)
    assert (told["live"], told["machine"], told["zone"]) == (True, "m-a1", "local-a")
    assert told["text"] == "spot: phase=driver t=41\nFATAL \ufffd\n"
    with pytest.raises(EvidenceNotFound, match="has no attempt 2"):
        look(bed, 2)
    with pytest.raises(NotFound):
        show_console(bed.parts, bed.services.queries, "nobody", None)


@pytest.mark.parametrize("silence", [b"", MachineMissing("gone")])
def test_what_was_kept_is_shown_where_the_machine_says_nothing(bed: Bed, said: dict[str, Any], silence: object) -> None:
    bed.train("digits-7")
    said["console"] = silence
    with pytest.raises(EvidenceNotFound, match="is there yet"):
        look(bed)
    bed.objects.put(runfiles.console("digits-7", 1), b"the last words\n")
    assert (look(bed)["live"], look(bed)["text"]) == (False, "the last words\n")


def test_of_a_machine_that_is_gone_nobody_asks(bed: Bed, said: dict[str, Any]) -> None:
    run = bed.train("digits-7")
    assert run.attempt is not None
    said["console"] = AssertionError("asked")
    from dataclasses import replace

    gone = replace(run.attempt, ended_at=bed.clock.now(), gone_at=bed.clock.now())
    bed.change("digits-7", attempt=gone)
    with pytest.raises(EvidenceNotFound, match="was kept"):
        look(bed)
    bed.objects.put(runfiles.console("digits-7", 1), b"kept\n")
    assert look(bed, 1)["text"] == "kept\n"
    bed.change("digits-7", files=Files(purged_at=bed.clock.now() + 1))
    bed.objects.delete(runfiles.console("digits-7", 1))
    with pytest.raises((FilesPurged, EvidenceNotFound)):
        look(bed)


def test_a_provider_that_does_not_answer_is_not_silence(bed: Bed, said: dict[str, Any]) -> None:
    bed.train("digits-7")
    bed.objects.put(runfiles.console("digits-7", 1), b"old\n")
    said["console"] = ProviderUnavailable("away")
    with pytest.raises(Unavailable, match="cannot be read now"):
        look(bed)


def test_over_http(bed: Bed, said: dict[str, Any]) -> None:
    client = Client(bed.services)
    assert client.get("/v1/runs/digits-7/console").json()["code"] == "EVIDENCE_NOT_FOUND"
    bed.train("digits-7")
    told = client.get("/v1/runs/digits-7/console?attempt=1")
    assert told.json()["live"]
    assert client.get("/v1/runs/digits-7/console?attempt=0").status_code == 422
    assert client.get("/v1/meta").json()["provider"] == "local"
