"""The provider of Colab before a client of the tests, claims in memory, and a clock that a test moves.

A notebook runs its cell as soon as it can: `paste` is the person, and `exec` of the client is its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from supervisor.domain.machines import Machine, MachineState
from supervisor.ports.claims import Claim
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable
from supervisor.providers.colab.client import STARTED, Client, Done
from supervisor.providers.colab.kept import Launches
from supervisor.providers.colab.provider import ColabProvider
from supervisor.providers.colab.settings import ColabSettings
from tests.fakes.colab_client import Account, run
from tests.fakes.notebook_claims import NotebookClaims
from tests.fakes.objectstore import MemoryStore
from tests.providers.gce_subject import TickingClock
from tests.providers.kubernetes_subject import SecretFiles

DAY, LOOKS = "2026-11-27", 20
TICKET = re.compile(r"ticket-\d+")
SETTINGS: dict[str, Any] = {"colab_ways": ("client", "cell"), "colab_shapes": ("cpu", "t4", "v5e1")}


class ColabSubject(SecretFiles):
    gpus = {"cpu": "", "t4": "T4", "v5e1": "TPU v5e1"}

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__()
        self.folder, self.clock, self.account = folder, TickingClock(), Account()
        self.objects, self.claims = MemoryStore(self.clock.now), NotebookClaims(self.clock.now)
        self.settings = ColabSettings(**{**SETTINGS, **settings})
        self.opens_at_once = True  # a notebook claims as soon as its cell runs
        self.cells: list[str] = []  # the code of each exec
        self.provider = self.fresh()

    def fresh(self) -> ColabProvider:
        """As after a restart of the supervisor: nothing is remembered."""
        return ColabProvider(
            "colab",
            self.settings,
            launches=Launches(self.objects, "colab"),
            claims=self.claims,
            client=Client(self.settings, self.folder, self._run) if self.settings.has_client else None,
            clock=self.clock,
            on=DAY,
            fill=lambda ticket, run_id: f"claim('{ticket}')\n",
        )

    def _run(self, argv: Sequence[str], within_s: float, code: str) -> Done:
        return Done(*run(argv[1:], code, self.account, self._kernel))

    def _kernel(self, name: str, code: str) -> str:
        self.cells.append(code)
        if self.opens_at_once:
            self.open(code)
        return STARTED

    def open(self, code: str, claimant: str = "") -> Claim:
        """A notebook runs this cell. Raises ClaimRefused."""
        found = TICKET.search(code)
        assert found is not None
        return self.claims.claim(found[0], claimant or f"notebook-{found[0]}", platform="colab")

    def paste(self, request: LaunchRequest, claimant: str = "") -> Claim:
        """A person copies the cell of this run, and runs it."""
        return self.open(self.provider.cell(request).text, claimant)

    def up(self, request: LaunchRequest) -> Machine:
        with suppress(ProviderUnavailable):
            self.provider.launch(request)
        listed = self.listed(request)
        if listed is not None and listed.needs:
            self.paste(request)
        return self.eventually(
            lambda: (m := self.listed(request)) and m.state is MachineState.UP and m, "the machine to be up"
        )

    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        for _ in range(LOOKS):
            result = condition()
            if result:
                return result
            self.clock.advance(2.0)
        raise AssertionError(f"waited in vain for {what}")

    @contextmanager
    def unreadable(self, request: LaunchRequest) -> Iterator[None]:
        """The client does not answer: what it made is unknown, and what a person opened is not."""
        assert request.placement.zone == "client"
        self.account.fails["sessions"] = "requests.exceptions.ConnectionError: Name or service not known"
        try:
            yield
        finally:
            del self.account.fails["sessions"]

    @contextmanager
    def all_unreadable(self) -> Iterator[None]:
        with self.claims.unreadable():
            yield
