"""A stand-in for lightning.pytorch: batches, one callback hook, save_checkpoint in place, should_stop after a batch."""

import json
import os
import time


class Callback:
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        pass


class Strategy:
    def reduce_boolean_decision(self, decision, all):  # noqa: A002 - the real one's name
        return decision


class Trainer:
    is_global_zero = True

    def __init__(self, callbacks, max_steps):
        self.callbacks, self.max_steps = callbacks, max_steps
        self.strategy, self.should_stop = Strategy(), False
        self.global_step, self.total = 0, 0

    def fit(self, model, ckpt_path=None):
        if ckpt_path:
            with open(ckpt_path) as source:
                self.global_step, self.total = json.load(source)
        while self.global_step < self.max_steps and not self.should_stop:
            time.sleep(float(os.environ.get("STUB_STEP_S", "0")))
            self.global_step += 1
            self.total += self.global_step
            for callback in self.callbacks:
                callback.on_train_batch_end(self, model, None, None, 0)

    def save_checkpoint(self, path):
        with open(path, "w") as target:
            target.write("[%d, " % self.global_step)
            target.flush()
            time.sleep(0.02)
            target.write("%d]" % self.total)
