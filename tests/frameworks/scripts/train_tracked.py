"""Four trainings that log each step to a tracker in the manner of its own examples: `train_tracked.py TRACKER STEPS`.
They save every five steps, and start from what they find. Nothing here knows of attempts, except where it says so.
"""

import os
import pathlib
import sys
import time

import spot_progress
import spot_trackers

CHECKPOINTS = pathlib.Path(os.environ["SPOT_CHECKPOINT_DIR"])


def train(log, steps, flush=lambda: None):
    step = max((int(path.name[5:]) for path in CHECKPOINTS.iterdir()), default=0)
    while step < steps:
        step += 1
        log({"loss": 1.0 / step}, step)
        stop = spot_progress.stopping()
        spot_progress.report(step, total=steps)
        if step % 5 == 0 or stop:
            flush()
            half = CHECKPOINTS / "half.tmp"
            half.write_text(str(step))
            half.rename(CHECKPOINTS / f"step-{step}")
        if stop:
            sys.exit(1)
        time.sleep(0.05)


def wandb(steps):
    import wandb

    with wandb.init(project="digits") as run:
        train(lambda metrics, step: run.log(metrics, step=step, commit=True), steps, flush=lambda: time.sleep(2))


def trackio(steps):
    import trackio

    # The one changed line: it has no variable for the name of a run.
    trackio.init(project="digits", embed=False, auto_log_cpu=False, **spot_trackers.trackio())
    train(lambda metrics, step: trackio.log(metrics, step=step), steps, flush=lambda: time.sleep(1))
    trackio.finish()


def mlflow(steps):
    import mlflow

    mlflow.set_experiment("digits")
    with mlflow.start_run():
        train(lambda metrics, step: mlflow.log_metrics(metrics, step=step), steps)


def mlflow_once(steps):
    import mlflow

    mlflow.set_experiment("digits")
    with mlflow.start_run() as run:
        seen = spot_trackers.mlflow_last_step(run.info.run_id, "loss")  # it cannot rewind
        train(lambda metrics, step: step > seen and mlflow.log_metrics(metrics, step=step), steps)


def mlflow_local(steps):
    import mlflow

    mlflow.set_tracking_uri("sqlite:///" + os.environ["SPOT_RESULTS_DIR"] + "/mlflow.db")
    mlflow.set_experiment("digits")
    with mlflow.start_run(run_id=spot_trackers.mlflow_run_id()):
        train(lambda metrics, step: mlflow.log_metrics(metrics, step=step), steps)


def tensorboard(steps):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(os.environ["SPOT_TENSORBOARD_DIR"])

    def log(metrics, step):
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    train(log, steps, flush=writer.flush)
    writer.close()


globals()[sys.argv[1]](int(sys.argv[2]))
