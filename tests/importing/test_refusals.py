"""Refused imports and their texts: no run, no checkpoint, a live run, torn and absurd files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.callers import LOCAL
from supervisor.domain.errors import (
    Forbidden,
    InvalidRequest,
    OldRunAlive,
    OldRunNotFound,
    OldRunUnreadable,
    RunIdTaken,
    Unavailable,
)
from supervisor.domain.machines import Machine, MachineListing, MachineState
from supervisor.ports.objectstore import StoreForbidden, StoreMissing, StoreUnavailable
from supervisor.ports.provider import ProviderUnavailable
from supervisor.services.migration import oldrun
from supervisor.services.migration.importing import ImportRequest, import_run
from tests.fakes.callers import MEMBER
from tests.importing.conftest import BUCKET, URL, Import
from tests.importing.oldrunner import MACHINE, OLD_ID


def nothing_was_made(imports: Import) -> bool:
    return imports.bed.store.find(OLD_ID) is None and not next(imports.bed.objects.pages("")).objects


def test_nothing_there(imports: Import) -> None:
    with pytest.raises(OldRunNotFound, match="There is nothing at") as refused:
        imports()
    assert f"`gcloud storage ls {URL.rpartition('/')[0]}/`" in refused.value.detail


@pytest.mark.parametrize(("content", "why"), [(None, "is missing"), (b"", "is empty")])
def test_no_checkpoint(imports: Import, content: bytes | None, why: str) -> None:
    imports.lay(last_pt=content)
    with pytest.raises(OldRunNotFound, match=why):
        imports()


@pytest.mark.parametrize(
    ("error", "refusal", "words"),
    [
        (StoreUnavailable("gs://old-bucket: no clear answer"), Unavailable, "no clear answer"),
        (StoreMissing("gs://old-bucket: there is no such bucket (404)"), OldRunNotFound, "no such bucket"),
        (
            StoreForbidden("gs://old-bucket: cannot list: the account may not (403)"),
            OldRunUnreadable,
            r"reads as supervisor@p\.iam\.gserviceaccount\.com: give it roles/storage\.objectViewer on gs://old-bucket",
        ),
    ],
)
@pytest.mark.parametrize("method", ["stat", "pages", "read"])
def test_an_unreadable_checkpoint_is_not_a_missing_one(
    imports: Import, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception, refusal: Any, words: str
) -> None:
    imports.lay()

    def away(*_: object) -> Any:
        raise error

    monkeypatch.setattr(imports.old, method, away)
    with pytest.raises(refusal, match=words):
        imports()
    assert nothing_was_made(imports)


@pytest.mark.parametrize(
    ("name", "age_s", "alive"),
    [
        ("heartbeat.json", 599, True),
        ("heartbeat.json", 601, False),
        (".owner.lock", 299, True),
        (".owner.lock", 301, False),
        ("restart.lock", 599, True),
    ],
)
def test_a_sign_of_life_refuses(imports: Import, name: str, age_s: float, alive: bool) -> None:
    imports.lay()
    imports.old.put(f"runs/{OLD_ID}/{name}", b"{}")
    imports.bed.clock.advance(age_s)
    if not alive:
        assert imports()["run"]["status"] == "stopped"
        return
    with pytest.raises(OldRunAlive, match=f"its {name} was written .* ago"):
        imports()
    assert nothing_was_made(imports)


def machine(name: str = "other", state: MachineState = MachineState.UP, **labels: str) -> Machine:
    return Machine("9", name, "us-east1-d", state, "", "", "", labels=labels)


@pytest.mark.parametrize(
    ("found", "alive"),
    [
        (machine(run_id=OLD_ID), True),
        (machine(name=MACHINE), True),
        (machine(name=MACHINE, state=MachineState.ENDED), False),
        (machine(run_id="another-run"), False),
        (machine(**{"run_id": OLD_ID, "spot-supervisor-id": "the-supervisor"}), False),  # it is a run of ours
    ],
)
def test_a_machine_of_the_old_run_refuses(
    imports: Import, monkeypatch: pytest.MonkeyPatch, found: Machine, alive: bool
) -> None:
    imports.lay()
    monkeypatch.setattr(imports.bed.provider, "machines", lambda: MachineListing((found,)))
    if alive:
        with pytest.raises(OldRunAlive, match=f"still exists: {found.name} in us-east1-d"):
            imports()
        assert nothing_was_made(imports)
    else:
        assert imports()["run"]["status"] == "stopped"


def test_machines_that_cannot_be_read_refuse(imports: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    imports.lay()
    unread = MachineListing((), frozenset({"us-east1-d"}))
    monkeypatch.setattr(imports.bed.provider, "machines", lambda: unread)
    with pytest.raises(Unavailable, match="zone that does not respond"):
        imports()

    def away() -> MachineListing:
        raise ProviderUnavailable("Compute Engine: HTTP 503")

    monkeypatch.setattr(imports.bed.provider, "machines", away)
    with pytest.raises(Unavailable, match="It is not known whether"):
        imports()
    assert nothing_was_made(imports)


def test_a_run_that_the_old_reconciler_may_restart_gets_a_warning(imports: Import) -> None:
    imports.lay(state_json=b'{"state": "PREEMPTED"}', stop=None)
    *_, warning = imports(dry_run=True)["warnings"]
    assert "is PREEMPTED and has no .stop: the older reconciler may restart it" in warning


def test_a_name_that_is_taken(imports: Import) -> None:
    imports.lay()
    imports.bed.submit(OLD_ID)
    with pytest.raises(RunIdTaken, match="--as NEW_ID"):
        imports()
    assert imports(run_id="another-name")["run"]["run_id"] == "another-name"


def test_a_checkpoint_that_grows_while_it_is_copied(imports: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    imports.lay()
    read = imports.old.read
    monkeypatch.setattr(imports.old, "read", lambda key, *more: (*read(key, *more), b"more"))
    with pytest.raises(Unavailable, match="changed while it was copied"):
        imports(spec={"command": "train"})


def test_a_disk_that_is_too_small(imports: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    imports.lay()
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(Unavailable, match=r"data folder has 1\.0 kB left: free some"):
        imports()


TORN = {
    "state_json": b'{"state": "RUN',
    "heartbeat_json": b"[]",
    "restart_config_json": b"\xff\xfe\x00",
    "run_manifest_json": b"[" * 100_000,
    "0_json": b'{"instance_name": 7, "zone": {}, "started_at": 1e400, "ended_at": "9999-12-31T23:59:59Z"}',
    "1_json": b'{"a": NaN}\n{"instance": "\\ud800\\u0000\\u001b[31m", "exit_code": true}',
}


def test_torn_files_are_reported_and_everything_else_is_imported(imports: Import) -> None:
    imports.lay(**TORN)
    answer = imports()
    assert answer["spec"]["command"].startswith("set -euo"), "run_config.json says it too"
    left = "\n".join(answer["left_out"])
    for name in ("state.json", "heartbeat.json", "restart_config.json", "run_manifest.json"):
        assert f"{name} is torn, or no JSON" in left
    json.dumps(answer, allow_nan=False).encode()
    texts = [stored.event.text for stored in imports.bed.store.events(OLD_ID, 0, 100)]
    assert all(text.isprintable() for text in texts)
    assert imports.client.get(f"/v1/runs/{OLD_ID}/events").status_code == 200
    assert imports.client.get(f"/v1/runs/{OLD_ID}").status_code == 200


def test_a_huge_file_is_not_read(imports: Import) -> None:
    imports.lay(state_json=b'{"x": "' + b"x" * 2_000_000 + b'"}')
    assert "state.json is larger than 1.0 MB and was not read." in imports()["left_out"]


def test_an_old_run_with_thousands_of_events_is_cut_and_says_so(imports: Import) -> None:
    imports.lay(aged_s=0)
    for number in range(1500):
        imports.old.put(f"runs/{OLD_ID}/events/2026_{number:05d}.json", b'{"to": "RUNNING", "reason": "%d"}' % number)
    imports.bed.clock.advance(7200)
    answer = imports()
    assert answer["events"] <= 1 + 100 + 20
    assert any("1,407 older files were not imported" in left for left in answer["left_out"])


def test_files_with_millions_of_lines_do_not_fill_the_database(imports: Import) -> None:
    lines = b"".join(b'{"to": "RUNNING", "reason": "%d"}\n' % number for number in range(5000))
    changes = [{"at": f"{number}", "to": "RUNNING"} for number in range(5000)]
    imports.lay(aged_s=0, state_json=json.dumps({"state": "STOPPED", "history": changes}).encode())
    for number in range(3):
        imports.old.put(f"runs/{OLD_ID}/events/2026_{number}.jsonl", lines)
    imports.bed.clock.advance(7200)
    answer = imports()
    assert answer["events"] == 1 + oldrun.RECORDS_MAX
    assert any("4,0" in left and "older lines were not imported" in left for left in answer["left_out"])
    told = [stored.event.text for stored in imports.bed.store.events(OLD_ID, 0, 2000)]
    assert any("4999" in text for text in told), "the newest are kept"
    assert any(text.startswith("Machine 1 of the older runner") for text in told), "machines are never crowded out"


ABSURD: list[dict[str, Any]] = [
    {"job_command": "x" * 300_000},
    {"job_command": "a\x00b"},
    {"job_command": 7},
    {"job_command": "\ud800"},
    {"job_command": "   "},
    {},
]


@pytest.mark.parametrize("config", ABSURD)
def test_without_a_valid_command_a_spec_is_required(imports: Import, config: dict[str, Any]) -> None:
    said = json.dumps(config).encode()
    imports.lay(restart_config_json=said, run_config_json=None, run_manifest_json=None)
    with pytest.raises(InvalidRequest, match="--spec FILE"):
        imports()
    assert imports(spec={"command": "train"})["spec"]["command"] == "train"


def test_absurd_fields_are_left_out_one_by_one(imports: Import) -> None:
    config = {
        "job_command": "true", "image": "a b", "conda_env": ["x"], "max_runtime_sec": "1e999",
        "env": {"OK": "1", "1BAD": "x", "SPOT_RUN_ID": "x", "LONG": "x" * 9000, "NUL": "\x00", "MY_TOKEN": "t"},
    }  # fmt: skip
    imports.lay(restart_config_json=json.dumps(config).encode(), run_config_json=None)
    answer = imports()
    assert answer["spec"]["command"] == "true", "four letters that look like base64"
    assert answer["spec"]["env"] == {"OK": "1"}
    assert set(answer["spec"]) == {"command", "env", "labels"}
    assert len(answer["left_out"]) >= 8


@pytest.mark.parametrize(
    "url",
    ["", "x", "gs://b", "gs://b/runs/", "gs:///runs/x", "http://h/runs/x", "gs://b/runs/..", "gs://b/runs/a\nb",
     "gs://b/runs/" + "x" * 400, "file://runs/x", "gs://b/runs/a/b", "file:///a%00b/runs/x"],
)  # fmt: skip
def test_addresses_that_are_none(imports: Import, url: str) -> None:
    answer = imports.client.post("/v1/imports", json={"url": url})
    assert answer.status_code == 422
    assert "url" in answer.json()["errors"][0]["pointer"]


@pytest.mark.parametrize(
    "body", [{}, {"url": URL, "run_id": "NO"}, {"url": URL, "spec": {}}, {"url": 7}, {"url": URL, "x": 1}, []]
)
def test_bodies_that_are_none(imports: Import, body: Any) -> None:
    assert imports.client.post("/v1/imports", json=body).status_code == 422


def test_over_http(imports: Import) -> None:
    imports.lay()
    assert imports.client.post("/v1/imports", json={"url": "gs://elsewhere/runs/x"}).status_code == 422
    assert (
        imports.client.post("/v1/imports", json={"url": f"{BUCKET}/runs/nobody"}).json()["code"] == "OLD_RUN_NOT_FOUND"
    )
    made = imports.client.post("/v1/imports", json={"url": URL, "run_id": "mine"})
    assert (made.status_code, made.json()["run_id"]) == (201, "mine")
    assert imports.client.post("/v1/imports", json={"url": URL, "run_id": "mine"}).status_code == 200


def test_a_folder_of_the_supervisors_computer_is_for_administrators(imports: Import, tmp_path: Path) -> None:
    """The folder is read with the supervisor's rights, which may exceed the caller's."""
    wish = ImportRequest(f"file://{tmp_path}/runs/{OLD_ID}")
    with pytest.raises(Forbidden, match="administrator"):
        import_run(imports.parts, wish, MEMBER)
    with pytest.raises(InvalidRequest, match="cannot be read from here"):
        import_run(imports.parts, wish, LOCAL)
    with pytest.raises(OldRunNotFound):
        import_run(imports.parts, ImportRequest(URL), MEMBER)
    assert nothing_was_made(imports)
