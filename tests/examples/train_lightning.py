"""A user's code around the callback."""

import os
import sys
from pathlib import Path

import spot_progress
from callback import SpotCallback, newest
from lightning.pytorch import Trainer

trainer = Trainer(callbacks=[SpotCallback(every=20)], max_steps=200)
trainer.fit(None, ckpt_path=newest())
if spot_progress.stopping():
    sys.exit(1)
Path(os.environ["SPOT_RESULTS_DIR"], "total").write_text(str(trainer.total))
