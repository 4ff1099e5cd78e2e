"""Plain PyTorch that survives the loss of its machine: resume, save by rename, leave at the end of a step."""

import os
import sys
from pathlib import Path

import spot_progress
import torch

STEPS, EVERY, KEPT = 1000, 50, 2
folder = Path(os.environ.get("SPOT_CHECKPOINT_DIR", "."))
results = Path(os.environ.get("SPOT_RESULTS_DIR", "."))
torch.manual_seed(7)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
for newest in sorted(folder.glob("step-*.pt"))[-1:]:
    state = torch.load(newest, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
while step < STEPS:
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(step))  # the same batch after a resume
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    stop = spot_progress.stopping()
    spot_progress.report(step, total=STEPS, loss=loss.item())
    if stop or step % EVERY == 0:
        path = folder / f"step-{step:08d}.pt"
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, f"{path}.tmp")
        os.rename(f"{path}.tmp", path)  # now it is a complete checkpoint
        for old in sorted(folder.glob("step-*.pt"))[:-KEPT]:
            old.unlink()
    if stop:
        sys.exit(1)
torch.save(model.state_dict(), results / "model.pt")
