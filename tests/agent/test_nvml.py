"""GPUs by NVIDIA's library: a duck with the same names, and a library of C with the same structures."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.machine.gpus import GpuReader
from supervisor.agent.machine.nvml import Nvml, NvmlFailed
from supervisor.contract.beat_telemetry import Gpus
from tests.agent.nvml_duck import LOST, TIMEOUT, Duck, no_library, reader, temperature
from tests.agent.nvml_library import build


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of its own for each test: the library remembers which errors it has told."""
    monkeypatch.setenv("FAKE_NVML_CARDS", "2")
    return ctypes.CDLL(str(build(tmp_path)))


def test_a_real_library_is_called_as_nvml_h_says(compiled: Any) -> None:
    found = reader(compiled)
    assert found.read() == Gpus(
        util_pct=(90.0, 91.0),
        memory_used_mib=(20000, 20001),
        memory_total_mib=(24576, 24576),
        sm_clock_mhz=(1800, 1800),
        sm_clock_max_mhz=(2040, 2040),
        power_w=(71.234, None),  # this card has no such reading, which is not 0 W
        power_limit_w=(72.0, None),
        temperature_c=(71, 72),
        clock_reasons=(0x40, 0x4),
        ecc_uncorrected=(0, None),
        last_xid=(None, 13),
    )
    again = found.read()
    assert again is not None
    assert again.last_xid == (None, 79)
    third = found.read()
    assert third is not None
    assert third.last_xid == (None, 79)  # it stays the last one


def test_cards_are_found_by_uuid_too(compiled: Any) -> None:
    one = reader(compiled, ("GPU-fake-1",)).read()
    assert one is not None
    assert one.util_pct == (91.0,)
    mixed = reader(compiled, ("GPU-fake-1", "GPU-strange", "0"))
    told = mixed.read()
    assert told is not None
    assert told.util_pct == (91.0, None, 90.0)
    assert mixed.count() == (2, "GPU GPU-strange: nvmlDeviceGetHandleByUUID: not found")


def test_a_function_that_is_missing_is_a_figure_that_is_absent() -> None:
    assert reader(Duck(nvmlDeviceGetTemperature=temperature)).read() == Gpus(temperature_c=(60, 61))
    assert reader(Duck()).read() is None


def test_an_older_driver_is_read_by_its_own_names() -> None:
    def memory(card: Any, found: Any) -> int:
        found._obj.total, found._obj.used = 24 << 30, 3 << 30
        return 0

    def reasons(card: Any, found: Any) -> int:
        found._obj.value = 4
        return 0

    told = reader(Duck((0,), nvmlDeviceGetMemoryInfo=memory, nvmlDeviceGetCurrentClocksThrottleReasons=reasons)).read()
    assert told == Gpus(memory_used_mib=(3072,), memory_total_mib=(24576,), clock_reasons=(4,))


def test_a_card_that_is_lost_is_told_and_the_others_are_read() -> None:
    def use(card: Any, found: Any) -> int:
        found._obj.gpu = 50
        return LOST if card.value == 100 else 0

    told = reader(Duck(nvmlDeviceGetUtilizationRates=use, nvmlDeviceGetTemperature=temperature)).read()
    assert told == Gpus(util_pct=(None, 50.0), temperature_c=(60, 61), lost=(1.0, None))


def test_errors_of_a_card_are_collected_without_waiting() -> None:
    told = [(101, 31), (100, 48), (101, 94)]
    waits = []

    def create(found: Any) -> int:
        found._obj.value = 7
        return 0

    def wait(events: Any, found: Any, milliseconds: Any) -> int:
        waits.append(milliseconds.value)
        if not told:
            return TIMEOUT
        found._obj.device, found._obj.data = told.pop(0)
        return 0

    duck = Duck(
        nvmlEventSetCreate=create, nvmlDeviceRegisterEvents=lambda *_: 0, nvmlEventSetWait_v2=wait,
        nvmlDeviceGetTemperature=temperature,
    )  # fmt: skip
    assert reader(duck).read() == Gpus(temperature_c=(60, 61), last_xid=(48, 94))
    assert set(waits) == {0}


def test_an_endless_flood_of_errors_does_not_hold_up_a_beat() -> None:
    def create(found: Any) -> int:
        found._obj.value = 7
        return 0

    def wait(events: Any, found: Any, milliseconds: Any) -> int:
        found._obj.device, found._obj.data = 100, 62
        return 0

    duck = Duck((0,), nvmlEventSetCreate=create, nvmlDeviceRegisterEvents=lambda *_: 0, nvmlEventSetWait_v2=wait)
    assert reader(duck).read() == Gpus(last_xid=(62,))


def test_the_library_is_opened_once_and_where_it_is_missing_again_a_minute_later() -> None:
    duck, now, tries = Duck(nvmlDeviceGetTemperature=temperature), [0.0], []

    def load() -> Any:
        tries.append(now[0])
        return no_library() if len(tries) == 1 else duck

    found = GpuReader(None, load, monotonic=lambda: now[0])
    assert found.read() is None
    now[0] = 59.0
    assert found.read() is None
    now[0] = 61.0
    assert found.read() == Gpus(temperature_c=(60, 61))
    assert found.read() == Gpus(temperature_c=(60, 61))
    assert (tries, duck.inits) == ([0.0, 61.0], 1)


def test_a_driver_that_does_not_begin_is_told() -> None:
    with pytest.raises(NvmlFailed, match="nvmlInit_v2: the driver is not loaded"):
        Nvml(Duck(nvmlInit_v2=lambda: 9))
    assert reader(Duck(nvmlInit_v2=lambda: 9)).count() == (0, "nvmlInit_v2: the driver is not loaded")


def test_an_xid_of_the_hardware_is_not_covered_by_what_follows_it() -> None:
    found = Nvml(Duck())
    told: list[int] = [79, 45, 43]

    class Events(Duck):
        def nvmlEventSetWait_v2(self, events: object, event: object, wait: object) -> int:  # noqa: N802
            if not told:
                return 10
            event._obj.device, event._obj.data = 1, told.pop(0)  # type: ignore[attr-defined]
            return 0

    found._library, found._events = Events(), found.card("0")
    found._collect_xids()
    assert found._xids == {1: 79}
    told.append(48)
    found._collect_xids()
    assert found._xids == {1: 48}
