"""From a claimed and restored machine to the start of the command: where it runs, and what it sees.

Everything that can be found missing before the command is found here, so that a training never begins on less than it
was promised. `Unfit` is the machine's or the bundle's fault, `NotStarted` (training.py) that of the command.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Dict, Mapping, Optional

from supervisor.agent.job import Job
from supervisor.agent.machinefolder import MachineFolder
from supervisor.agent.training import environment


class Unfit(Exception):
    """The command is not started on this machine. `left` is a word of heartbeat.LEFT; the text is for the beat."""

    def __init__(self, left: str, text: str) -> None:
        super().__init__(text)
        self.left = left


@dataclass(frozen=True)
class Workplace:
    cwd: str
    env: Dict[str, str]


def prepare(job: Job, folder: MachineFolder, secrets: Mapping[str, str], step: Optional[int]) -> Workplace:
    """`secrets`: name -> value. `step`: of the restored checkpoint. Raises Unfit, NotStarted, OSError."""
    contract = {
        "SPOT_RUN_ID": job.run_id,
        "SPOT_ATTEMPT": str(job.attempt),
        "SPOT_CHECKPOINT_DIR": folder.checkpoints,
        "SPOT_RESULTS_DIR": folder.results,
        "SPOT_PROGRESS_FILE": folder.progress,
        "SPOT_RESUMED_FROM_STEP": None if step is None else str(step),
        "SPOT_MACHINE": job.machine,
        "SPOT_MACHINE_DIR": folder.root,
    }
    env = environment(os.environ, {**job.env, **secrets}, contract, folder.python)
    return Workplace(job.workdir or folder.scratch, env)
