"""Common parts of the agent's unit tests: a manual clock, a job, a held baton."""

from pathlib import Path
from typing import Any

from supervisor.agent.machine.job import Job
from supervisor.agent.machine.processes import Identity
from supervisor.agent.store.access import BatonKeeper, Retrier
from supervisor.contract import baton as rules
from supervisor.contract import runfiles
from supervisor.contract.stores.folder import FolderStore
from tests.agent.failing_store import FailingStore

IDENTITY = Identity("b" * 32, 100, 200)
HOLDER = ("1.1.1", IDENTITY.machine_id)
RUN = "digits-7"


class ManualClock:
    """Monotonic seconds; `sleep` advances them at once and calls `on_sleep`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.on_sleep: Any = lambda: None

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()


def job(**changes: Any) -> Job:
    made = Job(
        machine="spot-1",
        run_id=RUN,
        attempt=1,
        launch_id="1.1.1",
        nonce="secret",
        store_url="file:///x",
        command="true",
    )
    return made._replace(**changes)


def store_in(folder: Path) -> FailingStore:
    return FailingStore(FolderStore.create(folder / "objects"))


def held(store: FailingStore) -> BatonKeeper:
    """A baton that HOLDER holds."""
    baton = rules.raise_next(rules.create("sup-1", 1), HOLDER[0], "secret", False)
    store.inner.put(runfiles.baton(RUN), rules.encode(rules.claim(baton, *HOLDER, 0.0)))
    return BatonKeeper(store, RUN, *HOLDER)


def patient(clock: ManualClock, until: float = 1e9) -> Retrier:
    return Retrier(lambda: clock.now >= until, monotonic=clock, sleep=clock.sleep)
