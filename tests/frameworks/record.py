"""Run one script of this folder in the environment of `make frameworks`, and write down what its framework sends.

`python -m tests.frameworks.record NAME OUT`, from the root: OUT gets JSON with the versions and the calls in their
order: for Transformers the bodies of its requests, for the others the hooks of `spot_frameworks` with what these read.
Calls in the middle are left out.
"""

import http.server
import json
import os
import runpy
import sys
import tempfile
import threading
from importlib import metadata
from pathlib import Path
from typing import Any

from supervisor.agent.machine.folder import MachineFolder

HERE = Path(__file__).parent
KEPT = 24  # calls at the beginning, and as many at the end
SCRIPTS = {
    "transformers": "{results} --output_dir {checkpoints} --max_steps 60 --logging_steps 5 --save_steps 20"
    " --use_cpu True --disable_tqdm True --per_device_train_batch_size 32",
    "lightning": "{results}",
    "keras": "{results} {checkpoints}",
    "accelerate": "{checkpoints}",
    "ray": "{checkpoints}",
}
RAY_RECORDER = """
import json, os
import spot_frameworks


class Recorder(spot_frameworks.RayCallback):
    def after_report(self, training_report, metrics):
        path = os.path.relpath(training_report.checkpoint.path, os.environ["SPOT_CHECKPOINT_DIR"])
        call = {"hook": "after_report", "config": self._config, "metrics": metrics, "checkpoint": path}
        with open(os.environ["SPOT_PROGRESS_FILE"] + ".calls", "a") as target:
            target.write(json.dumps(call) + chr(10))
        super().after_report(training_report, metrics)
"""
calls: list[dict[str, Any]] = []


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        calls.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *more: object) -> None:
        pass


def plain(value: Any) -> Any:
    """As JSON; a tensor is its number."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    try:
        return round(float(value), 6)
    except (TypeError, ValueError):
        return type(value).__name__


def watch(mixin: type, names: tuple[str, ...], read: Any) -> None:
    """Note each call of these hooks before it is carried out."""
    for name in names:
        hook = getattr(mixin, name)

        def noted(self: Any, *arguments: Any, _hook: Any = hook, _name: str = name, **more: Any) -> Any:
            calls.append({"hook": _name, **plain(read(self, arguments, more))})
            return _hook(self, *arguments, **more)

        setattr(mixin, name, noted)


def of_lightning(self: Any, arguments: tuple[Any, ...], more: dict[str, Any]) -> dict[str, Any]:
    trainer = arguments[0]
    names = ("global_step", "sanity_checking", "log_every_n_steps", "world_size", "is_global_zero", "received_sigterm")
    state = {name: getattr(trainer, name) for name in names}
    if self._total is None and self._prefix:
        state["estimated_stepping_batches"] = trainer.estimated_stepping_batches
    return {**state, "callback_metrics": dict(trainer.callback_metrics)}


def of_keras(self: Any, arguments: tuple[Any, ...], more: dict[str, Any]) -> dict[str, Any]:
    return {"params": dict(self.params), "arguments": [*arguments, *more.values()]}


def prepare(name: str) -> None:
    import spot_frameworks

    hooks = spot_frameworks._Lightning
    if name == "lightning":
        names = ("on_train_start", "on_train_batch_start", "on_train_batch_end", "on_train_epoch_end")
        more = ("on_save_checkpoint", "on_validation_start", "on_validation_end", "on_train_end")
        watch(hooks, (*names, *more), of_lightning)
    elif name == "keras":
        names = ("on_epoch_begin", "on_train_batch_end", "on_epoch_end", "on_test_begin", "on_test_end")
        watch(spot_frameworks._Keras, names, of_keras)
    elif name == "accelerate":
        watch(spot_frameworks._Accelerate, ("log",), lambda self, a, more: {"values": a[0], **more})


def with_callback(text: str) -> str:
    """The script with the one line that Keras needs."""
    return text.replace("        Slow(),", "        Slow(),\n        __import__('spot_frameworks').KerasCallback(),")


def prepare_ray(folder: Path) -> None:
    """The callback runs in the process of Ray's controller."""
    (folder / "python" / "ray_recorder.py").write_text(RAY_RECORDER)
    os.environ["PYTHONPATH"] = str(folder / "python")
    os.environ["RAY_TRAIN_CALLBACKS"] = "ray_recorder.Recorder"


def main() -> None:
    name, out = sys.argv[1:]
    folder = Path(tempfile.mkdtemp())
    for role in ("checkpoints", "results"):
        (folder / role).mkdir()
    machine = MachineFolder(str(folder))
    machine.python = str(folder / "python")
    machine.write_modules()
    sys.path.insert(0, str(folder / "python"))
    os.environ.update(
        SPOT_CHECKPOINT_DIR=str(folder / "checkpoints"),
        SPOT_PROGRESS_FILE=str(folder / "progress"),
        KERAS_BACKEND="torch",
    )
    if name == "transformers":
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (folder / "token").write_text("secret")
        os.environ["KUBEFLOW_TRAINER_SERVER_URL"] = f"http://127.0.0.1:{server.server_port}/status"
        os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"] = str(folder / "token")
    else:
        prepare(name)
        prepare_ray(folder)
    arguments = SCRIPTS[name].format(results=folder / "results", checkpoints=folder / "checkpoints").split()
    script = HERE / "scripts" / f"train_{name}.py"
    sys.argv = [str(script), *arguments]
    (folder / script.name).write_text(with_callback(script.read_text()))
    runpy.run_path(str(folder / script.name), run_name="__main__")
    of_ray = folder / "progress.calls"
    if of_ray.exists():
        calls.extend(json.loads(line) for line in of_ray.read_text().splitlines())
    kept = calls if len(calls) <= 2 * KEPT else [*calls[:KEPT], *calls[-KEPT:]]
    packages = ("transformers", "lightning", "keras", "accelerate", "ray", "torch")
    versions = {package: metadata.version(package) for package in packages if package in (name, "torch")}
    entries = sorted(path for path in (folder / "checkpoints").rglob("*") if path.is_file())
    entries.sort(key=lambda path: path.stat().st_mtime_ns)
    names = [path.relative_to(folder / "checkpoints").as_posix() for path in entries]
    progress = folder / "progress"
    lines = [json.loads(line) for line in progress.read_text().splitlines()] if progress.exists() else []
    kept_lines = lines if len(lines) <= 2 * KEPT else [*lines[:KEPT], *lines[-KEPT:]]
    told = {"versions": versions, "calls": kept, "lines": kept_lines, "files": names}
    Path(out).write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
