"""Several questions asked side by side, for a person who waits: what has answered in time counts, the rest is late.

Each question has a thread of its own, with the context of who asks, that nobody waits for at the end of this process:
what hangs in a connection must not keep the service from stopping.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """`error`: what was raised instead of a value. `late`: neither came in time."""

    value: Any = None
    error: Exception | None = None
    late: bool = False

    @property
    def good(self) -> bool:
        return self.error is None and not self.late


def ask_together(questions: Mapping[str, Callable[[], Any]], within_s: float) -> dict[str, Answer]:
    """The answers by name, in the order of the questions. Takes `within_s` seconds at most; raises nothing of
    theirs."""
    answers: dict[str, Answer] = {}
    threads = [
        threading.Thread(
            target=copy_context().run, args=(_ask, name, question, answers), name=f"ask {name}", daemon=True
        )
        for name, question in questions.items()
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    in_time = dict(answers)
    return {name: in_time.get(name, Answer(late=True)) for name in questions}


def _ask(name: str, question: Callable[[], Any], answers: dict[str, Answer]) -> None:
    try:
        answers[name] = Answer(question())
    except Exception as error:  # noqa: BLE001 - handed to who asked
        answers[name] = Answer(error=error)
