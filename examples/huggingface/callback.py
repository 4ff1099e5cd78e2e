"""For the Hugging Face Trainer: steps are reported, each checkpoint appears by rename, a stop saves first.

args = TrainingArguments(output_dir=WORK, save_total_limit=2, ...)
Trainer(model, args, callbacks=[SpotCallback()], ...).train(resume_from_checkpoint=newest())
"""

import os
import shutil
from pathlib import Path

import spot_progress
from transformers import TrainerCallback

FOLDER = Path(os.environ.get("SPOT_CHECKPOINT_DIR", "."))
WORK = str(FOLDER / ".trainer")  # the Trainer writes in place; a name with a dot is ignored


def saved():
    return sorted(FOLDER.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))


def newest():
    return str(saved()[-1]) if saved() else None


class SpotCallback(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        if spot_progress.stopping():  # several processes must agree on this first (all_reduce)
            control.should_save = control.should_training_stop = True
        if state.is_world_process_zero:
            spot_progress.report(state.global_step, total=state.max_steps)

    def on_save(self, args, state, control, **more):
        name = f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and not (FOLDER / name).exists():  # once a step
            shutil.copytree(Path(args.output_dir, name), FOLDER / f".{name}", copy_function=os.link)
            os.rename(FOLDER / f".{name}", FOLDER / name)
            spot_progress.checkpoint(name, state.global_step)
            for old in saved()[:-2]:
                shutil.rmtree(old)
