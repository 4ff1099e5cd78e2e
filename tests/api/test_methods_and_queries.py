"""The rules of every address: HEAD beside GET, Allow with all methods, and no query parameter that is ignored."""

from __future__ import annotations

import pytest

from supervisor.api.server import ROUTES
from tests.services.bed import COMMAND, Bed, Client

GETS = sorted({route.path for route in ROUTES if "GET" in route.methods})
VALUES = {
    "{run_id}": "digits-7",
    "{number}": "1",
    "{sha256}": "0" * 64,
    "{path:path}": "results/x",
    "{webhook_id}": "whk_0",
}


def address(path: str) -> str:
    for name, value in VALUES.items():
        path = path.replace(name, value)
    return path


@pytest.fixture
def digits(bed: Bed) -> Bed:
    bed.submit("digits-7")
    bed.train("digits-7")
    return bed


def test_an_unknown_parameter_is_refused_everywhere(digits: Bed, client: Client) -> None:
    for path in GETS:
        told = client.get(address(path), params={"nonsense": "1"})
        assert (told.status_code, told.json()["errors"][0]["pointer"]) == (422, "?nonsense"), path


MOVING = ("/metrics", "/v1/doctor")  # whose text is another one each time, or takes its time


def test_head_has_the_headers_of_get(digits: Bed, client: Client) -> None:
    for path in (path for path in GETS if "files/" not in path and path not in MOVING):
        got, told = client.get(address(path)), client.request("HEAD", address(path))
        assert (told.status_code, told.content) == (got.status_code, b""), path
        for name in ("content-type", "content-length", "etag", "location"):
            assert told.headers.get(name) == got.headers.get(name), (path, name)


def test_head_of_a_stream_ends(digits: Bed, client: Client) -> None:
    told = client.request("HEAD", "/v1/events", headers={"Accept": "text/event-stream"})
    assert told.status_code == 200
    assert told.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/runs", "GET, HEAD, POST"),
        ("/v1/runs/digits-7", "GET, HEAD, PATCH"),
        ("/v1/runs/stop", "GET, HEAD, PATCH, POST"),
        ("/v1/runs/digits-7/stop", "POST"),
        ("/v1/runs/digits-7/files/results/x", "GET, HEAD"),
    ],
)
def test_allow_names_every_method(digits: Bed, client: Client, path: str, allowed: str) -> None:
    told = client.request("DELETE", path)
    assert (told.status_code, told.headers["allow"]) == (405, allowed)
    assert client.request("OPTIONS", path).status_code == 405


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("page_size=-1", "?page_size"),
        ("include=sparklines", "?include"),
        ("run_id=Not-An-Id", "?run_id"),
        ("page_size=1.5", "?page_size"),
        ("page_size=1&page_size=2", "?page_size"),
        ("sort=cost", "?sort"),
        ("sort=-created&sort=created", "?sort"),
        ("created_after=yesterday", "?created_after"),
        ("label=team", "?label"),
    ],
)
def test_parameters_of_the_lists(bed: Bed, client: Client, query: str, pointer: str) -> None:
    for path in ("/v1/runs", "/v1/cost"):
        told = client.get(f"{path}?{query}")
        assert (told.status_code, told.json()["errors"][0]["pointer"].partition("/")[0]) == (422, pointer)


def test_a_page_may_be_long_and_begin_with_the_oldest(bed: Bed, client: Client) -> None:
    for name in ("a-1", "a-2", "a-3"):
        bed.submit(name)
    first = client.get("/v1/runs?sort=created&page_size=2").json()
    assert [run["run_id"] for run in first["runs"]] == ["a-1", "a-2"]
    following = client.get("/v1/runs", params={"sort": "created", "cursor": first["next_cursor"]}).json()
    assert [run["run_id"] for run in following["runs"]] == ["a-3"]
    other = client.get("/v1/runs", params={"cursor": first["next_cursor"]})
    assert other.json()["code"] == "CURSOR_INVALID"
    for size in (1001, 10**30):
        assert len(client.get(f"/v1/runs?page_size={size}").json()["runs"]) == 3


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 201),
        ("Application/JSON; charset=UTF-8", 201),
        ('application/json; charset="utf-8"', 201),
        ("application/json; charset=latin-1", 415),
        ("text/json", 415),
        ("application/merge-patch+json", 415),
        ("", 415),
    ],
)
def test_the_type_of_a_body(client: Client, kind: str, status: int) -> None:
    told = client.post("/v1/runs", content=b'{"spec": {"command": "x"}}', headers={"Content-Type": kind})
    assert told.status_code == status


def test_whatever_is_accepted_json_is_sent(bed: Bed, client: Client) -> None:
    bed.submit("digits-7", COMMAND)
    for accept in ("*/*", "text/html", "", "x", "application/json;q=0", "a/b;" * 2000):
        told = client.get("/v1/runs", headers={"Accept": accept})
        assert (told.status_code, told.headers["content-type"]) == (200, "application/json")
