"""The provider of Kaggle before the tests' Kaggle: its own client, sessions that only claim, a clock of a test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor.contract.stores.folder import FolderStore
from supervisor.objectstores.outputs import take
from supervisor.ports.claims import Claim, ClaimKey
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable
from supervisor.providers.kaggle.api import Api
from supervisor.providers.kaggle.fetching import Outputs
from supervisor.providers.kaggle.kernels import NOTHING, label_in, slug_of
from supervisor.providers.kaggle.provider import KaggleProvider
from supervisor.providers.kaggle.pushing import Origin
from supervisor.providers.kaggle.settings import KaggleSettings
from tests.contracts.provider_subject import Subject
from tests.kaggle.service import COMPLETE, TOKEN, USER, Kaggle, Version
from tests.providers.gce_subject import TickingClock

DAY, LOOKS, STEP_S = "2026-11-27", 60, 5.0
URL = "https://spot.example"
CAP_S = 30_600.0
SETTINGS: dict[str, Any] = {"kaggle_user": USER, "kaggle_shapes": ("t4", "cpu", "t4x2", "h100")}


class MemoryClaims:
    """Claims of ports/claims.py: a ticket is the text of its launch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self.made, self.away = now, dict[ClaimKey, Claim](), False

    def ticket(self, request: LaunchRequest, expires_at: float) -> str:
        return f"{request.run_id}/{request.launch_id}/{expires_at:.0f}"

    def all(self) -> Mapping[ClaimKey, Claim]:
        if self.away:
            raise ProviderUnavailable("the claims cannot be read")
        return dict(self.made)

    def drop(self, run_id: str, launch_id: str) -> None:
        self.made.pop((run_id, launch_id), None)

    def claim(self, ticket: str, **session: str) -> bool:
        """False: another session has it."""
        run_id, launch_id, expires_at = ticket.split("/")
        key, now = (run_id, launch_id), self._now()
        if key in self.made or now >= float(expires_at):
            return False
        self.made[key] = Claim(run_id, launch_id, session["id"] or "anonymous", session, now, now)
        return True

    def seen(self, run_id: str, launch_id: str) -> None:
        key = (run_id, launch_id)
        self.made[key] = replace(self.made[key], seen_at=self._now())


class ClaimingSessions:
    """A session that claims its job when it starts, and does nothing else. `network`: to the supervisor. `says_id`:
    whether it knows its id. `reports` False: it hangs before the claim."""

    def __init__(self, claims: MemoryClaims) -> None:
        self.claims, self.network, self.says_id, self.reports = claims, True, True, True
        self.kaggle: Kaggle

    def begin(self, version: Version) -> None:
        ticket = re.search(r'^TICKET = "(.*?)"', version.code, flags=re.MULTILINE)
        assert ticket is not None
        if not (version.internet and self.network):
            version.printed += f"{NOTHING}{URL}: <urlopen error [Errno -3]>. The session has no network to it\n"
            self.kaggle.end(version, COMPLETE)
        elif self.reports and not self.claims.claim(ticket[1], id=str(version.session_id) if self.says_id else ""):
            self.kaggle.end(version, COMPLETE)

    def cancel(self, version: Version) -> None:
        pass


class KaggleSubject(Subject):
    gpus = {"t4": "T4", "cpu": "", "t4x2": "2 × T4", "h100": "H100"}

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__()
        self.folder, self.clock = folder, TickingClock()
        self.claims = MemoryClaims(self.clock.now)
        self.sessions = ClaimingSessions(self.claims)
        self.kaggle = self.sessions.kaggle = Kaggle(self.clock.now, self.sessions)
        self.settings = KaggleSettings(**{**SETTINGS, "kaggle_token": self.keep_secret(TOKEN), **settings})
        self.agent = folder / "agent.pyz"
        self.agent.write_bytes(b"an agent")
        self.objects: Any = FolderStore.create(folder / "objects")
        self._opened: list[KaggleProvider] = []
        self.provider = self.fresh()

    def fresh(self) -> KaggleProvider:
        """As after a restart of the supervisor: nothing is remembered."""
        api = Api(USER, self.settings.kaggle_token, self.clock.now, self.kaggle.wire)
        outputs = Outputs(
            api, self.objects, take, parts=self.folder / "parts", now=self.clock.now, begin=lambda slug, work: work()
        )
        provider = KaggleProvider(
            "kaggle",
            self.settings,
            api,
            outputs=outputs,
            claims=self.claims,
            origin=Origin(lambda: self.agent, URL),
            on=DAY,
            now=self.clock.now,
        )
        self._opened.append(provider)
        return provider

    def close(self) -> None:
        for provider in self._opened:
            provider.close()
        assert self.kaggle.violations == []

    def step(self, seconds: float = STEP_S) -> None:
        self.clock.advance(seconds)
        self.kaggle.step()

    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        for _ in range(LOOKS):
            self.kaggle.step()
            result = condition()
            if result:
                return result
            self.clock.advance(STEP_S)
        raise AssertionError(f"waited in vain for {what}")

    def version(self, request: LaunchRequest, number: int = 0) -> Version:
        """0 = the newest."""
        return self.kaggle.version(slug_of(request.name), number)

    @contextmanager
    def unreadable(self, request: LaunchRequest) -> Iterator[None]:
        version = self.version(request)
        assert label_in(version.source) is not None
        version.unreadable = True
        try:
            yield
        finally:
            version.unreadable = False

    def all_unreadable(self) -> AbstractContextManager[None]:
        return self.kaggle.gone_away()

    def keep_secret(self, value: str) -> str:
        path = self.folder / f"secret-{value[:4].strip()}"
        path.write_text(value + "\n")
        path.chmod(0o600)
        return f"file:{path}"

    def spoil_secret(self, reference: str, spoilt: bool = True) -> None:
        Path(reference.removeprefix("file:")).chmod(0o644 if spoilt else 0o600)
