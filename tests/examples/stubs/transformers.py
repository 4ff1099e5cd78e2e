"""A stub of transformers: a Trainer that calls its callbacks in the order of the real one and also writes a checkpoint
folder in place, file by file. Its "weights" are the sum of all steps."""

import json
import os
import time
from types import SimpleNamespace


class TrainerCallback:
    def on_step_end(self, args, state, control, **more):
        pass

    def on_save(self, args, state, control, **more):
        pass


def TrainingArguments(**named):  # noqa: N802 - the real one is a class
    return SimpleNamespace(**named)


class Trainer:
    def __init__(self, model, args, callbacks):
        self.args, self.callbacks, self.total = args, callbacks, 0

    def train(self, resume_from_checkpoint=None):
        state = SimpleNamespace(global_step=0, max_steps=self.args.max_steps, is_world_process_zero=True)
        if resume_from_checkpoint:
            with open(os.path.join(resume_from_checkpoint, "trainer_state.json")) as source:
                state.global_step, self.total = json.load(source)
            assert os.path.exists(os.path.join(resume_from_checkpoint, "model.bin"))
        while state.global_step < state.max_steps:
            time.sleep(float(os.environ.get("STUB_STEP_S", "0")))
            state.global_step += 1
            self.total += state.global_step
            due = state.global_step % self.args.save_steps == 0
            control = SimpleNamespace(should_save=due, should_training_stop=False)
            self._tell("on_step_end", state, control)
            if control.should_save:
                self._save(state)
                self._tell("on_save", state, control)
            if control.should_training_stop:
                return

    def _tell(self, name, state, control):
        for callback in self.callbacks:
            getattr(callback, name)(self.args, state, control, model=None)

    def _save(self, state):
        folder = os.path.join(self.args.output_dir, "checkpoint-%d" % state.global_step)
        os.makedirs(folder)
        with open(os.path.join(folder, "trainer_state.json"), "w") as target:
            json.dump([state.global_step, self.total], target)
        time.sleep(0.02)
        with open(os.path.join(folder, "model.bin"), "w") as target:
            target.write("weights")
