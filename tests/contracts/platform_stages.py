"""The stages of the platforms: this computer, Google's fakes, and the fake of the use cases' tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from google.oauth2.credentials import Credentials

from supervisor.domain.machines import MachineRef
from supervisor.ports.platform import Platform, PlatformEvent
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.advice.data_places import DataPlaces
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.platform import GcePlatform
from supervisor.providers.local.provider import LocalPlatform
from supervisor.providers.ssh.platform import SshPlatform
from supervisor.providers.ssh.settings import SshSettings
from tests.cloud.discovery import Oracle
from tests.cloud.logging_fake import LoggingFake
from tests.cloud.web import Request, Response
from tests.contracts.platform_suite import PlatformStage
from tests.contracts.provider_subject import ref
from tests.fakes.platform import FakePlatform
from tests.providers.gce_subject import GceSubject
from tests.providers.local_machines import FolderSubject, LocalSubject
from tests.providers.ssh_machines import SshSubject

AT = 1_790_000_000.0


class FolderStage(PlatformStage):
    """Its machines are folders that the test can see."""

    tells_history = False

    def __init__(self, subject: FolderSubject, platform: Platform) -> None:
        self.subject, self.platform = subject, platform
        self.request = subject.request()
        machine = subject.up(self.request)
        self.ref = ref(self.request, machine.machine_id)
        subject.pids(self.request)  # from then on nothing but this test writes to its console

    def write(self, data: bytes) -> None:
        with (self.subject.folder(self.request) / "console.log").open("ab") as console:
            console.write(data)

    def end(self) -> None:
        self.subject.provider.release(self.ref)
        self.subject.gone(self.request)

    @contextmanager
    def unreadable(self) -> Iterator[None]:
        with self.subject.unreadable(self.request):
            yield

    def close(self) -> None:
        self.subject.end_all()


class LocalStage(FolderStage):
    def __init__(self, folder: Path) -> None:
        subject = LocalSubject(folder)
        super().__init__(subject, LocalPlatform(subject.provider, folder))


class SshStage(FolderStage):
    def __init__(self, folder: Path) -> None:
        subject = SshSubject(folder)
        super().__init__(subject, SshPlatform(subject.provider, SshSettings()))


class GceStage(PlatformStage):
    """`compute` acts for the user; the subject's own provider started the machine."""

    def __init__(self, folder: Path, subject: GceSubject | None = None) -> None:
        self.subject = subject or GceSubject(folder)
        self._oracle = Oracle("logging")
        self.logging = LoggingFake(self.subject.clock.now, self._watch)
        self.subject.compute.on_serial = self.logging.on_serial
        self.config = replace(
            self.subject.config, logging_endpoint=self.logging.url, resource_manager_endpoint="http://127.0.0.1:9"
        )
        self.request = self.subject.request()
        machine = self.subject.up(self.request)
        retry = Retry(monotonic=self.subject.clock.monotonic, sleep=self.subject.clock.advance)
        self.compute = Compute(self.config, retry, lambda: Credentials(token="a-token"))  # type: ignore[no-untyped-call]
        self.platform = GcePlatform(self.config, self.compute, DataPlaces(self.config, dict))
        self.ref = ref(self.request, machine.machine_id)

    def _watch(self, asked: Request, told: Response) -> None:
        self.subject.violations += self._oracle.check(asked, told)

    def write(self, data: bytes) -> None:
        self.subject.compute.append_serial(self.ref.name, self.ref.zone, data)

    def end(self) -> None:
        self.subject.provider.release(self.ref)
        self.subject.gone(self.request)

    @contextmanager
    def unreadable(self) -> Iterator[None]:
        away = {"error": {"code": 503, "message": "The service is currently unavailable.", "status": "UNAVAILABLE"}}
        self.logging.fail(*[Response(503, away)] * 10)
        with self.subject.all_unreadable():
            yield
        self.logging.forgive()

    def close(self) -> None:
        self.logging.close()
        self.subject.close()


class FakeStage(PlatformStage):
    def __init__(self) -> None:
        self.ref = MachineRef("local", "local-a", "m-a1", "id-1")
        event = PlatformEvent(AT, "1", "insert", "created by somebody", "somebody", "m-a1", "local-a")
        self.platform = self.fake = FakePlatform(consoles={"m-a1": b""}, log_service="the archive", events=[event])

    def write(self, data: bytes) -> None:
        self.fake.consoles["m-a1"] += data

    def end(self) -> None:
        self.fake.archives["m-a1"] = self.fake.consoles.pop("m-a1")

    @contextmanager
    def unreadable(self) -> Iterator[None]:
        self.fake.trouble = ProviderUnavailable("away")
        yield
        self.fake.trouble = None
