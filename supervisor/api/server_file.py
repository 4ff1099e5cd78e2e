"""server.json: how the command line and the agents find this process. Written whole, written again when somebody has
taken it away, and gone after a clean end."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from types import TracebackType

from supervisor.settings.serving_process import this_process
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)


class ServerFile:
    """There while the `with` block runs. Raises OSError on entry only."""

    def __init__(self, path: Path, address: str) -> None:
        self._path = path
        self._text = json.dumps({"url": address, **this_process().as_record()})

    def __enter__(self) -> ServerFile:
        self._write()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._path.unlink(missing_ok=True)

    def keep(self) -> None:
        """Write it again where it is missing; a file that cannot be written now is tried at the next call."""
        if self._path.exists():
            return
        try:
            self._write()
        except OSError as error:
            log.warning("no server file", extra={telemetry.ACTION: "serve", telemetry.ERROR: str(error)})

    def _write(self) -> None:
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(self._text)
        os.replace(draft, self._path)
