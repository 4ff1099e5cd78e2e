"""One line for trackers that no variable lets go on in the run of an earlier attempt (docs/trackers.md):

    mlflow.start_run(run_id=spot_trackers.mlflow_run_id())
    trackio.init(project="digits", **spot_trackers.trackio())
    wandb.init(project="digits", **spot_trackers.wandb("fold-3"))

and one for a tracker that cannot rewind:

    if step > spot_trackers.mlflow_last_step(run.info.run_id, "loss"): ...

The agent puts this module beside `spot_progress` on the training's PYTHONPATH. Without SPOT_TRACKER_ID every call says
that there is nothing to go on with, so the same script runs anywhere.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Dict, Optional


def mlflow_run_id() -> Optional[str]:
    """The MLflow run of earlier attempts of this run, for `mlflow.start_run(run_id=...)`. None: there is none yet, or
    there are several. Where MLFLOW_TRACKING_URI names the store, MLFLOW_RUN_ID is set already; this is for a store that
    the script chooses itself, and asks that one. It finds the tag that MLFLOW_RUN_CONTEXT gives to each new run."""
    tracker_id = os.environ.get("SPOT_TRACKER_ID")
    if not tracker_id:
        return None
    mlflow: Any = importlib.import_module("mlflow")
    runs = mlflow.search_runs(
        search_all_experiments=True, filter_string="tags.`spot.run` = '%s'" % tracker_id, output_format="list"
    )
    ids = [run.info.run_id for run in runs if "mlflow.parentRunId" not in run.data.tags]
    return ids[0] if len(ids) == 1 else None


def mlflow_last_step(run_id: Optional[str], metric: str) -> int:
    """The last step that this MLflow run has of the metric, -1 for none. MLflow cannot rewind: log later steps only."""
    mlflow: Any = importlib.import_module("mlflow")
    history = mlflow.MlflowClient().get_metric_history(run_id, metric) if run_id else []
    return max((point.step for point in history), default=-1)


def wandb(part: str) -> Dict[str, Any]:
    """For a command that starts several runs: `wandb.init(project="digits", **spot_trackers.wandb("fold-3"))`. Each
    part goes on in its own run, and all are one group. A single run needs no line. Not with SPOT_TRACKER=rewind."""
    tracker_id = os.environ.get("SPOT_TRACKER_ID")
    if not tracker_id:
        return {}
    group = os.environ.get("SPOT_GROUP") or tracker_id
    return {"id": "%s-%s" % (tracker_id, part), "name": part, "resume": "allow", "group": group}


def trackio(part: str = "") -> Dict[str, Any]:
    """For `trackio.init(project="digits", **spot_trackers.trackio())`: an attempt goes on in the run of the one before.
    `part`: of a command that starts several runs."""
    tracker_id = os.environ.get("SPOT_TRACKER_ID")
    if not tracker_id:
        return {}
    name = "%s-%s" % (tracker_id, part) if part else tracker_id
    return {"name": name, "resume": "allow", "group": os.environ.get("SPOT_GROUP")}
