"""A user's code around the callback."""

import os
import sys
from pathlib import Path

import spot_progress
from callback import WORK, SpotCallback, newest
from transformers import Trainer, TrainingArguments

args = TrainingArguments(output_dir=WORK, save_total_limit=2, save_steps=20, max_steps=200)
trainer = Trainer(None, args, callbacks=[SpotCallback()])
trainer.train(resume_from_checkpoint=newest())
if spot_progress.stopping():
    sys.exit(1)
Path(os.environ["SPOT_RESULTS_DIR"], "total").write_text(str(trainer.total))
