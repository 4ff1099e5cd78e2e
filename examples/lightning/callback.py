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
        self.every, self.saved = every, None

    def on_train_batch_end(self, trainer, *more):
        step, last = trainer.global_step, trainer.max_steps
        if trainer.is_global_zero:
            spot_progress.report(step, total=last if last > 0 else None)
        # All processes agree on the step at which they stop: saving is done together.
        stop = trainer.strategy.reduce_boolean_decision(spot_progress.stopping(), all=False)
        if (stop or step % self.every == 0) and step != self.saved:
            self.saved, half = step, FOLDER / f".step-{step:08d}.ckpt"
            trainer.save_checkpoint(half)
            if trainer.is_global_zero:
                os.rename(half, FOLDER / half.name[1:])
                spot_progress.checkpoint(half.name[1:], step)
                for old in sorted(FOLDER.glob("step-*.ckpt"))[:-2]:
                    old.unlink()
        trainer.should_stop = trainer.should_stop or stop
