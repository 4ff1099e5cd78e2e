"""The systemd unit: a restart of the service leaves trainings alone, and systemd hears what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from supervisor.settings import loading as settings
from supervisor.wiring import settings as wired
from tests.acceptance.stories import STORY, Stories
from tests.deploy.systemd import UNIT, Service, read_unit
from tests.waiting import wait_for

TEXT = UNIT.read_text()


@contextmanager
def serving(tmp_path: Path, text: str = TEXT) -> Iterator[tuple[Service, Stories]]:
    service = Service(tmp_path / "data", dict(STORY), read_unit(text))
    try:
        service.start()
        yield service, Stories(service, tmp_path)
    finally:
        service.close()


def test_a_restart_leaves_the_training_alive(tmp_path: Path) -> None:
    with serving(tmp_path) as (service, stories):
        stories.train("digits-7")
        before = stories.trains("digits-7")["progress"]["step"]
        training, main = stories.training_pids("digits-7"), service.pid
        service.restart()
        assert service.pid != main
        stories.trains("digits-7", beyond=before)
        assert stories.training_pids("digits-7") == training
        assert stories.lives("digits-7") == [(1, 0)]
        stories.completes("digits-7")
        heard = service.heard()
        assert heard.count("READY=1") == 2
        assert heard.index("READY=1") < heard.index("STOPPING=1")
        assert f"MAINPID={service.pid}" in heard


def test_a_unit_that_ends_everything_is_seen(tmp_path: Path) -> None:
    """The same restart by a unit without our KillMode: the first training does not survive it."""
    with serving(tmp_path, TEXT.replace("KillMode=process\n", "")) as (service, stories):
        stories.train("digits-7")
        stories.trains("digits-7")
        training = stories.training_pids("digits-7")
        service.restart()
        stories.until(lambda: len(stories.lives("digits-7")) == 2, 60, "a second life")
        assert not set(training) & set(stories.training_pids("digits-7"))
        stories.completes("digits-7")


def test_the_watchdog_is_fed(tmp_path: Path) -> None:
    with serving(tmp_path, TEXT.replace("WatchdogSec=120", "WatchdogSec=1")) as (service, _):
        wait_for(lambda: service.heard().count("WATCHDOG=1") >= 2, 30, "the watchdog to be fed twice")


def test_what_the_unit_promises() -> None:
    unit = read_unit(TEXT)
    service = unit["Service"]
    assert (service["Type"], service["Restart"], service["KillMode"]) == ("notify", "always", "process")
    assert service["ExecStart"].endswith("/bin/spot serve")
    assert unit["Unit"]["StartLimitIntervalSec"] == "0", "it is started again however often it ends"
    # The loop may be late by three polls before readiness tells; the watchdog must not be quicker than that.
    poll_interval_s = settings.Settings(data_dir=Path("/")).knobs.poll_interval_s
    assert float(service["WatchdogSec"]) > 3 * poll_interval_s
    assert float(service["TimeoutStopSec"]) > 5, "the supervisor ends within five seconds"
    for name in (one.partition("=")[0] for one in service["Environment"].split()):
        known = {settings.env_name(field) for field in wired.load({}, {"HOME": "/h"}).flat}
        assert name in known or name == "PYTHONUNBUFFERED"


def test_nothing_of_the_unit_keeps_a_training_from_its_work() -> None:
    """Children of the service live under the same limits: a private /tmp or no devices would break them, or part a
    training that outlives a restart from its supervisor."""
    refused: dict[str, Callable[[str], bool]] = {
        "PrivateTmp": lambda value: value != "no",
        "PrivateDevices": lambda value: value != "no",
        "PrivateNetwork": lambda value: value != "no",
        "DynamicUser": lambda value: value != "no",
        "MemoryDenyWriteExecute": lambda value: value != "no",
        "SystemCallFilter": bool,
        "RuntimeMaxSec": bool,
        "MemoryMax": bool,
        "TasksMax": bool,
    }
    service = read_unit(TEXT)["Service"]
    assert [name for name, breaks in refused.items() if name in service and breaks(service[name])] == []
