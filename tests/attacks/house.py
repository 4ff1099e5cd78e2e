"""The house that is attacked: a real supervisor with tokens, a run that has ended with all its files, other people's
runs, secrets in every place that takes one; and the look at all of it after each attack.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from supervisor.contract import runfiles
from supervisor.contract.stores.folder import FolderStore
from supervisor.dashboard.app import PAGES
from tests.acceptance.canaries import forms
from tests.acceptance.daemon import QUICK, Daemon, running
from tests.api.listening import Listener
from tests.api.recorder import COMMITTED
from tests.attacks.wire import Answer, ask, together
from tests.cloud.web import Request, Response, WebServer
from tests.providers.stub_cards import StubCards
from tests.waiting import wait_for

HOSTILE = "<script>alert(1)</script> <!channel> & \u202egnp.exe \x9b31m \x1b[2J"
RUNS = b"<script>alert(1)"
# Characters that a reader does not see; a file of the run is given as it is.
HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
SHOWN = ("text/html", "application/json", "application/problem+json")
# A stream, what leads on, questions about a choice, and parts of a page.
APART = (
    "ui_live", "ui_sign_in", "ui_many", "ui_release", "ui_run_change", "ui_log_lines", "ui_console_lines",
)  # fmt: skip
SAFE_HERE = "<script>alert(1)</script> <!channel> &"  # where hidden characters are refused
SHOUT = "import os, sys; print('x' * 5000); sys.exit(os.environ['TEXT'])"
NOWHERE = {"command": "true", "zones": ["local-c"]}  # where nothing is to be had
COMMAND = "ab" * 8  # whose result a machine has written
WEBHOOK_SECRET = "T0kenInThePath93ab"

GONE = {
    **dict.fromkeys(("console", "login"), "404 EVIDENCE_NOT_FOUND"),  # with its machine, on this computer
    "billed": "409 NOT_SUPPORTED",  # no table of the platform's bill is set
}


class House:
    """`mine`: a run of the attacker, over; `theirs`: of somebody else. Tokens by what they may."""

    def __init__(self, daemon: Daemon, receiver: WebServer, said: list[Request]) -> None:
        self.daemon, self.receiver, self.said = daemon, receiver, said
        self.port = int(daemon.url.rpartition(":")[2])
        self.admin = daemon.token
        self.cookie = f"Cookie: spot-80={self.admin}"  # under the name without a port
        self.tokens: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        for name, owner, scopes in (
            ("mallory", "mallory", ["runs:read", "runs:write", "runs:exec"]),
            ("reader", "mallory", ["runs:read"]),
            ("scraper", "mallory", ["metrics:read"]),
            ("fired", "mallory", ["runs:read"]),
        ):
            made = daemon.call("POST", "/v1/tokens", {"name": name, "owner": owner, "scopes": scopes})
            self.tokens[name], self.ids[name] = made["token"], made["token_id"]
        daemon.call("DELETE", f"/v1/tokens/{self.ids['fired']}")
        expiring = {"name": "gone", "owner": "mallory", "scopes": ["runs:read"], "expires_in_s": 1}
        self.tokens["gone"] = daemon.call("POST", "/v1/tokens", expiring)["token"]
        hook = daemon.call(
            "POST", "/v1/webhooks",
            {"url": f"{receiver.url}/{WEBHOOK_SECRET}", "form": "slack", "everything": True, "note": SAFE_HERE},
        )  # fmt: skip
        self.webhook = hook["webhook_id"]
        self.secrets = [self.admin, *self.tokens.values(), WEBHOOK_SECRET, *filter(None, [hook.get("secret")])]
        self.bundle = self._store_code()
        self.mine, self.theirs, self.cursor = "run-of-mallory", "run-of-others", ""
        self._needles = [(n, form) for n, value in enumerate(self.secrets) for form in forms(value)]
        self._log_at = 0

    def _store_code(self) -> str:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("empty.py"), io.BytesIO())
        name = hashlib.sha256(packed.getvalue()).hexdigest()
        self.daemon.http.put(
            f"{self.daemon.url}/v1/code/{name}", content=gzip.compress(packed.getvalue()),
            headers={"Content-Type": "application/gzip"},
        ).raise_for_status()  # fmt: skip
        return name

    def move_in(self) -> None:
        """Runs whose names, labels, variables and output are hostile; one of them to its end."""
        spec = {
            "command": ["python3", "-c", SHOUT], "env": {"TEXT": HOSTILE},
            "labels": {"team": SAFE_HERE}, "limits": {"max_user_failures": 1},
            "results": [{"path": f"{HOSTILE}*"}],
        }  # fmt: skip
        self.submit(self.tokens["mallory"], self.mine, spec)
        self.submit(self.admin, self.theirs, {**NOWHERE, "code": self.bundle})
        objects = FolderStore.at(f"file://{self.daemon.data_dir}/objects")
        told = {"kind": "collect", "state": "done", "output": HOSTILE, "files": 1}
        objects.put(runfiles.command_result(self.mine, COMMAND), json.dumps(told).encode())
        objects.put(runfiles.command_files(self.mine, COMMAND), HOSTILE.encode())
        for number in range(2):
            self.submit(self.admin, f"stopped-{number}", NOWHERE)
            self.daemon.call("POST", f"/v1/runs/stopped-{number}/stop")
        self.cursor = self.daemon.call("GET", "/v1/runs?page_size=1")["next_cursor"]
        self.daemon.wait_status(self.mine, "failed")
        wait_for(lambda: any(b"run-of-mallory" in one.body for one in self.said), 30, "the message that it failed")

    def submit(self, token: str, run_id: str, spec: dict[str, Any]) -> None:
        answer = self.daemon.http.post(
            f"{self.daemon.url}/v1/runs", json={"run_id": run_id, "spec": spec}, auth=Bearer(token)
        )
        assert answer.status_code == 201, answer.text

    def readers(self) -> list[str]:
        """Every GET of the document, with good parameters."""
        run = f"/v1/runs/{self.mine}"
        logs = self.daemon.call("GET", f"{run}/files?kind=logs")["files"]
        files = [f"{run}/files/{logs[0]['path']}"]
        of_run = ["", "/events?limit=500", "/attempts", "/attempts/1/evidence", "/console", "/facts", "/cost", "/gates"]
        of_run += ["/beats", "/logs?attempt=1", "/files", "/attempts/1/log.txt", "/spec", "/launch", "/login"]
        of_run += ["/teardown", "/diagnosis", "/metrics", "/forecast"]
        of_run += [f"/commands/{COMMAND}", f"/commands/{COMMAND}/files"]
        return [
            "/livez", "/readyz?verbose=true", "/metrics", "/v1/meta", "/v1/loop", "/v1/whoami", "/v1/cost",
            "/v1/ledger", "/v1/ledger?by=owner&format=csv", "/v1/ledger/billed", "/v1/completion",
            "/v1/machines?all=true", "/v1/machines/kept", "/v1/bases", "/v1/gpus", "/v1/prices", "/v1/zones",
            "/v1/tokens", "/v1/runs?page_size=1000", "/v1/door/agent.pyz",
            "/v1/providers", "/v1/incidents", f"/v1/compare?run_id={self.mine}&run_id={self.theirs}",
            f"/v1/code/{self.bundle}", "/v1/webhooks", f"/v1/webhooks/{self.webhook}",
            f"/v1/webhooks/{self.webhook}/deliveries", "/v1/events?newest_first=true&limit=500", *files,
            *[run + more for more in of_run], f"/v1/runs/{self.theirs}",
            f"/v1/runs/{self.theirs}/code", f"/v1/runs/{self.theirs}/code/files", *self.pages(), "/v1/doctor",
        ]  # fmt: skip

    def pages(self) -> list[str]:
        """Of the dashboard, with what strangers wrote on them."""
        values = {"{run_id}": self.mine, "{webhook_id}": self.webhook, "{attempt}": "1"}
        found = []
        for template, methods, _, name in PAGES:
            path = re.sub(r"\{\w+\}", lambda word: values.get(word.group(), "{"), template)
            if methods == ["GET"] and "{" not in path and name not in APART:
                found.append("/ui" + path)
        return found

    def look(self, paths: list[str]) -> list[str]:
        """What is wrong with the house: a reader that does not answer, a secret that was told, an unforeseen error."""
        lines = [[self.cookie] if path.startswith("/ui/") else [] for path in paths]
        asked = [ask("GET", path, *more, token=self.admin) for path, more in zip(paths, lines, strict=True)]
        answers = together(self.port, asked)
        wrong = [
            f"GET {path}: {answer.told}"
            for path, answer in zip(paths, answers, strict=True)
            if answer.told not in ("200", GONE.get(path.rpartition("/")[2]))
        ]
        wrong += [
            f"GET {path}: what a stranger wrote would run"
            for path, answer in zip(paths, answers, strict=True)
            if answer.headers.get("content-type", "").startswith("text/html") and RUNS in answer.body
        ]
        wrong += [
            f"GET {path}: hidden characters"
            for path, answer in zip(paths, answers, strict=True)
            if answer.headers.get("content-type", "").partition(";")[0] in SHOWN and HIDDEN.search(answer.body.decode())
        ]
        logged = self._logged()
        if HIDDEN.search(logged.decode()):
            wrong.append("hidden characters in the log")
        told = b"".join(answer.body for answer in answers) + logged
        found = dict.fromkeys(number for number, needle in self._needles if needle in told)
        wrong += [f"secret number {number} is told" for number in found]
        return wrong + [f"the log has {word!r}" for word in (b"Traceback", b'"ERROR"', b" ERROR ") if word in logged]

    def _logged(self) -> bytes:
        with (self.daemon.data_dir / "serve.log").open("rb") as log:
            log.seek(self._log_at)
            found = log.read()
        self._log_at += len(found)
        return found


class Bearer:
    """Another token than the client's own."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: Any) -> Any:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def unread(paths: list[str]) -> list[str]:
    """GETs of the document that none of these addresses asks. Those of objects need a pass in place of a token: they
    are attacked in tests/api/test_door_attacks.py. A run on this computer has no cell to paste: tests/services has."""
    paths_told = json.loads(COMMITTED.read_text(encoding="utf-8"))["paths"]
    templates = [
        path for path, methods in paths_told.items() if "get" in methods and not re.search("/objects|/cell$", path)
    ]
    plain = [path.partition("?")[0] for path in paths]
    as_pattern = {path: re.sub(r"\{path\}", ".+", re.sub(r"\{(?!path)\w+\}", "[^/]+", path)) for path in templates}
    return [path for path, pattern in as_pattern.items() if not any(re.fullmatch(pattern, one) for one in plain)]


@contextmanager
def attacked(data_dir: Path) -> Iterator[House]:
    said: list[Request] = []

    def take(request: Request) -> Response:
        said.append(request)
        return Response(200, b"\xff\x00garbage" * 10_000, {"Content-Type": "text/html", "Retry-After": "soon"})

    receiver = WebServer(take)
    cards = StubCards(data_dir.with_name("bin"), 1)
    environ = {
        "SPOT_WEBHOOK_ALLOW_HOSTS": receiver.url.partition("://")[2], "SPOT_LOCAL_CAPACITY": "local-c=0",
        "PATH": cards.path, "SPOT_PUBLIC_URL": "https://door.example",
    }  # fmt: skip
    with running(data_dir, {**QUICK, **environ}) as daemon:
        house = House(daemon, receiver, said)
        house.move_in()
        yield house
    receiver.close()


def listen(house: House, token: str) -> Listener:
    return Listener(house.port, "/v1/events", {"Authorization": f"Bearer {token}"})


__all__ = ["Answer", "House", "attacked", "listen", "unread"]
