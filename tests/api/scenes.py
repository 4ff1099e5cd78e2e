"""The scenes of the document's examples: a few runs in a few situations, and each operation called once or twice."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from supervisor.contract import runfiles
from supervisor.contract.cards import Aside, Card
from supervisor.contract.heartbeat import Exit, encode
from supervisor.domain.causes import Cause
from supervisor.domain.run import Files, Outcome
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectReader
from supervisor.ports.platform import ShapePrice
from supervisor.reconciler.acting import records
from supervisor.services.parts import Elsewhere
from tests.api import scenes_people
from tests.api.recorder import Asking, Recorder
from tests.bundles import CODE, bundle_of
from tests.deltas import delta_of
from tests.fakes.objectstore import MemoryStore
from tests.importing.oldrunner import OLD_ID, old_run
from tests.services.bed import Bed, beat, make_bed
from tests.services.curves_bed import stored, train_on
from tests.services.door_bed import make_door
from tests.services.fresh import open_fresh
from tests.services.test_billed import scene as furnished_bill
from tests.services.test_files import ID, furnished
from tests.services.test_keep import keep
from tests.services.test_machines import put
from tests.services.test_pasting import waits_for_notebook
from tests.services.test_purge import over

RUN = "/v1/runs/digits-7"
OLD_BUCKET = "gs://old-bucket"
SPEC = {
    "command": ["python", "train.py", "--epochs", "40"],
    "labels": {"team": "vision"},
    "limits": {"budget_usd": 25.0},
    "results": [{"path": "*.npz", "min_count": 1}],
    "stage": [{"from": "https://example.com/digits.npz", "to": "digits.npz", "sha256": "5d" * 32}],
}


def record() -> dict[str, Any]:
    """operation → its examples, of every scene."""
    recorder = Recorder()
    for scene in SCENES:
        with _bed() as (bed, folder):
            scene(bed, recorder.on(bed, folder))
    return dict(sorted(recorder.kept.items()))


@contextmanager
def _bed() -> Iterator[tuple[Bed, Path]]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        with closing(open_fresh(folder / "supervisor.db", ("log", "webhooks"))) as store:
            yield make_bed(store, folder), folder


def submits(bed: Bed, ask: Asking) -> None:
    ask("POST", "/v1/runs", {"run_id": "digits-7", "spec": SPEC}, headers={"Idempotency-Key": "digits-7-first"})
    ask("POST", "/v1/runs", {"run_id": "digits-7", "spec": SPEC})
    ask("POST", "/v1/runs", {"run_id": "digits-7", "spec": {"command": ["python", "other.py"]}})
    ask("POST", "/v1/runs", {"spec": {"comand": "x"}})
    bed.submit("digits-8")
    bed.train("digits-7")
    bed.train("digits-8")
    ask("POST", "/v1/what-if", {"spec": {**SPEC, "expect_runtime_s": 36000}, "markets": ["spot", "on_demand"]})
    ask("POST", "/v1/what-if", {"spec": {"comand": "x"}})
    for path in ("/forecast", "", "/attempts", "/gates", "/teardown", "/login", "/events", "/cost", "/facts", "/spec"):
        ask("GET", RUN + path)
        ask("GET", "/v1/runs/digits-9" + path)
    for path in ("/launch",):
        ask("GET", RUN + path)
        ask("GET", "/v1/runs/digits-9" + path)
    ask("POST", RUN + "/drill")
    ask("POST", "/v1/runs/digits-9/drill")
    ask("POST", RUN + "/gates/waivers", {"check": "notice", "reason": "saves are small"})
    ask("POST", RUN + "/gates/waivers", {"check": "approved", "reason": "hurry"})
    ask("POST", RUN + "/write-off", {"machine_id": "id-1", "reason": "the box burned"})
    bed.provider.down = True
    ask("POST", RUN + "/write-off", {"machine_id": "id-1", "reason": "the box burned"})
    bed.provider.down = False
    ask("GET", "/v1/runs?page_size=1&status=running")
    ask("GET", "/v1/runs?run_id=digits-8&include=sparkline")
    ask("GET", "/v1/runs?statuss=running")
    ask("GET", "/v1/runs?cursor=x")
    ask("GET", "/v1/events?limit=2")
    ask("GET", "/v1/events?limit=0")
    ask("GET", "/v1/cost")
    ask("GET", "/v1/cost?cursor=x")
    ask("GET", "/v1/ledger?by=owner")
    ask.streamed("list_ledger", ask("GET", "/v1/ledger?by=owner&format=csv").text)
    ask("GET", "/v1/ledger?by=week")
    ask("GET", "/v1/ledger/billed")
    ask("GET", "/v1/completion")
    ask("GET", "/v1/completion?since=yesterday")


def bills(bed: Bed, ask: Asking) -> None:
    billed, _, _ = furnished_bill(bed)
    ask_billed = ask.of(replace(bed.services, billed=billed))
    ask_billed("GET", "/v1/ledger/billed")
    ask.streamed("list_billed", ask_billed("GET", "/v1/ledger/billed?format=csv").text)


def ends(bed: Bed, ask: Asking) -> None:
    bed.submit("digits-7", SPEC)
    ask("POST", RUN + "/approve", {"machine_id": "id-1"})
    ask("POST", RUN + "/retry")
    ask("POST", RUN + "/stop")
    bed.train("digits-7")
    ask("POST", RUN + "/retry")
    bed.end("digits-7", Status.STOPPED)
    ask("POST", RUN + "/stop")
    ask("POST", RUN + "/drill")
    ask("POST", "/v1/runs/digits-9/stop")
    ask("POST", RUN + "/resume", {"spec": {**SPEC, "limits": {"budget_usd": 50.0}}, "replace_spec": False})
    ask("POST", RUN + "/resume", {"spec": {**SPEC, "limits": {"budget_usd": 50.0}}, "replace_spec": True})
    ask("POST", RUN + "/resume")


def is_approved(bed: Bed, ask: Asking) -> None:
    bed.submit("digits-7", {**SPEC, "on_success": "ask"})
    bed.train("digits-7")
    outcome = Outcome("ab" * 32, 3, 412, bed.clock.now(), 1000)
    bed.end("digits-7", Status.AWAITING_TEARDOWN, files=Files(outcome=outcome))
    ask("POST", RUN + "/approve", {"machine_id": "id-1", "results_sha256": "ab" * 32})


def logs(bed: Bed, ask: Asking) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.objects.put(runfiles.log_chunk("digits-7", 1, 0), b"epoch 1\nloss 0.91\nepoch 2\nloss 0.42\n")
    ask("GET", RUN + "/logs?line=3&lines=1")
    ask("GET", RUN + "/logs?line=3&tail=1")
    ask("GET", RUN + "/attempts/1/log.txt")
    ask("GET", RUN + "/attempts/2/log.txt")


def curves(bed: Bed, ask: Asking) -> None:
    for run_id, lr in (("digits-7", "0.1"), ("digits-8", "0.01")):
        bed.submit(run_id, {**SPEC, "labels": {"lr": lr}, "group": "digits"})
        loss = [(step, round(float(lr) + 2 / step, 4)) for step in range(1, 6)]
        train_on(bed, run_id, (None, stored({"loss": loss, "accuracy": [(5, 0.9)]}, complete=False)))
    ask("GET", RUN + "/metrics")
    ask.streamed("list_metrics", ask("GET", RUN + "/metrics?format=csv&metric=loss").text)
    ask("GET", RUN + "/metrics?points=1")
    ask("GET", "/v1/runs/digits-9/metrics")
    ask("GET", "/v1/compare?run_id=digits-7&run_id=digits-8&points=10")
    ask("GET", "/v1/compare")
    ask("GET", "/v1/compare?run_id=digits-9")


def beats(bed: Bed, ask: Asking) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    told = json.loads(encode(beat("digits-7", 6, step=130, total=1000, steps_per_s=3.0)))
    ask("POST", RUN + "/heartbeat", told)
    ask("POST", RUN + "/heartbeat", {**told, "nonce": "another"})


def claims_its_job(bed: Bed, ask: Asking) -> None:
    door = make_door(bed, bed.services.around.data_dir)
    ask, run = ask.of(door.services), door.launching()
    ask("GET", "/v1/door/agent.pyz?x=1")
    body = {"ticket": door.ticket(run), "claimant": "5d" * 16, "session": {"platform": "kaggle", "id": "123456"}}
    ask("POST", "/v1/claims", body)
    ask("POST", "/v1/claims", {**body, "claimant": "5e" * 16})
    key, prefix = runfiles.applied(ID, 1), runfiles.synced(ID)
    own = {"Authorization": f"Bearer {door.pass_of()}"}
    for headers in (own, {"Authorization": "Bearer x"}):
        ask("PUT", f"/v1/door/{ID}/objects/{key}", content=b"{}", headers=headers)
        ask("GET", f"/v1/door/{ID}/objects?prefix={prefix}", headers=headers)
        for method in ("HEAD", "GET", "DELETE"):
            ask(method, f"/v1/door/{ID}/objects/{key}", headers=headers)
        ask("POST", f"/v1/door/{ID}/uploads", {"key": key, "size": 10**9}, headers=headers)


def files(bed: Bed, ask: Asking) -> None:
    furnished(bed)
    sha256 = ask("GET", f"/v1/runs/{ID}/files?kind=results").json()["results_sha256"]
    ask("GET", f"/v1/runs/{ID}/files?kind=baton")
    model = f"/v1/runs/{ID}/files/results/g1/model.npz"
    ask("GET", model)
    ask("GET", model, headers={"Range": "bytes=490-"})
    ask("GET", model + "x")
    ask("HEAD", model)
    ask("POST", f"/v1/runs/{ID}/pulled", {"results_sha256": sha256, "files": 2})
    ask("POST", f"/v1/runs/{ID}/pulled", {"results_sha256": "0" * 64, "files": 2})


def is_purged(bed: Bed, ask: Asking) -> None:
    over(bed)
    ask("POST", RUN + "/purge", {"confirm": "digits-8"})
    ask("POST", RUN + "/purge", {"confirm": "digits-7"})


def leaves_evidence(bed: Bed, ask: Asking) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.end("digits-7", Status.FAILED)
    run = bed.run("digits-7")
    assert run.attempt is not None
    records.keep_evidence(bed.objects, run, run.attempt, bed.clock.monotonic, ("listing: up",))
    bed.objects.put(runfiles.console("digits-7", 1), b"boot\nthe last words\n")
    for number in (1, 2):
        ask("GET", f"{RUN}/attempts/{number}/evidence")
        ask("GET", f"{RUN}/console?attempt={number}")
    killed = Exit(None, 9, False, 95.0, "", oom_kills=1)
    attempt = replace(run.attempt, cause=Cause.HOST_OOM, evidence="memory limit hit", exit=killed)
    records.keep_evidence(bed.objects, bed.change("digits-7", attempt=attempt), attempt, bed.clock.monotonic, ())
    for number in (1, 2):
        ask("GET", f"{RUN}/diagnosis?attempt={number}")


def takes_over(bed: Bed, ask: Asking) -> None:
    old = MemoryStore(bed.clock.now, OLD_BUCKET)
    for key, data in old_run(OLD_ID).items():
        old.put(key, data)
    bed.clock.advance(7200.0)

    @contextmanager
    def opened(url: str) -> Iterator[ObjectReader]:
        if url != OLD_BUCKET:
            raise ValueError("only the old bucket can be read")
        yield old

    elsewhere = Elsewhere(opened, bed.services.around.data_dir / "imports", lambda: "")
    ask = ask.of(replace(bed.services, parts=replace(bed.parts, elsewhere=elsewhere)))
    for name in (OLD_ID, OLD_ID, "digits-9"):
        ask("POST", "/v1/imports", {"url": f"{OLD_BUCKET}/runs/{name}"})


def code(bed: Bed, ask: Asking) -> None:
    name, raw = bundle_of()
    gz = {"Content-Type": "application/gzip"}
    ask("PUT", f"/v1/code/{name}", content=raw, headers=gz)
    ask("PUT", f"/v1/code/{name}", content=raw, headers=gz)
    ask("PUT", f"/v1/code/{'0' * 64}", content=gzip.compress(b"x"), headers=gz)
    ask("GET", f"/v1/code/{name}")
    ask("GET", f"/v1/code/{'0' * 64}")


def works_on_a_living_run(bed: Bed, ask: Asking) -> None:
    name, raw = bundle_of()
    gz = {"Content-Type": "application/gzip"}
    ask("PUT", f"/v1/code/{name}", content=raw, headers=gz)
    bed.submit("digits-8")
    for path in ("/code", "/code/files"):
        ask("GET", f"/v1/runs/digits-8{path}")
    bed.submit("digits-7", {**SPEC, "command": ["python", "train.py"], "code": name})
    ask("POST", RUN + "/commands", {"command": ["nvidia-smi"]})
    ask("POST", RUN + "/code/collected", {"paths": ["notebooks"]})
    bed.train("digits-7")
    bed.change("digits-7", attempt=replace(bed.run("digits-7").attempt, code=name))
    change = delta_of(CODE, {**CODE, "train.py": b"print(2)\n"})[1]
    ask("PUT", RUN + f"/code/1?git={'5d' * 20}", content=change, headers=gz)
    ask("PUT", RUN + "/code/3", content=change, headers=gz)
    bed.objects.put(runfiles.applied("digits-7", 1), b'{"began": 0, "revision": 1, "kept": ["train.py.orig"]}')
    for path in ("/code", "/code/files"):
        ask("GET", RUN + path)
    ask("POST", RUN + "/code/collected", {"paths": ["notebooks"]})
    sent = ask("POST", RUN + "/commands", {"command": ["nvidia-smi"], "folder": "", "timeout_s": 60.0}).json()
    path = f"{RUN}/commands/{sent['command_id']}"
    done = {"kind": "exec", "state": "done", "exit_code": 0, "output": "GPU 0: 41 %\n", "ran_s": 0.4, "folder": "/code"}
    bed.objects.put(runfiles.command_result("digits-7", sent["command_id"]), json.dumps(done).encode())
    for each in (path, path[:-1] + "x", path + "/files"):
        ask("GET", each)


def machines(bed: Bed, ask: Asking) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    put(bed, "m-a1", "digits-7", machine_id="id-1")
    put(bed, "m-left", "digits-3")
    ask("GET", "/v1/machines?all=true")
    ask("GET", "/v1/machines?al=true")
    ask("POST", RUN + "/machine/delete")
    keep(bed, run_id="digits-8")
    ask("GET", "/v1/machines/kept")
    ask("GET", "/v1/machines/kept?all=true")
    ask("POST", "/v1/runs/digits-8/machine/delete")
    ask("POST", "/v1/runs/digits-9/machine/delete")
    ask("POST", "/v1/gc", {"dry_run": True})
    ask("POST", "/v1/gc", {})


def waits_for_its_person(bed: Bed, ask: Asking) -> None:
    waits_for_notebook(bed)
    ask("GET", RUN + "/cell")
    bed.submit("digits-8")
    ask("GET", "/v1/runs/digits-8/cell")
    ask("GET", "/v1/runs/digits-9/cell")


def own_gpus(bed: Bed, ask: Asking) -> None:
    why = Aside("its driver says that it is lost", "m-a1", "digits-7", bed.clock.now())
    bed.cards.there = [
        Card(0, "GPU-0", "NVIDIA L4", aside=why),
        Card(1, "GPU-1", "NVIDIA L4", "with machine m-b1", ours=True),
    ]
    ask("GET", "/v1/gpus")
    ask("GET", "/v1/gpus?all=true")
    ask("POST", "/v1/gpus/back", {"gpu": "GPU-0"})
    ask("POST", "/v1/gpus/back", {"gpu": "GPU-0"})


def prices(bed: Bed, ask: Asking) -> None:
    dated = datetime.fromtimestamp(bed.clock.now(), UTC).date().isoformat()
    bed.parts.platform.price_list = (ShapePrice("t4", "us-east1", 0.3, 0.75, "Google", dated),)  # type: ignore[attr-defined]
    ask("GET", "/v1/prices")
    ask("GET", "/v1/prices?shape=t4")
    ask("POST", "/v1/prices/refresh", {})
    ask("POST", "/v1/prices/refresh", {"shape": "t4"})


def disasters(bed: Bed, ask: Asking) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    for deed, body in (("kill", {}), ("freeze", {}), ("preempt", {"notice_s": 30.0})):
        put(bed, "m-a1", "digits-7", machine_id="id-1")
        ask("POST", f"/v1/dev/{deed}", {"run_id": "digits-7", **body})
        ask("POST", f"/v1/dev/{deed}", {"run_id": "digits-9"})
    ask("POST", "/v1/dev/stockout", {"zones": ["local-a"], "for_s": 60.0})
    ask("POST", "/v1/dev/stockout", {"zones": ["nowhere"]})


def health(bed: Bed, ask: Asking) -> None:
    for path in ("/livez", "/readyz", "/v1/meta", "/v1/loop", "/v1/whoami", "/v1/doctor"):
        ask("GET", path + ("?verbose=true" if path == "/readyz" else ""))
        ask("GET", path + "?colour=red")


SCENES: tuple[Callable[[Bed, Asking], None], ...] = (
    submits, bills, ends, is_approved, logs, curves, beats, claims_its_job, files, is_purged, leaves_evidence,
    takes_over, code, works_on_a_living_run, machines,
    waits_for_its_person, own_gpus, prices, disasters, health, *scenes_people.SCENES,
)  # fmt: skip
