"""A whole set-up in order (settings, database, cloud, alert address), examined in this process without a supervisor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from supervisor.machinefolder import agent_archive
from supervisor.storage.store import open_store
from supervisor.wiring import examining
from supervisor.wiring import settings as wired
from tests.acceptance.daemon import OF_WHO_TESTS
from tests.cloud.cloud import BUCKET, PROJECT, Cloud
from tests.cloud.compute_rig import FixedToken
from tests.cloud.web import Request, Response, WebServer
from tests.objectstores.gcs_bed import metadata_server

ACCOUNT = "spot@p.iam.gserviceaccount.com"
WORKER = "worker@p.iam.gserviceaccount.com"
Line = dict[str, str]
_built_agent = cache(agent_archive.build_agent)  # 35 ms of CPU in each of many reports


class Named(FixedToken):
    """Credentials with a known account."""

    service_account_email = ACCOUNT


@dataclass
class Setup:
    """`environ`: the variables of the settings; a fault may change it, like all other fields."""

    cloud: Cloud
    folder: Path
    environ: dict[str, str]
    supervisor_id: str
    alerts: list[Request] = field(default_factory=list)
    alert_answer: Response = field(default_factory=lambda: Response(200, {}))

    def report(self, deadline_s: float = 8.0, alert_test: bool = True) -> dict[str, Any]:
        known = wired.load({"data_dir": str(self.folder)}, self.environ)
        return examining.examine(known, alert_test, deadline_s)

    def troubles(self) -> dict[str, Line]:
        return {line["name"]: line for line in self.report()["checks"] if line["result"] != "ok"}


@contextmanager
def a_set_up(folder: Path) -> Iterator[Setup]:
    """Every exchange is compared with Google's documents and with the role files."""
    cloud = Cloud()
    cloud.storage.describe(BUCKET, location="US-EAST1")
    cloud.iam.accounts = {WORKER}
    data = folder / "data"
    data.mkdir()
    (data / "supervisor.db").touch(0o600)  # as the lock of the folder makes it
    store = open_store(f"sqlite:///{data / 'supervisor.db'}", migrate=True)
    store.close()
    received: list[Request] = []
    setup: Setup

    def take(request: Request) -> Response:
        received.append(request)
        return setup.alert_answer

    receiver = WebServer(take)
    environ = {
        **cloud.environment(),
        "SPOT_GCE_SERVICE_ACCOUNT": WORKER,
        "SPOT_DEFAULT_IMAGE": cloud.image(),
        "SPOT_ALERT_URL": f"{receiver.url}/hook/t0ken",
        "SPOT_PORT": "0",
        "HOME": str(folder),
        "CLOUDSDK_CONFIG": str(folder / "gcloud"),
    }
    setup = Setup(cloud, data, environ, store.supervisor_id, received)
    google = {name: value for name, value in environ.items() if not name.startswith("SPOT_")}
    plain = {name: value for name, value in os.environ.items() if not name.startswith(OF_WHO_TESTS)}
    with (
        metadata_server(cloud.metadata, folder / "gcloud") as more,
        patch.dict(os.environ, {**plain, **google, **more}, clear=True),
        patch("supervisor.providers.gce.calls.clients._default_credentials", Named),
        patch.object(agent_archive, "build_agent", _built_agent),
        patch("supervisor.services.doctor.state.COMMIT_WARN_MS", 60_000.0),  # a busy computer is no fault here
    ):
        yield setup
    receiver.close()
    cloud.close()


def gcloud_is_set_to(setup: Setup, project: str) -> None:
    folder = Path(setup.environ["CLOUDSDK_CONFIG"])
    (folder / "configurations").mkdir(parents=True)
    (folder / "active_config").write_text("mine")
    text = f"[core]\naccount = ann@example.org\nproject = {project}\n"
    (folder / "configurations" / "config_mine").write_text(text)


__all__ = ["ACCOUNT", "BUCKET", "PROJECT", "WORKER", "Setup", "a_set_up", "gcloud_is_set_to"]
