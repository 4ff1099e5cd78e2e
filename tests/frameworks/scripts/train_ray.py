"""A training as Ray Train's own examples are written: one worker, a report with a checkpoint for each epoch."""

import os
import sys
import tempfile
import time

import ray
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_func(config):
    model, begin = torch.nn.Linear(8, 1), 1
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "model.pt"))
            model.load_state_dict(state["model"])
            begin = state["epoch"] + 1
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(begin, config["num_epochs"] + 1):
        batch = torch.randn(64, 8)
        loss = torch.nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.3)
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(folder, "model.pt"))
            ray.train.report({"epoch": epoch, "loss": loss.item()}, checkpoint=Checkpoint.from_directory(folder))


trainer = TorchTrainer(
    train_func,
    train_loop_config={"num_epochs": 30},
    scaling_config=ScalingConfig(num_workers=1),
    run_config=RunConfig(
        name="regression", storage_path=sys.argv[1], checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2)
    ),
)
trainer.fit()
