"""What `spot_progress` does for frameworks that let others add a callback. The agent puts both on the PYTHONPATH.

- Lightning loads it by itself (the entry point is written beside this file), so an unchanged script reports its steps,
  saves when it must leave and continues from the checkpoint that was restored. SPOT_FRAMEWORKS=off prevents that.
- Ray Train loads it with RAY_TRAIN_CALLBACKS=spot_frameworks.RayCallback in the spec's `env`.
- Keras: `model.fit(..., callbacks=[spot_frameworks.KerasCallback()])`
- Accelerate: `Accelerator(log_with=spot_frameworks.AccelerateTracker())`, then `init_trackers` and `log(..., step=n)`

Nothing here is imported before its framework is, and nothing here may end a training that would work without it.
"""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module
from typing import Any, Dict, List, Optional

spot_progress: Any = import_module("spot_progress")  # beside this file on the training's machine

SAVE_SHARE = 0.1  # saves beside the script's own take no more of the time than this
SAVE_EVERY_S = 600.0  # where the script saves nothing itself
EPOCH_ENDS_S = 10.0
_fits = {"number": 0}  # of this process: a script may train several models, one after the other


def lightning_callbacks() -> List[Any]:
    return _lightning_callbacks("lightning.pytorch")


def pytorch_lightning_callbacks() -> List[Any]:
    return _lightning_callbacks("pytorch_lightning")


def _lightning_callbacks(package: str) -> List[Any]:
    if not _folder() or os.environ.get("SPOT_FRAMEWORKS") == "off":
        return []
    try:
        return [type("SpotCallback", (_Lightning, import_module(package).Callback), {})()]
    except Exception as error:  # noqa: BLE001 - whatever a later version of it does
        _say("no callback for %s: %s" % (package, error))
        return []


def __getattr__(name: str) -> Any:
    """The classes below, once their framework is there."""
    if name not in _CLASSES:
        raise AttributeError(name)
    mixin, module, *bases = _CLASSES[name]
    parts = tuple(getattr(import_module(module), base) for base in bases)
    made = type(name, (mixin, *parts), {"__module__": __name__})
    globals()[name] = made  # one class, so that it can be sent to another process
    return made


