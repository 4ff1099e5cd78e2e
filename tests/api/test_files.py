"""The routes of files: bytes and headers, ranges, paths from attackers, and the note of a pull."""

from __future__ import annotations

import base64
import hashlib

import pytest

from tests.services.bed import Bed, Client
from tests.services.test_files import HOSTILE, ID, MODEL, furnished

FILES = f"/v1/runs/{ID}/files"
MODEL_PATH = f"{FILES}/results/g1/model.npz"


@pytest.fixture
def done(bed: Bed) -> Bed:
    furnished(bed)
    return bed


def test_the_list_has_its_documented_shape(client: Client, done: Bed) -> None:
    assert len(client.get(FILES).json()["files"]) == 6
    some = client.get(FILES, params={"kind": ["results", "logs"], "page_size": 2}).json()
    assert [file["kind"] for file in some["files"]] == ["logs", "results"]
    rest = client.get(FILES, params={"kind": ["results", "logs"], "cursor": some["next_cursor"]}).json()
    assert [file["path"] for file in rest["files"]] == ["results/g1/plots/a.png"]
    assert client.get(FILES, params={"kind": "baton"}).status_code == 422
    assert client.get("/v1/runs/nobody/files").status_code == 404


def test_a_file_is_an_attachment_with_its_checksum(client: Client, done: Bed) -> None:
    answer = client.get(MODEL_PATH)
    assert (answer.status_code, answer.content) == (200, MODEL)
    digest = base64.b64encode(hashlib.sha256(MODEL).digest()).decode()
    assert answer.headers["repr-digest"] == f"sha-256=:{digest}:"
    assert answer.headers["content-length"] == "500"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    looked = client.request("HEAD", MODEL_PATH)
    assert (looked.status_code, looked.content) == (200, b"")
    for name in ("content-length", "etag", "repr-digest", "accept-ranges"):
        assert looked.headers[name] == answer.headers[name]


def test_ranges(client: Client, done: Bed) -> None:
    tag = client.get(MODEL_PATH).headers["etag"]
    part = client.get(MODEL_PATH, headers={"Range": "bytes=490-", "If-Range": tag})
    assert (part.status_code, part.content) == (206, MODEL[490:])
    assert part.headers["content-range"] == "bytes 490-499/500"
    other = client.get(MODEL_PATH, headers={"Range": "bytes=490-", "If-Range": '"other"'})
    assert (other.status_code, other.content) == (200, MODEL)
    behind = client.get(MODEL_PATH, headers={"Range": "bytes=500-"})
    assert (behind.status_code, behind.json()["code"]) == (416, "RANGE_NOT_SATISFIABLE")
    assert behind.headers["content-range"] == "bytes */500"


@pytest.mark.parametrize("path", [*HOSTILE, "..%2f..%2fbaton.json", "%2e%2e/baton.json", "logs/..%2fbaton.json"])
def test_no_other_file_is_reached(client: Client, done: Bed, path: str) -> None:
    # Dots are encoded, because the test's client would resolve them by itself.
    sent = path.replace("..", "%2e%2e").replace("/./", "/%2e/").replace("\0", "%00").replace("\n", "%0a")
    answer = client.get(f"{FILES}/{sent}")
    assert (answer.status_code, answer.json()["code"]) in ((404, "FILE_NOT_FOUND"), (404, "NOT_FOUND"))
    assert "nonce" not in answer.text


def test_a_pull_is_recorded(client: Client, done: Bed) -> None:
    sha256 = client.get(FILES).json()["results_sha256"]
    noted = client.post(f"/v1/runs/{ID}/pulled", json={"results_sha256": sha256, "files": 2})
    assert noted.status_code == 200
    assert noted.json()["results"]["pulled"] is True
    refused = client.post(f"/v1/runs/{ID}/pulled", json={"results_sha256": "0" * 64, "files": 2})
    assert (refused.status_code, refused.json()["code"]) == (409, "PULL_MISMATCH")
    assert client.post(f"/v1/runs/{ID}/pulled", json={"results_sha256": "x", "files": 2}).status_code == 422
