"""A training as Accelerate's own examples are written; `log_with` names one tracker more."""

import os
import sys
import time

import spot_frameworks
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

accelerator = Accelerator(
    cpu=True, log_with=spot_frameworks.AccelerateTracker(), project_config=ProjectConfiguration(project_dir=sys.argv[1])
)
torch.manual_seed(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
values = torch.randn(1600, 8)
loader = torch.utils.data.DataLoader(values, batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
accelerator.init_trackers("regression")

overall = 0
saved = sorted((int(name.split("-")[1]), name) for name in os.listdir(sys.argv[1]) if name.startswith("checkpoint-"))
if saved:
    overall, name = saved[-1]
    accelerator.load_state(os.path.join(sys.argv[1], name))
    loader = accelerator.skip_first_batches(loader, overall)
for batch in loader:
    loss = torch.nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True))
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.03)
    overall += 1
    accelerator.log({"loss": loss.item()}, step=overall)
    if overall % 20 == 0:
        accelerator.save_state(os.path.join(sys.argv[1], f"checkpoint-{overall}"))
accelerator.end_training()
