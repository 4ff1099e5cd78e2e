"""What a tracker has after all, as JSON `[[run, [step, ...]], ...]`: `read_tracked.py TRACKER FOLDER`."""

import json
import pathlib
import struct
import sys

BLOCK = 32768  # of LevelDB's log format, in which W&B writes, behind a header of 7 bytes
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def records(data):
    """Up to the end, or to the record in which the file was cut."""
    at, parts = 7, []
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        part, at = data[at + 7 : at + 7 + length], at + 7 + length
        if len(part) < length or kind not in (FULL, FIRST, MIDDLE, LAST):
            return
        parts = [part] if kind in (FULL, FIRST) else [*parts, part]
        if kind in (FULL, LAST):
            yield b"".join(parts)


tracker, folder = sys.argv[1], pathlib.Path(sys.argv[2])
runs = {}
if tracker == "wandb":
    from wandb.proto import wandb_internal_pb2 as pb

    for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        for data in records(path.read_bytes()):
            record = pb.Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                run = record.run.run_id
                runs.setdefault(run, [])
            if record.HasField("history"):
                runs[run].append(record.history.step.num)
elif tracker == "trackio":
    import sqlite3

    for run, step in sqlite3.connect(folder / "trackio" / "digits.db").execute("select run_id, step from metrics"):
        runs.setdefault(run, []).append(step)
elif tracker == "mlflow":
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    client = mlflow.MlflowClient()
    for run in mlflow.search_runs(search_all_experiments=True, output_format="list"):
        runs[run.info.run_id] = [point.step for point in client.get_metric_history(run.info.run_id, "loss")]
else:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    runs["run"] = [event.step for event in events.Scalars("loss")]
    runs["files"] = len(list((folder / "tensorboard").iterdir()))
sys.stdout.write(json.dumps(list(runs.items())) + "\n")