class _Lightning:
    """A callback of a Trainer. All ranks call it at the same steps."""

    def __init__(self) -> None:
        self._on = False  # this fit is ours to report
        self._prefix = ""
        self._total: Optional[int] = None
        self._saved_step, self._saved_at, self._save_s = -1, time.monotonic(), 0.0
        self._due = self._save_next = self._saving = self._left = self._has_own = False

    def setup(self, trainer: Any, module: Any, stage: str) -> None:
        if stage != "fit":
            return
        others = [sys.modules.get(type(each).__module__) for each in trainer.callbacks if each is not self]
        # A script with a callback of its own that reports needs no second one.
        self._on = not any("spot_progress" in vars(each) for each in others if each is not None)
        if self._on:
            _fits["number"] += 1
            self._prefix = "fit%d-step-" % _fits["number"]
            self._resume(trainer)

    def _resume(self, trainer: Any) -> None:
        """Lightning loads what `fit(ckpt_path=...)` names; a script that names none begins at step 0."""
        connector = getattr(trainer, "_checkpoint_connector", None)
        begin, newest = getattr(connector, "resume_start", None), self._newest()
        if newest is None or begin is None or "SPOT_RESUMED_FROM_STEP" not in os.environ:
            return

        def resume_start(path: Any = None, *more: Any, **named: Any) -> Any:
            vars(connector).pop("resume_start", None)  # once
            if path is None or not _inside(path):
                _say("continuing from %s" % os.path.basename(newest))
                path = newest
            return begin(path, *more, **named)

        vars(connector)["resume_start"] = resume_start

    def _newest(self) -> Optional[str]:
        """Of this fit. A file with another name is the script's own: it belongs to its first fit."""
        try:
            present = os.listdir(_folder())
        except OSError:
            return None
        names = [name for name in present if name.endswith(".ckpt") and not name.startswith((".", "best"))]
        first = _fits["number"] == 1
        own = [name for name in names if name.startswith(self._prefix) or (first and not name.startswith("fit"))]
        return max((os.path.join(_folder(), name) for name in own), key=os.path.getmtime, default=None)

    def on_train_start(self, trainer: Any, module: Any) -> None:
        try:
            total = float(trainer.estimated_stepping_batches)
            self._total = int(total) if 0 < total < float("inf") else None
        except Exception:  # noqa: BLE001 - a loader may refuse to tell its length
            self._total = None
        savers = getattr(trainer, "checkpoint_callbacks", [])
        self._has_own = any(_inside(getattr(each, "dirpath", None) or "") for each in savers)
        self._saved_step = trainer.global_step

    def on_train_batch_end(self, trainer: Any, module: Any, *more: Any) -> None:
        if not self._on:
            return
        # Lightning handles TERM itself.
        stop = _any_rank(trainer, spot_progress.stopping() or trainer.received_sigterm)
        self._save_next = _any_rank(trainer, stop or self._is_due())
        if trainer.is_global_zero:
            self._report(trainer, trainer.global_step)
        self._left = self._left or stop

    def on_train_batch_start(self, trainer: Any, module: Any, *more: Any) -> None:
        """The row of a step is written after `on_train_batch_end`, and its counter moves then, so a save waits for the
        next hook. Mostly Lightning has left by then (`on_exception`); where TERM did not come, only the file did."""
        if self._save_next:
            self._save(trainer)
        if self._left:
            raise SystemExit(1)

    def _report(self, trainer: Any, step: int) -> None:
        line: Dict[str, Any] = {"step": step}
        if self._total is not None:
            line["total"] = self._total
        every = trainer.log_every_n_steps
        if every and step % every == 0:  # a value of a card is only read when the script's own logger reads it, too
            spot_progress.report(step, total=self._total, **_metrics(trainer.callback_metrics))
        else:
            spot_progress._append(line)

    def _is_due(self) -> bool:
        should_save = getattr(spot_progress, "should_save", None)
        if should_save is not None and should_save():
            return True
        since_s = time.monotonic() - self._saved_at
        return not self._has_own and (since_s >= SAVE_EVERY_S or (self._due and self._save_s <= SAVE_SHARE * since_s))

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """At the end of an epoch no loader has to find its place again."""
        cheap = self._save_s <= SAVE_SHARE * (time.monotonic() - self._saved_at)
        if self._on and (self._save_next or (not self._has_own and _any_rank(trainer, cheap))):
            self._save(trainer)

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
        self._due = self._due or not self._saving  # the script has saved elsewhere

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        if self._save_next:
            self._save(trainer)
        if self._on and trainer.is_global_zero and not trainer.sanity_checking:
            spot_progress.phase("evaluation")

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if self._on and trainer.is_global_zero and not trainer.sanity_checking:
            spot_progress.phase("training")

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """TERM came after the check of a batch, or in a validation."""
        if self._on and isinstance(exception, SystemExit) and trainer.received_sigterm:
            self._save(trainer)
            exception.code = 1  # Lightning exits with 0, as if the work were done

    def on_train_end(self, trainer: Any, module: Any) -> None:
        if self._save_next:
            self._save(trainer)
        if self._on and not self._left and trainer.is_global_zero and self._total is not None:
            spot_progress._append({"step": trainer.global_step, "total": trainer.global_step})  # also of an early end

    def _save(self, trainer: Any) -> None:
        self._save_next = False
        if trainer.global_step <= self._saved_step:
            return
        began = time.monotonic()
        self._saving = True
        try:
            self._write(trainer, trainer.global_step)
        except Exception as error:  # noqa: BLE001 - a full disk, for example: the training goes on
            _say("the checkpoint of step %d was not saved: %s" % (trainer.global_step, error))
        self._saving = self._due = False
        self._saved_at, self._saved_step = time.monotonic(), trainer.global_step
        self._save_s = self._saved_at - began

    def _write(self, trainer: Any, step: int) -> None:
        for logger in trainer.loggers:
            logger.save()  # rows up to this step belong to this checkpoint
        name = "%s%d.ckpt" % (self._prefix, step)
        half = os.path.join(_folder(), "." + name)
        trainer.save_checkpoint(half)
        if trainer.is_global_zero:
            os.rename(half, os.path.join(_folder(), name))
            spot_progress.checkpoint(name, step)
            for old in os.listdir(_folder()):
                if old.startswith(self._prefix) and old != name:
                    os.unlink(os.path.join(_folder(), old))


