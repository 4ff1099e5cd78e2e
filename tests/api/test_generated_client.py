"""A Python client generated from the served document takes the ten-minute tour of docs/api.md.

The generator is a program of its own; the client runs in this process, against a server on a socket. Every answer goes
through the generated models, so a field that is not what the document says breaks the tour.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.conformance import guarded
from tests.api.listening import serving
from tests.docs.test_api_page import STAGES
from tests.fakes.courier import FakeCourier
from tests.services.bed import Bed, make_bed
from tests.services.fresh import open_fresh

PACKAGE = "generated_spot_client"
CONFIG = """\
post_hooks: []
content_type_overrides:
  application/gzip: application/octet-stream
"""


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The generated package, importable while the tests of this file run. Any warning of the generator is a failure."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
    with tour(folder, "Check that it works") as visit:
        answer = httpx.get(f"{visit.url}/openapi.json", headers={"Authorization": f"Bearer {visit.token}"}, timeout=60)
        (folder / "openapi.json").write_bytes(answer.raise_for_status().content)
    program = [str(Path(sys.executable).with_name("openapi-python-client")), "generate", "--fail-on-warning"]
    where = ["--path", "openapi.json", "--config", "config.yaml", "--meta", "none", "--output-path", PACKAGE]
    made = subprocess.run([*program, *where], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    sys.path.insert(0, str(folder))
    try:
        yield folder / PACKAGE
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


@dataclass
class Visit:
    """One stage of the tour: a server, and the generated client in front of it."""

    url: str
    token: str

    def ask(self, operation: str, *path: str, **parameters: Any) -> Any:
        """The parsed answer of `tag.operation`. An undocumented status raises."""
        with self.client() as client:
            call = import_module(f"{PACKAGE}.api.{operation}")
            self.answer = call.sync_detailed(*path, client=client, **parameters)
        return self.answer.parsed

    def client(self) -> Any:
        kind = import_module(f"{PACKAGE}.client").AuthenticatedClient
        return kind(self.url, self.token, raise_on_unexpected_status=True, timeout=httpx.Timeout(30.0))

    def word(self, name: str, value: str) -> Any:
        """A word of an enum, as the generated functions want it: `name` is Module.Class."""
        module, _, kind = name.partition(".")
        return getattr(import_module(f"{PACKAGE}.models.{module}"), kind)(value)

    def model(self, name: str, value: Any) -> Any:
        """A body as the generated models make it: `name` is Module.Class."""
        module, _, kind = name.partition(".")
        return getattr(import_module(f"{PACKAGE}.models.{module}"), kind).from_dict(value)


@contextmanager
def tour(folder: Path, stage: str) -> Iterator[Visit]:
    """The world in which docs/api.md shows this stage, served on a socket."""
    here = folder / stage.replace(" ", "-").replace(",", "")
    here.mkdir()
    with closing(open_fresh(here / "supervisor.db", ("log", "webhooks"))) as store:
        bed: Bed = make_bed(store, here)
        prepare: Callable[[Bed], None] = STAGES.get(stage, lambda bed: None)
        prepare(bed)
        services, token = guarded(bed)
        services = replace(services, parts=replace(services.parts, courier=FakeCourier()))
        with serving(services) as served:
            yield Visit(f"http://127.0.0.1:{served.port}", token)


def test_is_it_there(tmp_path: Path) -> None:
    with tour(tmp_path, "Check that it works") as visit:
        assert visit.ask("health.live").live is True
        assert visit.ask("health.ready", verbose="true").ready is True
        meta = visit.ask("health.show_meta")
        assert (meta.api, meta.provider, "code_bundles" in meta.features) == ("v1", "local", True)


def test_submit_a_run(tmp_path: Path) -> None:
    command = {"command": ["python", "train.py"], "labels": {"team": "vision"}}
    with tour(tmp_path, "Submit a run") as visit:
        body = visit.model("submit_body.SubmitBody", {"spec": command})
        assert visit.ask("runs.submit_run", body=body, validate_only=True).would == "create"
        named = visit.model("submit_body.SubmitBody", {"run_id": "digits-7", "spec": command})
        made = visit.ask("runs.submit_run", body=named, idempotency_key="monday-1")
        assert (visit.answer.status_code, made.run_id, made.status) == (HTTPStatus.CREATED, "digits-7", "pending")
        again = visit.ask("runs.submit_run", body=named, idempotency_key="monday-1")
        assert (visit.answer.headers["idempotency-replayed"], again.run_id) == ("true", "digits-7")
        other = {"run_id": "digits-7", "spec": {"command": ["python", "other.py"]}}
        refusal = visit.ask("runs.submit_run", body=visit.model("submit_body.SubmitBody", other))
        assert (visit.answer.status_code, refusal.code) == (HTTPStatus.CONFLICT, "RUN_ACTIVE")


def test_look_at_runs(tmp_path: Path) -> None:
    with tour(tmp_path, "Read runs") as visit:
        page = visit.ask(
            "runs.list_runs", status=[visit.word("list_runs_status_item.ListRunsStatusItem", "running")], page_size=10
        )
        assert [run.run_id for run in page.runs] == ["digits-7"]
        run = visit.ask("runs.show_run", "digits-7")
        assert (run.status, run.progress.step, run.placement.zone) == ("running", 120, "local-a")
        assert visit.ask("runs.list_attempts", "digits-7").attempts[0].cause is None
        assert visit.ask("runs.list_run_events", "digits-7", limit=2).events[0].kind == "submitted"
        assert visit.ask("runs.read_log", "digits-7", limit=1000).text.startswith("epoch 1")
        assert visit.ask("runs.read_log", "digits-7", tail=1).text == "epoch 2 loss 0.31\n", "defaults say nothing"
        assert visit.ask("runs.list_beats", "digits-7", points=100).points[0].step == 100
        assert visit.ask("runs.show_run", "no-such-run").code == "RUN_NOT_FOUND"


def test_change_stop_resume(tmp_path: Path) -> None:
    """The generator (0.29) forgets an import where a body has two media types: the change goes by its HTTP client."""
    with tour(tmp_path, "Change, stop, resume") as visit:
        visit.ask("runs.show_run", "digits-7")
        tag = visit.answer.headers["etag"]
        body = visit.model("change_body.ChangeBody", {"limits": {"budget_usd": 50}, "labels": {"tier": "gold"}})
        with visit.client() as client:
            path, headers = "/v1/runs/digits-7", {"If-Match": tag}
            changed = client.get_httpx_client().patch(path, json=body.to_dict(), headers=headers)
            refused = client.get_httpx_client().patch(path, json=body.to_dict(), headers=headers)
        after = visit.model("changed_run.ChangedRun", changed.json()).after
        assert after["limits.budget_usd"] == 50.0
        assert visit.model("problem.Problem", refused.json()).code == "PRECONDITION_FAILED"
        assert visit.ask("actions.stop_run", "digits-7").stop.actor
        resumed = visit.ask("actions.resume_run", "digits-8")
        assert (resumed.generation, resumed.status) == (2, "pending")


def test_fetch_the_files(tmp_path: Path) -> None:
    with tour(tmp_path, "Fetch the files") as visit:
        results = visit.word("list_run_files_kind_item.ListRunFilesKindItem", "results")
        files = visit.ask("files.list_run_files", "digits-7", kind=[results]).files
        model = next(entry for entry in files if entry.path == "results/g1/model.npz")
        content = visit.ask("files.read_file", "digits-7", model.path)
        assert visit.answer.status_code == HTTPStatus.OK
        assert hashlib.sha256(visit.answer.content).hexdigest() == model.sha256
        assert content is not None


def test_costs_prices_zones_machines(tmp_path: Path) -> None:
    with tour(tmp_path, "Costs, prices, zones, machines") as visit:
        assert visit.ask("runs.show_cost", "digits-7").cost_usd == pytest.approx(0.001667, abs=1e-6)
        assert visit.ask("prices.list_prices").prices[0].spot_usd_per_h == 0.1
        assert "good" in {offer.state for offer in visit.ask("runs.list_zones").zones}
        assert visit.ask("machines.list_machines").machines[0].use == "serves"
        body = visit.model("collect_body.CollectBody", {"dry_run": True})
        assert visit.ask("machines.collect_machines", body=body).released == []


def test_send_the_code_along(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("train.py")
        entry.size = len(b"print(1)\n")
        archive.addfile(entry, io.BytesIO(b"print(1)\n"))
    tar = packed.getvalue()
    name = hashlib.sha256(tar).hexdigest()
    with tour(tmp_path, "Send the code along") as visit:
        file = import_module(f"{PACKAGE}.types").File(io.BytesIO(gzip.compress(tar)))
        assert visit.ask("code.store_code", name, body=file).files == 1
        assert visit.ask("code.show_code", name).sha256 == name
        spec = {"command": ["python", "train.py"], "code": name}
        made = visit.ask("runs.submit_run", body=visit.model("submit_body.SubmitBody", {"spec": spec}))
        assert made.status == "pending"


def test_listen_and_let_others_in(tmp_path: Path) -> None:
    with tour(tmp_path, "Listen") as visit:
        assert visit.ask("runs.list_events", newest_first=True, limit=1).events[0].kind
        hook = {"url": "https://hooks.example.com/spot", "kinds": ["failed", "completed"]}
        made = visit.ask("webhooks.add_webhook", body=visit.model("add_webhook_body.AddWebhookBody", hook))
        assert made.secret.startswith("whsec_")
        wish = {
            "name": "ci",
            "owner": "lab",
            "scopes": ["runs:read"],
            "expires_in_s": timedelta(hours=1).total_seconds(),
        }
        token = visit.ask("tokens.create_token", body=visit.model("create_token_body.CreateTokenBody", wish))
        assert token.token.startswith("sup_")
        assert visit.ask("tokens.revoke_token", token.token_id).token_id == token.token_id
