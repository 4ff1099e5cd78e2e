"""Threads for what is asked of others: object stores, clouds, receivers of alerts.

They may take seconds, or hang until their time is over. The threads that answer from the database are few and shared by
all requests: were they lent to this, too, sixty pages that show a log would stop the whole server while the store of
its bytes is slow. Who finds none free here waits without holding one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

MOST = 16
_LIMITER: RunVar[CapacityLimiter] = RunVar("asking others")  # of the event loop
Given = ParamSpec("Given")
Found = TypeVar("Found")


async def in_slow_thread(work: Callable[Given, Found], *args: Given.args, **named: Given.kwargs) -> Found:
    """As starlette's run_in_threadpool."""
    limiter = _LIMITER.get(None)
    if limiter is None:
        _LIMITER.set(limiter := CapacityLimiter(MOST))
    return await to_thread.run_sync(partial(work, *args, **named), limiter=limiter)