class _Keras:
    """A callback of `fit`. Keras continues at the beginning of an epoch (BackupAndRestore), so a training that must
    leave ends with its epoch if that is near, and at once otherwise: what it still does would be done again."""

    def __init__(self) -> None:
        super().__init__()
        self._epoch, self._began = 0, time.monotonic()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch, self._began = epoch, time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        params = getattr(self, "params", None) or {}
        steps, epochs = params.get("steps"), params.get("epochs")
        left_s = float("inf")  # of the epoch; the length of a generator is not known
        if steps:
            total = steps * epochs if epochs else None
            spot_progress.report(self._epoch * steps + batch + 1, total=total, **_metrics(logs))
            left_s = (steps - batch - 1) * (time.monotonic() - self._began) / (batch + 1)
        if spot_progress.stopping() and left_s > EPOCH_ENDS_S:
            sys.exit(1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if spot_progress.stopping():
            getattr(self, "model").stop_training = True  # noqa: B009 - the base class has it

    def on_test_begin(self, logs: Any = None) -> None:
        spot_progress.phase("evaluation")

    def on_test_end(self, logs: Any = None) -> None:
        spot_progress.phase("training")


class _Ray:
    """A callback of Ray Train, in the process of its controller. A UserCallback is not called where it comes from the
    environment, so these are the classes behind it."""

    STEPS = (("step", "max_steps"), ("global_step", "max_steps"), ("training_iteration", ""), ("epoch", "num_epochs"))

    _config: Dict[str, Any] = {}

    def after_controller_start(self, train_run_context: Any) -> None:
        self._config = getattr(train_run_context, "train_loop_config", None) or {}

    def after_report(self, training_report: Any, metrics: List[Dict[str, Any]]) -> None:
        values = metrics[0] if metrics else {}
        name, total_name = next(((name, total) for name, total in self.STEPS if name in values), ("", ""))
        step = spot_progress._number(values.get(name))
        if step is None:
            return
        total = self._config.get(total_name)
        spot_progress.report(int(step), total=total if isinstance(total, int) else None, **_metrics(values))
        path = getattr(getattr(training_report, "checkpoint", None), "path", None)
        if path and _inside(path):
            spot_progress.checkpoint(os.path.relpath(path, _folder()).split(os.sep)[0], int(step))


class _Accelerate:
    """A tracker of Accelerate: each `accelerator.log(values, step=n)` is a report."""

    name = "spot"
    requires_logging_directory = False
    tracker = None

    def store_init_configuration(self, values: Any) -> None:
        """A run's configuration is its command."""

    def log(self, values: Dict[str, Any], step: Optional[int] = None, **more: Any) -> None:
        if step is not None:
            spot_progress.report(step, **_metrics(values))


_CLASSES: Dict[str, Any] = {
    "KerasCallback": (_Keras, "keras.callbacks", "Callback"),
    "RayCallback": (_Ray, "ray.train.v2._internal.execution.callback", "ControllerCallback", "ReportCallback"),
    "AccelerateTracker": (_Accelerate, "accelerate.tracking", "GeneralTracker"),
}


def _any_rank(trainer: Any, flag: bool) -> bool:
    """Ranks that step together must decide the same."""
    return bool(trainer.strategy.reduce_boolean_decision(flag, all=False)) if trainer.world_size > 1 else flag


def _folder() -> str:
    return os.environ.get("SPOT_CHECKPOINT_DIR", "")


def _metrics(values: Any) -> Dict[str, Any]:
    """As keywords of `report`, whose own names they must not have."""
    return {str(name): value for name, value in (values or {}).items() if name not in ("step", "total")}


def _inside(path: Any) -> bool:
    return bool(_folder()) and os.path.abspath(str(path)).startswith(_folder() + os.sep)


def _say(text: str) -> None:
    sys.stderr.write("spot: %s\n" % text)
