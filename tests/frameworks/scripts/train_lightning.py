"""A training as Lightning's own examples are written. It names no checkpoint and handles no signal."""

import sys
import time

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        time.sleep(0.02)
        values, wanted = batch
        loss = torch.nn.functional.mse_loss(self.layer(values), wanted)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        values, wanted = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(values), wanted))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


torch.manual_seed(1)
values = torch.randn(800, 8)
data = TensorDataset(values, values.sum(1, keepdim=True))
trainer = Trainer(
    max_epochs=6, logger=CSVLogger(sys.argv[1]), log_every_n_steps=1, enable_progress_bar=False, accelerator="cpu"
)
trainer.fit(Regression(), DataLoader(data, batch_size=8), DataLoader(data, batch_size=200))
