"""A preemption as Google Compute Engine announces it: the metadata server's `instance/preempted` becomes TRUE.

Then, at once or 120 s later as the machine was made, the system is shut down, for which there are 30 s at best. The
value is read once before anything is waited for, since a wait ends with a change only; every wait names the value it
has seen, so nothing is missed between two. What is found is laid down as any other notice, in the machine's folder.
"""

from __future__ import annotations

import logging
from typing import Optional

from supervisor.agent.machine.machinefolder import MachineFolder
from supervisor.agent.store.metadata import MetadataServer
from supervisor.agent.store.site import Unreachable

PATH = "instance/preempted"
SHUTDOWN_S = 25.0  # of the 30 s at best between the system's shutdown and the end
WAIT_S = 60.0  # the server answers after it though nothing has changed
SPARE_S = 15.0
BETWEEN_S = 0.2  # two waits
AGAIN_S = 2.0  # after an error
_log = logging.getLogger("agent")


class PreemptionWatch:
    """`step` is repeated by a thread of its own."""

    def __init__(self, server: MetadataServer, folder: MachineFolder, notice_s: float) -> None:
        self._server = server
        self._folder = folder
        self._notice_s = notice_s
        self._etag = ""  # of the value that was seen last; "" = none yet
        self._failing = False

    def step(self) -> Optional[float]:
        """Wait for the notice; seconds until the next step, None once it was given."""
        try:
            value = self._look()
        except Unreachable as error:
            if not self._failing:
                _log.warning("the metadata server does not tell of preemptions: %s", error)
            self._failing = True
            return AGAIN_S
        self._failing = False
        if value.upper() != "TRUE":
            return BETWEEN_S if self._etag else AGAIN_S
        self._etag = ""  # should it fail, it is read again, not waited for
        self._folder.give_notice(self._notice_s + SHUTDOWN_S)
        return None

    def _look(self) -> str:
        wait = {"wait_for_change": "true", "last_etag": self._etag, "timeout_sec": "%d" % WAIT_S}
        value, self._etag = (
            self._server.text(PATH, wait, WAIT_S + SPARE_S) if self._etag else self._server.text(PATH)
        )
        return value
