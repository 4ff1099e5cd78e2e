"""A plain loop as PyTorch's own examples are written: it saves in place, resumes if there is a file, and prints."""

import argparse
import csv
import os
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--resume", required=True, metavar="PATH", help="path of the checkpoint")
parser.add_argument("--log-dir", required=True)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--every", type=int, default=20)
args = parser.parse_args()

torch.manual_seed(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
values = torch.randn(800, 8)
steps, step = args.epochs * 100, 0
if os.path.isfile(args.resume):
    checkpoint = torch.load(args.resume)
    model.load_state_dict(checkpoint["state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    step = checkpoint["step"]
    print(f"=> loaded checkpoint '{args.resume}' (step {step})")

while step < steps:
    batch = values[step * 8 % 800 : step * 8 % 800 + 8]
    loss = torch.nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.02)
    step += 1
    print(f"step {step}/{steps} loss {loss.item():.4f}")
    with open(os.path.join(args.log_dir, "metrics.csv"), "a", newline="") as target:
        if target.tell() == 0:
            csv.writer(target).writerow(["step", "loss"])
        csv.writer(target).writerow([step, loss.item()])
    if step % args.every == 0:
        torch.save({"step": step, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, args.resume)

torch.save(model.state_dict(), os.path.join(args.log_dir, "model.pt"))
