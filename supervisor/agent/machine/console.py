"""The agent's own words on its standard error, which the provider keeps: masked with their tracebacks.

Errors that nobody caught go the same way, whichever thread they end: Python's own hooks know no masks.
"""

from __future__ import annotations

import logging
import sys
import threading
from types import TracebackType
from typing import Optional, Type

from supervisor.agent.machine.masking import NOTHING, Masker

_FORM = "%(asctime)s %(levelname)s %(threadName)s: %(message)s"
_log = logging.getLogger("agent")


class MaskingFormatter(logging.Formatter):
    def __init__(self, masker: Masker, form: str = _FORM) -> None:
        super().__init__(form)
        self._masker = masker

    def format(self, record: logging.LogRecord) -> str:
        return self._masker.text(super().format(record))


def open_console(masker: Masker = NOTHING) -> None:
    """Once at the start, and again when there is something to mask."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskingFormatter(masker))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread


def _uncaught(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
    _log.critical("the agent ends by an error of its own", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and args.exc_type is not SystemExit:
        _log.critical(
            "a thread ended by an error", exc_info=(args.exc_type, args.exc_value, args.exc_traceback)
        )
