"""The house on Google Cloud for random weather: the same one, made repeatable, and with more ways for it to die.

Threads of the provider run one after the other, so that a seed tells the same story again; tokens can be refused and
are fetched anew; the supervisor may be killed before, between or after what it does. `watch` looks after every turn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from google.oauth2.credentials import Credentials

from tests.acceptance.cloud_house import CloudHouse
from tests.acceptance.weather_wire import wired
from tests.cloud import storage
from tests.scenarios.fault_points import AtOnce, SupervisorDied


class Renewable(Credentials):
    """A token that Google may refuse one day, and a next one."""

    def __init__(self) -> None:
        super().__init__("ya29.first")
        self._count = 0

    def refresh(self, request: object) -> None:
        self._count += 1
        self.token = f"ya29.{self._count}"


class InTurn(AtOnce):
    """An executor in the caller's thread."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


class WeatherHouse(CloudHouse):
    """`look`: called after every turn."""

    def __init__(self, folder: Path, seed: int, **config: Any) -> None:
        self.look: Callable[[], None] = lambda: None
        random.seed(seed)  # the pauses between repeats
        names = random.Random(seed)
        self.patches = [
            patch("secrets.token_hex", lambda count=16: names.randbytes(count).hex()),
            patch("supervisor.providers.gce.provider.ThreadPoolExecutor", InTurn),
            patch("tests.acceptance.cloud_house.Credentials", lambda _: Renewable()),
        ]
        self.page: Any = None
        for one in self.patches:
            one.start()
        super().__init__(folder, config, overlap=1e9)

    def _set_up(self) -> None:
        servers = {one.server.host: one.server for one in (self.compute, self.storage)}
        self.patches.append(wired(servers, self._pause))
        self.patches[-1].start()
        super()._set_up()

    def close(self) -> None:
        self.short_pages(False)
        for one in self.patches:
            one.stop()
        # What is no JSON was put into the way by the weather itself.
        told = self.cloud.violations
        self.cloud.violations = [one for one in told if not one.endswith("None is no error of Google's form")]
        super().close()

    def _run_due(self) -> None:
        super()._run_due()
        self.look()

    def short_pages(self, short: bool) -> None:
        """Two rows a page, of machines and of objects."""
        self.compute.page_rows = 2 if short else 500
        if self.page is not None:
            self.page.stop()
        self.page = patch.object(storage, "MAX_PAGE", 2) if short else None
        if self.page is not None:
            self.page.start()

    # --- how the supervisor dies --------------------------------------------------------------------------------------

    def dies_after(self, actions: int) -> None:
        """The next time it acts: so many actions are done, and the others never."""
        own = self.supervisor
        if own is None:
            return
        later = own.later

        def drain() -> None:
            for _ in range(actions):
                if later.calls:
                    later.calls.pop(0)()
            raise SupervisorDied

        later.drain = drain  # type: ignore[method-assign]

    def dies_in(self, method: str, before: bool) -> None:
        """In the next call of launch or release: before the first request, or after the last."""
        real = self.provider.real
        call = getattr(real, method)

        def dying(*args: Any) -> Any:
            if not before:
                try:
                    call(*args)
                except Exception as error:
                    raise SupervisorDied from error
            raise SupervisorDied

        setattr(real, method, dying)
