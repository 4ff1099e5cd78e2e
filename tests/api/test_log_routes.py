"""The log over the API: parts by byte and by line, a search, the whole as one file, contradicting parameters."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.ports.objectstore import ObjectInfo
from tests.services.bed import Bed, Client

LOGS = "/v1/runs/digits-7/logs"
WHOLE = b"epoch 1\nloss 0.91\nepoch 2\nloss 0.42\n"


@pytest.fixture
def digits(bed: Bed) -> Bed:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.objects.put(runfiles.log_chunk("digits-7", 1, 0), WHOLE[:10])
    bed.objects.put(runfiles.log_chunk("digits-7", 1, 1), WHOLE[10:])
    return bed


def got(client: Client, query: str) -> dict[str, Any]:
    answer = client.get(f"{LOGS}?{query}")
    assert answer.status_code == 200
    log: dict[str, Any] = answer.json()
    return log


def test_parts_of_a_log(digits: Bed, client: Client) -> None:
    plain = got(client, "offset=8&limit=4")
    assert (plain["text"], plain["next_offset"], plain["size"]) == ("loss", 12, len(WHOLE))
    told = got(client, "line=3&lines=1")
    assert (told["text"], told["line"], told["lines"], told["next_offset"]) == ("epoch 2\n", 3, 4, 26)
    told = got(client, "tail=1")
    assert (told["text"], told["line"]) == ("loss 0.42\n", 4)
    assert got(client, f"tail=2&before={told['offset']}")["text"] == "loss 0.91\nepoch 2\n"


def test_a_search(digits: Bed, client: Client) -> None:
    answer = client.get(f"{LOGS}?q=LOSS&ignore_case=true&line=3")
    assert [(match["line"], match["text"]) for match in answer.json()["matches"]] == [(4, "loss 0.42")]
    assert answer.headers["x-next-offset"] == str(len(WHOLE))
    assert got(client, "q=a%09b")["matches"] == []


@pytest.mark.parametrize(
    ("query", "pointers"),
    [
        ("line=1&offset=1", {"?line"}),
        ("line=1&tail=1", {"?line", "?tail"}),
        ("tail=1&lines=1", {"?tail"}),
        ("tail=1&q=x", {"?tail"}),
        ("q=x&limit=5&lines=5", {"?limit", "?lines"}),
        ("before=5", {"?before"}),
        ("ignore_case=true", {"?ignore_case"}),
        ("line=0", {"?line"}),
        ("tail=10001", {"?tail"}),
        ("q=", {"?q"}),
        ("q=a%0Ab", {"?q"}),
        ("lines=x", {"?lines"}),
    ],
)
def test_contradicting_parameters_are_named(digits: Bed, client: Client, query: str, pointers: set[str]) -> None:
    answer = client.get(f"{LOGS}?{query}")
    assert answer.status_code == 422
    assert {error["pointer"].partition("/")[0] for error in answer.json()["errors"]} == pointers


def test_the_whole_as_one_file(digits: Bed, client: Client) -> None:
    answer = client.get("/v1/runs/digits-7/attempts/1/log.txt")
    assert (answer.status_code, answer.content) == (200, WHOLE)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''digits-7-a1.log"
    assert answer.headers["x-content-type-options"] == "nosniff"
    for number in ("2", "0", "x", "9" * 40):
        assert client.get(f"/v1/runs/digits-7/attempts/{number}/log.txt").json()["code"] == "RUN_NOT_FOUND"


def test_a_file_that_lost_bytes_drops_the_connection(
    digits: Bed, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken variant: it ended as if that were all."""
    stat = digits.objects.stat

    def longer(key: str) -> ObjectInfo:
        found = stat(key)
        return ObjectInfo(found.key, found.size + 5, found.generation, found.updated)

    client.get(LOGS)
    monkeypatch.setattr(digits.objects, "stat", longer)
    answer = client.get("/v1/runs/digits-7/attempts/1/log.txt")
    assert answer.content == WHOLE
    assert len(answer.content) < int(answer.headers["content-length"]), "the client sees that it is not whole"
