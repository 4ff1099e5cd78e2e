"""A stub of lightning.pytorch: batches, two callback hooks, save_checkpoint in place, should_stop after a batch.

TERM is handled as in Lightning 2.5 (signal_connector.py, training_epoch_loop.py, fit_loop.py, call.py): `fit` has a
handler of its own, which calls an earlier one too; after the batch in which TERM came it raises a SystemExit without a
code. Callbacks see that in on_exception.
"""

import json
import os
import signal
import time


class SIGTERMException(SystemExit):
    pass


class Callback:
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        pass

    def on_exception(self, trainer, pl_module, exception):
        pass


class Strategy:
    def reduce_boolean_decision(self, decision, all):  # noqa: A002 - the real one's name
        return decision


class Trainer:
    is_global_zero = True

    def __init__(self, callbacks, max_steps):
        self.callbacks, self.max_steps = callbacks, max_steps
        self.strategy, self.should_stop, self.received_sigterm = Strategy(), False, False
        self.global_step, self.total = 0, 0

    def fit(self, model, ckpt_path=None):
        before = signal.getsignal(signal.SIGTERM)

        def on_term(number, frame):
            self.received_sigterm = True
            if callable(before):
                before(number, frame)

        signal.signal(signal.SIGTERM, on_term)
        try:
            self._run(model, ckpt_path)
        except BaseException as exception:
            for callback in self.callbacks:
                callback.on_exception(self, model, exception)
            raise
        finally:
            signal.signal(signal.SIGTERM, before)

    def _run(self, model, ckpt_path):
        if ckpt_path:
            with open(ckpt_path) as source:
                self.global_step, self.total = json.load(source)
        while self.global_step < self.max_steps and not self.should_stop:
            time.sleep(float(os.environ.get("STUB_STEP_S", "0")))
            self.global_step += 1
            self.total += self.global_step
            for callback in self.callbacks:
                callback.on_train_batch_end(self, model, None, None, 0)
            self._after_batch()
        if self.received_sigterm:
            raise SIGTERMException

    def _after_batch(self):
        """The real one updates loggers and validates here."""
        for _ in range(5):
            pass
        if self.global_step < self.max_steps and self.received_sigterm:
            raise SIGTERMException

    def save_checkpoint(self, path):
        with open(path, "w") as target:
            target.write("[%d, " % self.global_step)
            target.flush()
            time.sleep(0.02)
            target.write("%d]" % self.total)
