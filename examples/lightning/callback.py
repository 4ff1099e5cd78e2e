"""For Lightning: steps are reported, each checkpoint appears by rename, a stop saves first.

Trainer(callbacks=[SpotCallback(every=500)], ...).fit(model, ckpt_path=newest())
"""

import os
from pathlib import Path

import spot_progress
from lightning.pytorch import Callback

FOLDER = Path(os.environ.get("SPOT_CHECKPOINT_DIR", "."))


def newest():
    return max((str(path) for path in FOLDER.glob("step-*.ckpt")), default=None)


class SpotCallback(Callback):
    def __init__(self, every=500):
        self.every, self.saved = every, 0

    def on_train_batch_end(self, trainer, *more):
        stop = spot_progress.stopping() or trainer.received_sigterm  # Lightning handles TERM itself
        stop = trainer.strategy.reduce_boolean_decision(stop, all=False)  # all save at one step
        if trainer.is_global_zero:
            spot_progress.report(trainer.global_step, total=max(trainer.max_steps, 0) or None)
        if stop or trainer.global_step % self.every == 0:
            self.save(trainer, trainer.global_step)
        trainer.should_stop = trainer.should_stop or stop

    def on_exception(self, trainer, module, exception):
        if isinstance(exception, SystemExit):  # TERM came after that check, or during a validation
            self.save(trainer, trainer.global_step)
            exception.code = 1  # Lightning exits with 0, as if the work were done

    def save(self, trainer, step):
        if step > self.saved:
            self.saved, half = step, FOLDER / f".step-{step:08d}.ckpt"
            trainer.save_checkpoint(half)
            if trainer.is_global_zero:
                os.rename(half, FOLDER / half.name[1:])
                spot_progress.checkpoint(half.name[1:], step)
                for old in sorted(FOLDER.glob("step-*.ckpt"))[:-2]:
                    old.unlink()
