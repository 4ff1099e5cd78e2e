"""A training as the Trainer's own examples are written: all it knows of its machine are its arguments."""

import csv
import os
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 1600

    def __getitem__(self, index):
        time.sleep(0.005)
        tokens = (torch.arange(16) * (index % 7 + 1)) % 64
        return {"input_ids": tokens, "labels": tokens}


class WriteCsv(TrainerCallback):
    def __init__(self, path):
        self.path = path

    def on_log(self, args, state, control, logs=None, **more):
        if "loss" in logs:
            with open(self.path, "a", newline="") as target:
                if target.tell() == 0:
                    csv.writer(target).writerow(["step", "loss"])
                csv.writer(target).writerow([state.global_step, logs["loss"]])


(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(sys.argv[2:])
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2))
trainer = Trainer(
    model=model, args=arguments, train_dataset=Tokens(), callbacks=[WriteCsv(os.path.join(sys.argv[1], "metrics.csv"))]
)
last = get_last_checkpoint(arguments.output_dir) if os.path.isdir(arguments.output_dir) else None
trainer.train(resume_from_checkpoint=last)
trainer.save_model()
