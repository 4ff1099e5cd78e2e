"""GPUs by NVIDIA's library: a stub with the same names, and a C library with the same structures."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.machine.gpus import GpuReader
from supervisor.agent.machine.nvml import Nvml, NvmlFailed
from supervisor.contract.beat_telemetry import Gpus
from tests.agent.nvml_library import build
from tests.agent.nvml_stub import LOST, TIMEOUT, NvmlStub, no_library, reader, temperature


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of its own for each test: the library remembers which errors it has reported."""
    monkeypatch.setenv("FAKE_NVML_CARDS", "2")
    return ctypes.CDLL(str(build(tmp_path)))


def test_a_real_library_is_called_as_nvml_h_says(compiled: Any) -> None:
    gpu_reader = reader(compiled)
    assert gpu_reader.read() == Gpus(
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
    again = gpu_reader.read()
    assert again is not None
    assert again.last_xid == (None, 79)
    third = gpu_reader.read()
    assert third is not None
    assert third.last_xid == (None, 79)  # it stays the last one


def test_cards_are_found_by_uuid_too(compiled: Any) -> None:
    figures = reader(compiled, ("GPU-fake-1",)).read()
    assert figures is not None
    assert figures.util_pct == (91.0,)
    mixed = reader(compiled, ("GPU-fake-1", "GPU-strange", "0"))
    figures = mixed.read()
    assert figures is not None
    assert figures.util_pct == (91.0, None, 90.0)
    assert mixed.count() == (2, "GPU GPU-strange: nvmlDeviceGetHandleByUUID: not found")


def test_a_function_that_is_missing_is_a_figure_that_is_absent() -> None:
    assert reader(NvmlStub(nvmlDeviceGetTemperature=temperature)).read() == Gpus(temperature_c=(60, 61))
    assert reader(NvmlStub()).read() is None


def test_an_older_driver_is_read_by_its_own_names() -> None:
    def memory(card: Any, pointer: Any) -> int:
        pointer._obj.total, pointer._obj.used = 24 << 30, 3 << 30
        return 0

    def reasons(card: Any, pointer: Any) -> int:
        pointer._obj.value = 4
        return 0

    figures = reader(
        NvmlStub((0,), nvmlDeviceGetMemoryInfo=memory, nvmlDeviceGetCurrentClocksThrottleReasons=reasons)
    ).read()
    assert figures == Gpus(memory_used_mib=(3072,), memory_total_mib=(24576,), clock_reasons=(4,))


def test_a_lost_card_is_shown_and_the_others_are_read() -> None:
    def use(card: Any, pointer: Any) -> int:
        pointer._obj.gpu = 50
        return LOST if card.value == 100 else 0

    figures = reader(NvmlStub(nvmlDeviceGetUtilizationRates=use, nvmlDeviceGetTemperature=temperature)).read()
    assert figures == Gpus(util_pct=(None, 50.0), temperature_c=(60, 61), lost=(1.0, None))


def test_errors_of_a_card_are_collected_without_waiting() -> None:
    events_left = [(101, 31), (100, 48), (101, 94)]
    waits = []

    def create(pointer: Any) -> int:
        pointer._obj.value = 7
        return 0

    def wait(events: Any, pointer: Any, milliseconds: Any) -> int:
        waits.append(milliseconds.value)
        if not events_left:
            return TIMEOUT
        pointer._obj.device, pointer._obj.data = events_left.pop(0)
        return 0

    duck = NvmlStub(
        nvmlEventSetCreate=create, nvmlDeviceRegisterEvents=lambda *_: 0, nvmlEventSetWait_v2=wait,
        nvmlDeviceGetTemperature=temperature,
    )  # fmt: skip
    assert reader(duck).read() == Gpus(temperature_c=(60, 61), last_xid=(48, 94))
    assert set(waits) == {0}


def test_an_endless_flood_of_errors_does_not_delay_a_beat() -> None:
    def create(pointer: Any) -> int:
        pointer._obj.value = 7
        return 0

    def wait(events: Any, pointer: Any, milliseconds: Any) -> int:
        pointer._obj.device, pointer._obj.data = 100, 62
        return 0

    duck = NvmlStub((0,), nvmlEventSetCreate=create, nvmlDeviceRegisterEvents=lambda *_: 0, nvmlEventSetWait_v2=wait)
    assert reader(duck).read() == Gpus(last_xid=(62,))


def test_the_library_is_opened_once_and_where_it_is_missing_again_a_minute_later() -> None:
    duck, now, tries = NvmlStub(nvmlDeviceGetTemperature=temperature), [0.0], []

    def load() -> Any:
        tries.append(now[0])
        return no_library() if len(tries) == 1 else duck

    gpu_reader = GpuReader(None, load, monotonic=lambda: now[0])
    assert gpu_reader.read() is None
    now[0] = 59.0
    assert gpu_reader.read() is None
    now[0] = 61.0
    assert gpu_reader.read() == Gpus(temperature_c=(60, 61))
    assert gpu_reader.read() == Gpus(temperature_c=(60, 61))
    assert (tries, duck.inits) == ([0.0, 61.0], 1)
    assert gpu_reader.latest(30.0) == Gpus(temperature_c=(60, 61))
    now[0] = 92.0
    assert gpu_reader.latest(30.0) is None, "a driver that hangs shows old figures"
    assert GpuReader(None, load).latest(30.0) is None


def test_a_driver_that_does_not_start_is_reported() -> None:
    with pytest.raises(NvmlFailed, match="nvmlInit_v2: the driver is not loaded"):
        Nvml(NvmlStub(nvmlInit_v2=lambda: 9))
    assert reader(NvmlStub(nvmlInit_v2=lambda: 9)).count() == (0, "nvmlInit_v2: the driver is not loaded")


def test_an_xid_of_the_hardware_is_not_covered_by_what_follows_it() -> None:
    nvml = Nvml(NvmlStub())
    xids: list[int] = [79, 45, 43]

    class Events(NvmlStub):
        def nvmlEventSetWait_v2(self, events: object, event: object, wait: object) -> int:  # noqa: N802
            if not xids:
                return 10
            event._obj.device, event._obj.data = 1, xids.pop(0)  # type: ignore[attr-defined]
            return 0

    nvml._library, nvml._events = Events(), nvml.card("0")
    nvml._collect_xids()
    assert nvml._xids == {1: 79}
    xids.append(48)
    nvml._collect_xids()
    assert nvml._xids == {1: 48}
