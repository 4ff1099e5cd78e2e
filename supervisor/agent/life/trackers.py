"""Experiment trackers go on with the run of an earlier attempt: the variables that they read at their start.

What the run or the service has set stays, and a tracker of which they have set something else is left alone. Nothing
here is needed by a training without a tracker, and nothing is loaded or asked for it.

- Weights & Biases: `WANDB_RUN_ID` with `WANDB_RESUME=allow` (wandb/sdk/wandb_settings.py: each setting has a variable).
  It drops rows with a step that it has already. `SPOT_TRACKER=rewind` cuts them off instead (`WANDB_RESUME_FROM`),
  which few of its accounts may do. Offline, its files are results: they are sent later.
- MLflow has no run of an id that it did not make itself. So its runs get a tag (`MLFLOW_RUN_CONTEXT`), and before a
  later attempt the command's Python looks for it where `MLFLOW_TRACKING_URI` says. Exactly one run with it gives
  `MLFLOW_RUN_ID`. It cannot rewind.
- Trackio and TensorBoard write into the results, which are restored as they were at the checkpoint: that rewinds them.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
from typing import Dict, Mapping, Optional

from supervisor.agent.facts.attempt_facts import python_of
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.job import Job

WORD = "SPOT_TRACKER"  # in the run's `env`: off, rewind, or anything else for the default
OFF, REWIND = "off", "rewind"
TRACKER_FOLDERS = ("tensorboard", "trackio", "wandb")  # in the results; they are no proof that the work is done
MLFLOW_TAG = "spot.run"
ASK_S, ID_CHARS = 60.0, 64  # a full machine needs 30 s to load MLflow; a dead server ends it sooner
_ASK = "import spot_trackers; print(spot_trackers.mlflow_run_id() or '')"
_IMPATIENT = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
_log = logging.getLogger("agent")


def tracker_env(env: Mapping[str, str], job: Job, folder: MachineFolder, step: Optional[int]) -> Dict[str, str]:
    """Variables for `env`, the environment of the command; none that is there already. `step`: of the restored
    checkpoint, None = nothing was restored."""
    if _word(env) == OFF or not job.tracker_id:
        return {}
    added = _wandb(env, job, folder.results, step)
    added["TENSORBOARD_LOGGING_DIR"] = os.path.join(folder.results, "tensorboard")
    if not any(env.get(name) for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")):
        added["TRACKIO_DIR"] = os.path.join(folder.results, "trackio")
    tags = {MLFLOW_TAG: job.tracker_id, "spot.group": job.group}
    added["MLFLOW_RUN_CONTEXT"] = json.dumps({name: value for name, value in tags.items() if value})
    return {name: value for name, value in added.items() if name not in env}


def _word(env: Mapping[str, str]) -> str:
    return env.get(WORD, "").strip().lower()


def _wandb(env: Mapping[str, str], job: Job, results: str, step: Optional[int]) -> Dict[str, str]:
    """None where the run does something of its own: a fork, a sweep, another mode of resuming."""
    if any(name in env for name in ("WANDB_FORK_FROM", "WANDB_RESUME_FROM", "WANDB_SWEEP_ID")):
        return {}
    added: Dict[str, str] = {} if job.group is None else {"WANDB_RUN_GROUP": job.group}
    is_offline = env.get("WANDB_MODE") in ("offline", "dryrun")
    if is_offline:
        # Its file is cut at a checkpoint, and by default 15 s of rows are not in it yet.
        added.update({"WANDB_DIR": results, "WANDB__TRANSACTION_LOG_FLUSH_INTERVAL": "1"})
    if env.get("WANDB_RESUME", "allow") != "allow":
        return added
    tracker_id = added["WANDB_RUN_ID"] = env.get("WANDB_RUN_ID") or str(job.tracker_id)
    if _word(env) == REWIND and step is not None and "WANDB_RESUME" not in env and not is_offline:
        added["WANDB_RESUME_FROM"] = "%s?_step=%d" % (tracker_id, step)  # it refuses both this and WANDB_RESUME
    else:
        added["WANDB_RESUME"] = "allow"
    return added


def mlflow_run(env: Mapping[str, str], job: Job, cwd: str) -> Dict[str, str]:
    """The variable of the MLflow run that earlier attempts have made; nothing where there is none, or several, or
    nobody can say. Takes as long as the command's Python takes to load MLflow, at most ASK_S."""
    is_later = job.attempt > 1 and job.tracker_id and _word(env) != OFF
    python = python_of(job.command, cwd, env)
    if not is_later or not env.get("MLFLOW_TRACKING_URI") or env.get("MLFLOW_RUN_ID") or python is None:
        return {}
    try:
        done = subprocess.run(
            [python, "-c", _ASK],
            cwd=cwd,
            env={**_IMPATIENT, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("MLflow was not asked for the run of earlier attempts: %s", error)
        return {}
    run_id = done.stdout.decode("ascii", "replace").strip().rpartition("\n")[2]
    if done.returncode == 0 and run_id.isalnum() and len(run_id) <= ID_CHARS:
        return {"MLFLOW_RUN_ID": run_id}
    why = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2] if done.returncode else "none, or several"
    _log.info("MLflow names no run of earlier attempts: %s", why[:200])
    return {}
