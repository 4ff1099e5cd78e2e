"""A training as submitit's own example is written: a callable with a method `checkpoint`, on the local executor."""

import os
import sys
import time

import submitit


class Training:
    def __init__(self, folder):
        self.path = os.path.join(folder, "state.txt")
        self.step = 0

    def __call__(self):
        if os.path.exists(self.path):
            with open(self.path) as source:
                self.step = int(source.read())
        while self.step < 200:
            time.sleep(0.03)
            self.step += 1
            print(f"step {self.step}/200", flush=True)
        return self.step

    def checkpoint(self):
        with open(self.path, "w") as target:
            target.write(str(self.step))
        return submitit.helpers.DelayedSubmission(self)


executor = submitit.LocalExecutor(folder=sys.argv[2])
executor.update_parameters(timeout_min=60)
job = executor.submit(Training(sys.argv[1]))
print("done at step", job.result())
