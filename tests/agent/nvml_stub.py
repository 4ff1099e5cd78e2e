"""Management libraries for tests: objects with functions of NVIDIA's names, and a missing library."""

from __future__ import annotations

from typing import Any

from supervisor.agent.machine.gpus import GpuReader

NOT_SUPPORTED, TIMEOUT, LOST = 3, 10, 15


class NvmlStub:
    """A library with as many cards as `minors`; functions that a test does not give are missing."""

    def __init__(self, minors: tuple[int, ...] = (0, 1), **more: Any) -> None:
        self.minors, self.inits = minors, 0
        self.__dict__.update(more)

    def nvmlInit_v2(self) -> int:  # noqa: N802 - NVIDIA's names
        self.inits += 1
        return 0

    def nvmlDeviceGetCount_v2(self, pointer: Any) -> int:  # noqa: N802
        pointer._obj.value = len(self.minors)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, pointer: Any) -> int:  # noqa: N802
        pointer._obj.value = 100 + index.value
        return 0 if index.value < len(self.minors) else 2

    def nvmlDeviceGetMinorNumber(self, card: Any, pointer: Any) -> int:  # noqa: N802
        pointer._obj.value = self.minors[card.value - 100]
        return 0


def temperature(card: Any, sensor: Any, pointer: Any) -> int:
    pointer._obj.value = card.value - 40
    return 0


def reader(library: Any, names: tuple[str, ...] | None = None, **more: Any) -> GpuReader:
    return GpuReader(names, lambda: library, **more)


def no_library() -> Any:
    raise OSError("libnvidia-ml.so.1: cannot open shared object file")
