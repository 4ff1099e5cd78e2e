"""The clock of this computer. Its monotonic side stands still while the computer sleeps and its wall side does not:
the difference is how the loop learns that it has been blind for a while."""

from __future__ import annotations

import time


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
