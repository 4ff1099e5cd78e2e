"""A bench for builds: fakes of Cloud Build, Cloud Storage and a registry, stub programs gcloud and docker, a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from supervisor.images.build import build
from supervisor.images.request import BuildRequest, Built, checked
from tests.cloud.access import Access
from tests.cloud.cloudbuild import CloudBuildFake
from tests.cloud.discovery import Oracle
from tests.cloud.registry import RegistryFake
from tests.cloud.rolefiles import BUILDER
from tests.cloud.storage import StorageFake
from tests.cloud.web import Request, Response, Watch, WebServer

BUCKET, PROJECT = "spot-tests", "my-project"
STUBS = Path(__file__).parent / "stubs"
SOUND_GCLOUD = {"submit": True}
SOUND_DOCKER = {"push": True}
# Set by whoever runs the tests, they would change what is built or where.
FOREIGN = ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST")


class Scene:
    """`said`: the messages for the user; `lines`: other programs' output. Every exchange is checked by the oracle, and
    must be allowed to a person who builds (`access`)."""

    def __init__(self, room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room, self._monkeypatch = room, monkeypatch
        self.violations: list[str] = []
        self.said: list[str] = []
        self.lines: list[str] = []
        self.storage = StorageFake(watch=self._watch("storage"))
        self.storage.make_bucket(BUCKET)
        self.registry = RegistryFake()
        self.builds = CloudBuildFake(self.registry, self.storage, watch=self._watch("cloudbuild"))
        self.pushes = WebServer(self._push)
        self.access = Access(lambda _: BUILDER, lambda bucket, name: self.storage.find(bucket, name) is not None)
        for service, fake in (("storage", self.storage), ("cloudbuild", self.builds), ("registry", self.registry)):
            fake.server.guard(self.access.gate(service))
        self.folder = room / "project"
        self.folder.mkdir()
        (self.folder / "train.py").write_text("print('training')\n")
        self.bin = room / "bin"
        self.bin.mkdir()
        for name in FOREIGN:
            monkeypatch.delenv(name, raising=False)
        for name, value in {
            "PATH": str(self.bin), "STUB_SCENE": str(room), "STORAGE_EMULATOR_HOST": self.storage.url,
            "STUB_CLOUD_BUILD": self.builds.url, "STUB_PUSH": self.pushes.url,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)

    def close(self) -> None:
        for server in (self.builds, self.storage, self.registry, self.pushes):
            server.close()
        assert self.violations == [], "\n".join(self.violations)
        assert self.access.faults == [], "\n".join(self.access.faults)

    @property
    def image(self) -> str:
        return f"{self.registry.host}/team/train:1"

    def program(self, name: str, **plan: Any) -> None:
        """gcloud or docker is installed, and behaves so."""
        (self.room / f"{name}.json").write_text(json.dumps(plan))
        script = self.bin / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{STUBS / name}.py" "$@"\n')
        script.chmod(0o755)

    def calls(self, name: str) -> list[list[str]]:
        """The words of each call, without the program's name."""
        path = self.room / f"{name}.calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def files(self, name: str) -> list[str]:
        """What the program was about to send."""
        names: list[str] = json.loads((self.room / f"{name}.files").read_text())
        return names

    def request(self, **more: Any) -> BuildRequest:
        values = {
            "folder": self.folder, "image": self.image, "project": PROJECT, "staging": f"gs://{BUCKET}/build-staging",
            "endpoint": self.builds.url, "poll_s": 0.0, **more,
        }  # fmt: skip
        return checked(BuildRequest(**values))

    def build(self, **more: Any) -> Built:
        return build(self.request(**more), self.said.append, self.lines.append)

    def digest(self, tag: str = "1") -> str:
        """What the registry has under the tag."""
        from supervisor.images.registry import Registries

        return Registries(lambda: "").pin(f"{self.registry.host}/team/train:{tag}").partition("@")[2]

    def builds_begun(self) -> int:
        return len(self.builds.builds)

    def _push(self, request: Request) -> Response:
        digests = {self.builds.push(image, "by docker") for image in request.json()}
        (digest,) = digests
        return Response(200, {"digest": digest})

    def _watch(self, service: str) -> Watch:
        oracle = Oracle(service)

        def watch(request: Request, response: Response) -> None:
            self.violations += oracle.check(request, response)

        return watch
